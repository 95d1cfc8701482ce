"""A small OpenEnv server for tests: the guessing game, typed or as tools; on the wire what openenv 0.10 says; standard library only.

    fake_open_env.py [--kind guess|tools] [--sessions N] [--port PORT] [--log FILE] [--faults SEED]

Prints its port, and ends with its standard input. The guess 77 breaks the connection, 78 is answered late, 79 raises. --faults: every
fourth step of a session goes wrong in one of these ways, or is answered with half a frame or nonsense.
"""
import argparse
import base64
import hashlib
import json
import random
import socketserver
import struct
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="guess")
parser.add_argument("--sessions", type=int, default=64)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--log")
parser.add_argument("--faults", type=int)
options = parser.parse_args()
lock, playing, most = threading.Lock(), 0, 0
number = {"type": "object", "required": ["number"], "properties": {"metadata": {"type": "object"}, "number": {"type": "integer"}}}
call = {"type": "object", "properties": {"metadata": {}, "type": {}, "tool_name": {"type": "string"}, "arguments": {"type": "object"}}}
tools = [{"name": "guess", "description": "Guess the number.", "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}},
         {"name": "give_up", "description": "End the game.", "inputSchema": {"type": "object", "properties": {}}}]


def write(**record):
    if options.log:
        with lock, open(options.log, "a") as file:
            file.write(json.dumps(record) + "\n")


class Broken(Exception):
    pass


class Session(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def http(self, status, body):
        data = json.dumps(body).encode()
        self.wfile.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)

    def handle(self):
        path = self.rfile.readline().decode().split(" ")[1]
        headers = {}
        while (line := self.rfile.readline().decode().strip()):
            key, _, value = line.partition(":")
            headers[key.lower()] = value.strip()
        if path == "/schema":
            return self.http(200, {"action": call if options.kind == "tools" else number, "observation": {}, "state": {}})
        if path == "/metadata":
            return self.http(200, {"name": options.kind})
        if path != "/ws" or "sec-websocket-key" not in headers:
            return self.http(404, {"detail": "Not Found"})
        digest = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n" % base64.b64encode(digest))
        global playing, most
        with lock:
            full = playing >= options.sessions
            playing += not full
            most = max(most, playing)
        if full:
            self.say("error", {"message": "no session is free", "code": "CAPACITY_REACHED"})
            return self.frame(8, struct.pack(">H", 1000))
        try:
            self.play()
        except (Broken, OSError):
            pass
        finally:
            with lock:
                playing -= 1

    def frame(self, code, data, cut=0):
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        self.wfile.write((bytes([0x80 | code]) + size + data)[:-cut or None])

    def say(self, type, data):
        self.frame(1, json.dumps({"type": type, "data": data}).encode())

    def read(self):
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                raise Broken
            size = head[1] & 0x7F
            if size >= 126:
                size = struct.unpack(">H" if size == 126 else ">Q", self.rfile.read(2 if size == 126 else 8))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            if head[0] & 15 == 8:
                self.frame(8, data)
                raise Broken
            if head[0] & 15 == 9:
                self.frame(10, data)
            if head[0] & 15 == 1:
                return json.loads(data)

    def fault(self, which):
        write(fault=which, seed=self.seed, step=self.steps)
        if which == "unreachable":
            raise Broken
        if which == "half":
            self.frame(1, b'{"type": "observation", "data"', cut=5)
            raise Broken
        if which == "timeout":
            time.sleep(5)
            raise Broken
        if which == "malformed":
            return self.frame(1, b"nonsense")
        self.say("error", {"message": "division by zero", "code": "EXECUTION_ERROR"})

    def observe(self, text, reward, done, tool=None):
        write(seed=self.seed, step=self.steps, reward=reward, done=done, row=self.row)
        observation = {"metadata": {"step": self.steps}, "text": text} if tool is None else {
            "metadata": {}, "tool_name": tool, "error": None,
            "result": {"content": [{"type": "text", "text": text}], "data": text, "is_error": False}}
        self.say("observation", {"observation": observation, "reward": reward, "done": done})

    def play(self):
        self.seed, self.row, self.steps, secret = None, {}, 0, 0
        while True:
            message = self.read()
            kind, data = message["type"], message.get("data", {})
            if kind == "state":
                self.say("state", {"episode_id": "e", "step_count": self.steps})
            elif kind == "mcp":
                self.say("mcp", {"jsonrpc": "2.0", "id": data["id"], "result": {"tools": tools}})
            elif kind == "reset":
                self.seed, self.row, self.steps = data.get("seed"), data, 0
                secret = random.Random(self.seed).randint(1, 9)
                if options.kind == "tools":
                    self.say("observation", {"observation": {"metadata": {"text": " From 1 to 9."}, "done": False, "reward": 0.0}, "reward": 0.0, "done": False})
                else:
                    self.say("observation", {"observation": {"metadata": {}, "text": " From 1 to 9."}, "reward": 0.0, "done": False})
            elif kind == "step":
                self.steps += 1
                tool = data.get("tool_name") if options.kind == "tools" else None
                if tool == "give_up":
                    self.observe(f"It was {secret}.", 0.0, True, tool)
                    continue
                if tool not in (None, "guess"):
                    self.say("observation", {"observation": {"tool_name": tool, "result": None, "error": {"error_type": "tool_not_found", "message": f"no tool {tool}"}}, "reward": 0.0, "done": False})
                    continue
                guess = data.get("arguments", {}).get("number") if tool else data.get("number")
                if not isinstance(guess, int) or (tool is None and set(data) - {"number", "metadata"}):
                    self.say("error", {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": [{"loc": ["number"], "msg": "Field required"}]})
                    continue
                faults = {77: "unreachable", 78: "timeout", 79: "status"}
                if options.faults is not None and random.Random(f"{options.faults} {self.seed} {self.steps} {guess}").random() < 0.25:
                    faults = {guess: random.Random(f"{self.seed} {guess}").choice(["unreachable", "half", "timeout", "malformed", "status"])}
                if guess in faults:
                    self.fault(faults[guess])
                elif guess == secret:
                    self.observe("right", 1.0 - 0.1 * (self.steps - 1), True, tool)
                else:
                    self.observe("higher" if guess < secret else "lower", 0.0, self.steps >= 6, tool)
            else:
                self.say("error", {"message": kind, "code": "UNKNOWN_TYPE"})


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 256

    def handle_error(self, *_):  # a client that has gone
        pass


server = Server(("127.0.0.1", options.port), Session)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
print(f"at most {most}", flush=True)
