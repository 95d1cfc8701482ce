"""The generation server on a device of its own (tests/support/far_module.cpp): the CPU's answers, and its end when the device computes nothing
any more."""
import pathlib
import signal
import sys
import time
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402
from far_ranks_test import far  # noqa: E402
from serve_test import Server  # noqa: E402

CASES = {}
ASK = {"prompt": "3 + 4 =", "max_tokens": 5, "temperature": 0, "ignore_eos": True, "logprobs": 1}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def answers_as_on_the_cpu(c):
    seen = []
    for device, env in (("cpu", None), ("far", far(c))):
        server = Server(c, "--device", device, "--kv-cache-mb", 4, env=env)
        try:
            status, answer = server.ask("/v1/completions", ASK)
            assert status == 200, answer
            seen.append(answer["choices"][0])
        finally:
            code, lines = server.stop()
        assert code == 143, (code, lines)
    here, there = seen
    assert here["text"] == there["text"], seen
    for one, other in zip(here["logprobs"]["token_logprobs"], there["logprobs"]["token_logprobs"], strict=True):
        assert abs(one - other) < 1e-4, seen


@case
def a_device_that_computes_nothing_ends_the_server(c):
    server = Server(c, "--device", "far", "--kv-cache-mb", 4, env=far(c))
    try:
        assert server.ask("/v1/completions", ASK)[0] == 200
        server.process.send_signal(signal.SIGUSR2)
        begin = time.monotonic()
        status, answer = server.ask("/v1/completions", ASK)
        assert status in (500, 503) and "illegal memory access" in answer["error"]["message"], answer
        try:  # until it has ended, and not one that looks whole
            assert server.ask("/health")[0] == 503
            status, answer = server.ask("/v1/completions", ASK)
            assert status == 503 and "[rlalgo.serve.33]" in answer["error"]["message"], answer
        except (urllib.error.URLError, ConnectionError):
            pass
        _, rest = server.process.communicate(timeout=30)
        assert server.process.returncode == 1 and time.monotonic() - begin < 15, (server.process.returncode, rest)
        assert "[rlalgo.serve.33]" in rest, rest
    finally:
        server.process.kill()


if __name__ == "__main__":
    main(CASES)
