"""A small NeMo Gym for tests: what is on the wire is what the real servers of nemo-gym 0.7 say; standard library only.

    fake_gym.py --head-port PORT [--log FILE] [--faults SEED] [--late SECONDS] [--model-url URL]

Resources servers: numbers (answers compared as numbers; sessions by cookie; reward_components), words_resources_server with the
inner name words (no sessions, refuses rows without expected_answer), stepped (no /verify). Agents: numbers_simple_agent (not there);
with --model-url numbers_editing_agent, which asks once, or once more with another history, and numbers_steady_agent, which asks
twice and rewards what was said, and numbers_failing_agent, of whose episodes two of four fail.
--faults: four of ten judgements go wrong in one of seven ways, chosen by the seed and the text. --log: one JSON line for each judgement.
"""
import argparse
import hashlib
import http.server
import json
import re
import socket
import struct
import threading
import time
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("--head-port", type=int, required=True)
parser.add_argument("--log")
parser.add_argument("--faults", type=int)
parser.add_argument("--late", type=float, default=0)
parser.add_argument("--model-url")
options = parser.parse_args()
lock, sessions = threading.Lock(), {}
FAULTS = ["status", "status", "timeout", "judge", "malformed", "malformed", "unreachable"]


def write(**record):
    if options.log:
        with lock, open(options.log, "a") as file:
            file.write(json.dumps(record) + "\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256

    def handle_error(self, *_):  # a client that has gone
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def reply(self, status, body, cookie=None, short=0):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data) + short))
        if cookie:
            self.send_header("Set-Cookie", f"{cookie}; Path=/; HttpOnly; SameSite=lax")
        self.end_headers()
        self.wfile.write(data)
        if short:
            self.close_connection = True

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

    def do_GET(self):
        self.reply(404, {"detail": "Not Found"})


class Head(Handler):
    def do_GET(self):
        if self.path == "/global_config_dict_yaml":
            return self.reply(200, document)
        if self.path == "/readyz":
            return self.reply(200, {"status": "ready"})
        self.reply(200, {})


class Numbers(Handler):
    stateful = True

    def do_POST(self):
        body = self.body()
        cookie = self.headers.get("Cookie", "")
        if self.path == "/seed_session":
            if not self.stateful:
                return self.reply(404, {"detail": "Not Found"})
            with lock:
                name = f"session{len(sessions)}"
                sessions[name] = body.get("expected_answer")
            return self.reply(200, {}, f"NumbersServer___numbers={name}")
        if self.path != "/verify":
            return self.reply(404, {"detail": "Not Found"})
        extra = set(body["responses_create_params"]) - {"input", "tools", "parallel_tool_calls", "instructions", "metadata"}
        missing = [] if "expected_answer" in body else ["expected_answer"]
        if extra or missing or body["responses_create_params"].get("tools", ...) is None:
            where = ["body", *(missing or ["responses_create_params", *sorted(extra)])]
            return self.reply(422, {"detail": [{"type": "missing" if missing else "extra_forbidden", "loc": where, "msg": "Field required"}]})
        if self.stateful and sessions.get(cookie.partition("=")[2]) != body["expected_answer"]:
            return self.reply(500, "Hit an exception: no session")
        text = "".join(c["text"] for o in body["response"]["output"] if o["type"] == "message" for c in o["content"])
        found = re.findall(r"-?\d+", text)
        correct = float(bool(found) and found[-1] == str(body["expected_answer"]).strip())
        brief = 1.0 / (1 + len(text))
        fault = None
        if options.faults is not None:
            digest = hashlib.sha256(f"{options.faults} {text} {body['expected_answer']}".encode()).digest()
            fault = FAULTS[digest[1] % len(FAULTS)] if digest[0] < 102 else None
        write(text=text, answer=body["expected_answer"], reward=correct + 0.1 * brief, fault=fault)
        fields = {"reward": correct + 0.1 * brief, "mask_sample": False, "failure_kind": None, "failure_reason": None,
                  "reward_components": {"correct": correct, "brief": brief}}
        if fault == "status":
            return self.reply(500 if digest[2] % 2 else 503, "Hit an exception in NumbersServer: b'...'")
        if fault == "timeout":
            time.sleep(4)
        if fault == "judge":
            fields.update({"reward": 0.0, "mask_sample": True} if digest[2] % 2 else {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "no judge"})
        if fault == "malformed":
            if digest[2] % 3 == 0:
                return self.reply(200, {**body, "score": 1.0})
            if digest[2] % 3 == 1:
                return self.reply(200, [1.0])
            return self.reply(200, {**body, **fields, "reward": "1.0"})
        if fault == "unreachable":
            if digest[2] % 2:
                return self.reply(200, {**body, **fields}, short=40)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return self.connection.close()
        self.reply(200, {**body, **fields})


