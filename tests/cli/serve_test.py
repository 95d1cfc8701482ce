"""vllm-serve as a program: it answers, a training learns with its completions, and SIGTERM ends it in order."""
import json
import pathlib
import re
import signal
import sys
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


class Server:
    """The program on a port that is free; its lines about other things than the port are kept."""

    def __init__(self, c, *options):
        self.process = c.start("vllm-serve", MODEL, "--port", "0", *options)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("".join(self.lines))

    def ask(self, path, body=None, key=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.lines) + rest


@case
def answers_and_ends_in_order(c):
    server = Server(c, "--api-key", "k", "--served-model-name", "m")
    try:
        assert server.ask("/health/") == (200, {"status": "ok"})
        assert server.ask("/v1/models")[0] == 401
        assert server.ask("/v1/models", key="k")[1]["data"][0]["id"] == "m"
        status, whole = server.ask("/v1/completions", {"model": "m", "prompt": "3 + 4 =", "max_tokens": 5, "temperature": 0, "ignore_eos": True}, "k")
        assert status == 200 and whole["usage"]["completion_tokens"] == 5, whole
        row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 5, "temperature": 0}) + "\n"
        same = json.loads(c.run("generate", "--model", MODEL, stdin=row).expect(0).out)
        if same["finish_reason"] == "length":
            assert same["text"] == whole["choices"][0]["text"], (same, whole)
    finally:
        code, lines = server.stop()
    assert code == 143, (code, lines)


@case
def a_training_learns_with_its_completions(c):
    server = Server(c)
    try:
        before = server.ask("/weight_info")[1]["weight_version"]
        c.train({"trl": {"loss_type": "grpo", "num_generations": 4, "max_completion_length": 12, "use_vllm": True,
                         "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": server.port,
                         "vllm_server_timeout": 30, "reward_funcs": ["builtin.gsm8k_accuracy"]}}).expect(0)
        after = server.ask("/weight_info")[1]["weight_version"]
        assert before == "0" and int(after) > 0, (before, after)
    finally:
        server.stop()


@case
def what_it_does_not_start_with(c):
    c.run("vllm-serve").expect(2, "[rlalgo.cli.22]")
    c.run("vllm-serve", "none").expect(2, "[rlalgo.config.20]")
    c.run("vllm-serve", MODEL, "--host", "0.0.0.0", "--port", "0").expect(2, "[rlalgo.serve.22]", "--api-key")
    c.run("vllm-serve", MODEL, "--port", "99999").expect(2, "[rlalgo.cli.7]")
    c.run("vllm-serve", MODEL, "--dtype", "int4").expect(2, "[rlalgo.cli.7]", "bfloat16")
    server = Server(c)
    try:
        c.run("vllm-serve", MODEL, "--port", server.port).expect(1, "[rlalgo.http.8]")
    finally:
        server.stop()


if __name__ == "__main__":
    main(CASES)
