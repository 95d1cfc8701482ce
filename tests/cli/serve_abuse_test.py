"""What strangers may do to vllm-serve: others are answered meanwhile, and it ends when it is told to."""
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, NotRun, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


class Server:
    """The program as it is started by hand, with limits of its own."""

    def __init__(self, c, *options, env=None, limits=""):
        """limits: a line of the shell, such as `ulimit -Sn 128`."""
        command = [c.program, "vllm-serve", str(MODEL), "--port", "0", *options]
        self.process = subprocess.Popen(["sh", "-c", f'{limits or ":"}; exec "$@"', "sh", *command], cwd=c.folder, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ask(self, path, body=None, headers=None, timeout=60):
        there = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            more = {} if body is None else {"Content-Type": "application/json"}
            there.request("GET" if body is None else "POST", path, data, {**more, **(headers or {})})
            answer = there.getresponse()
            return answer.status, answer.read().decode()
        finally:
            there.close()

    def begin(self, path, body):
        """A request whose answer nobody reads yet."""
        data = json.dumps(body).encode()
        there = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        there.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        return there

    def healthy(self, times=10):
        for _ in range(times):
            assert self.ask("/health", timeout=10)[0] == 200

    def end(self, seconds):
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=seconds)
        assert self.process.returncode == 143, self.process.returncode
        return time.monotonic() - begun


GOOD = {"prompt": "3 + 4 =", "max_tokens": 1}
TEMPLATE = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1,
            "chat_template": "{{ ('a'*1000000 ~ 'b') in ('a'*5000000) }}"}
LOOPS = {**TEMPLATE, "chat_template": "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = [i, j]|string %}{% endfor %}{% endfor %}"}


@case
def a_key_from_a_file_or_the_environment(c):
    (c.folder / "key").write_text("secret of a file\nnothing\n")
    with Server(c, "--api-key-file", "key", env={"VLLM_API_KEY": "another"}) as server:
        assert server.ask("/v1/models")[0] == 401
        assert server.ask("/v1/models", headers={"Authorization": "Bearer another"})[0] == 401
        assert server.ask("/v1/models", headers={"Authorization": "Bearer secret of a file"})[0] == 200
    with Server(c, env={"VLLM_API_KEY": "another"}) as server:
        assert server.ask("/v1/models")[0] == 401
        assert server.ask("/v1/models", headers={"Authorization": "Bearer another"})[0] == 200
    c.run("vllm-serve", MODEL, "--api-key-file", "none").expect(2, "rlalgo.cli.25", "No such file")
    (c.folder / "empty").write_text("\n")
    c.run("vllm-serve", MODEL, "--api-key-file", "empty").expect(2, "rlalgo.cli.25", "no key in it")
    c.run("vllm-serve", MODEL, "--api-key-file", "key", "--api-key", "k").expect(2, "rlalgo.cli.7")


@case
def bodies_of_strangers_are_not_read(c):
    with Server(c, "--api-key", "k") as server:
        held = []
        for path in (b"/v1/completions", b"/update_weights", b"/tokenize"):
            for _ in range(2):
                there = socket.create_connection(("127.0.0.1", server.port), timeout=30)
                there.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n\r\n" % path)
                assert there.recv(12) == b"HTTP/1.1 401"
                held.append(there)
        server.healthy()
        for there in held:
            there.close()


@case
def health_is_answered_whatever_runs(c):
    words = "some words and 12345 numbers " * 200000
    for name, path, body in [("templates", "/v1/chat/completions", TEMPLATE), ("loops", "/v1/chat/completions", LOOPS),
                             ("text", "/tokenize", {"prompt": words}),
                             ("list", "/v1/completions", {"prompt": [f"a {i}" for i in range(3000)], "max_tokens": 50, "ignore_eos": True}),
                             ("many", "/v1/completions", {"prompt": "a", "n": 3000, "max_tokens": 50, "ignore_eos": True})]:
        with Server(c, "--drain-timeout", "0.5") as server:
            held = [server.begin(path, body) for _ in range(4)]
            server.healthy()
            if name in ("list", "many"):
                assert server.ask("/v1/completions", GOOD)[0] == 200, name
            server.healthy()
            took = server.end(60)
            assert took < 45, (name, took)
            for there in held:
                there.close()


@case
def who_leaves_ends_what_was_asked_for(c):
    with Server(c) as server:
        held = [server.begin("/v1/completions", {"prompt": [f"a {i}" for i in range(3000)], "max_tokens": 200, "ignore_eos": True}) for _ in range(3)]
        for there in held:
            there.close()
        deadline = time.monotonic() + 60
        while True:
            status, text = server.ask("/metrics")
            waiting = sum(float(v) for v in re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)", text, re.M))
            if waiting == 0:
                break
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        assert server.ask("/v1/completions", GOOD)[0] == 200


@case
def little_memory(c):
    """An answer that would take all memory is refused with its size; nobody ends the process."""
    with Server(c, "--max-logprobs", "-1", "--answer-memory-mb", "300") as server:
        status, text = server.ask("/v1/completions", {"prompt": "a", "max_tokens": 200, "n": 4096, "logprobs": 20, "ignore_eos": True})
        assert status == 400 and "rlalgo.serve.28" in text, (status, text)
        status, text = server.ask("/get_sequence_logprobs/", {"sequences": [[1, 2, 3]] * 30000, "prompt_lengths": [1] * 30000, "top_logprobs": 100})
        assert status == 400 and "rlalgo.serve.28" in text, (status, text[:500])
        assert server.ask("/v1/completions", GOOD)[0] == 200
        server.end(60)


@case
def idle_connections_shut_nobody_out(c):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 600:
        raise NotRun("the limit of open files is too low to try others")
    for limits, count in (("ulimit -Hn 600; ulimit -Sn 128", 300), ("ulimit -n 128", 200)):  # raised at start; then idle ones make room
        with Server(c, limits=limits) as server:
            held = []
            for i in range(count):
                try:
                    held.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
                except OSError:
                    break
            server.healthy()
            assert server.ask("/v1/completions", GOOD)[0] == 200
            for there in held:
                there.close()


if __name__ == "__main__":
    main(CASES)