class Words(Numbers):
    stateful = False


class Stepped(Handler):
    def do_POST(self):
        self.body()
        self.reply(404, {"detail": "Not Found"})


class EditingAgent(Handler):
    runs = 0

    def ask(self, params, messages):
        body = {"messages": messages, "max_tokens": params["max_output_tokens"], "temperature": params["temperature"],
                "top_p": params["top_p"], "logprobs": True, "return_token_ids": True}
        request = urllib.request.Request(f"{options.model_url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            message = json.loads(answer.read())["choices"][0]["message"]
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": message["content"]}],
                **{key: message[key] for key in ("prompt_token_ids", "generation_token_ids", "generation_log_probs")}}

    def do_POST(self):
        body = self.body()
        if self.path != "/run":
            return self.reply(404, {"detail": "Not Found"})
        with lock:
            run = EditingAgent.runs
            EditingAgent.runs += 1
        params = body["responses_create_params"]
        output = [self.ask(params, params["input"])]
        if run % 4:  # the question is told in other words, what was said is forgotten
            output.append(self.ask(params, [{"role": "user", "content": "Once more: " + params["input"][0]["content"]}]))
        reward = run % 8 / 8
        write(reward=reward, prompts=[o["prompt_token_ids"] for o in output], drawn=[o["generation_token_ids"] for o in output])
        self.reply(200, {**body, "reward": reward, "mask_sample": False, "failure_kind": None, "response": {"output": output}})


class SteadyAgent(EditingAgent):
    """Two calls, the second with all of the first, its token ids too, as Gym's model server sends them; all but the draws is a function of the row."""

    def do_POST(self):
        body = self.body()
        if self.path != "/run":
            return self.reply(404, {"detail": "Not Found"})
        params = body["responses_create_params"]
        first = self.ask(params, params["input"])
        said = {"role": "assistant", "content": first["content"][0]["text"], **{key: first[key] for key in ("prompt_token_ids", "generation_token_ids", "generation_log_probs")}}
        second = self.ask(params, params["input"] + [said, {"role": "user", "content": "Are you sure?"}])
        text = "".join(o["content"][0]["text"] for o in (first, second))
        reward = hashlib.sha256(text.encode()).digest()[0] / 255
        write(reward=reward, prompts=[o["prompt_token_ids"] for o in (first, second)], drawn=[o["generation_token_ids"] for o in (first, second)],
              log_probs=[o["generation_log_probs"] for o in (first, second)])
        self.reply(200, {**body, "reward": reward, "mask_sample": False, "failure_kind": None, "response": {"output": [first, second]}})


class FailingAgent(SteadyAgent):
    """Of every four episodes one fails by itself, and one with status 500."""

    def do_POST(self):
        if self.path == "/run":
            with lock:
                run = EditingAgent.runs
                EditingAgent.runs += 1
            if run % 4 < 2:
                body = self.body()
                write(fault=run % 4)
                if run % 4:
                    return self.reply(500, "Hit an exception in FailingAgent: b'...'")
                return self.reply(200, {**body, "reward": 0.0, "mask_sample": True, "failure_kind": "tool", "response": {"output": []}})
        super().do_POST()


def start(handler, port=0):
    server = Server(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


ports = [start(handler) for handler in (Numbers, Words, Stepped)]
document = f"""config_paths:
- a.yaml
head_server:
  host: 127.0.0.1
  port: {options.head_port}
numbers:
  resources_servers:
    numbers:
      entrypoint: app.py
      value: Verify answers as numbers, with multiple extraction
        strategies
      host: 127.0.0.1
      port: {ports[0]}
numbers_simple_agent:
  responses_api_agents:
    simple_agent:
      resources_server:
        type: resources_servers
        name: numbers
      port: 11428
words_resources_server:
  resources_servers:
    words:
      host: localhost
      port: {ports[1]}
stepped:
  resources_servers:
    stepped: {{host: 0.0.0.0, port: {ports[2]}}}
"""
if options.model_url:
    document += f"""numbers_editing_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {{type: resources_servers, name: numbers}}
      port: {start(EditingAgent)}
numbers_steady_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {{type: resources_servers, name: numbers}}
      port: {start(SteadyAgent)}
numbers_failing_agent:
  responses_api_agents:
    simple_agent:
      resource_server_is_not_asked: true
      port: {start(FailingAgent)}
"""
time.sleep(options.late)
start(Head, options.head_port)
print("up", flush=True)
threading.Event().wait()
