#!/usr/bin/env python3
"""Steps per hour with asynchronous generation, against generation and training in turns (docs/async.md).

A server of this script answers every generate call after a delay, a multiple of what a training step takes without any; so
it takes no processor away from training. Each run is timed from its third record to its last; of the rounds the fastest
counts. With --own completions come from `rlalgo vllm-serve` on the second processor instead, and the trainer has the first: one row, of the delay
that this is (time/generate of the run in turns ÷ the rest of its steps). At a temperature of 4 completions do not end early.

  python3 benchmarks/overlap.py --rlalgo build/release/bin/rlalgo [--steps 24] [--delays 0.25,0.5,1,2,4] [--rounds 3] [--own [--model PATH] [--micro-batch 2 --tokens 192]]
"""
import argparse
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "examples" / "quickstart"
WAYS = {
    "in turns": {},
    "streamed, staleness 0": {"async_prefetch": True, "prefetch_depth": 0, "streaming_partial_batch": True, "streaming_min_groups": 2},
    "depth 1": {"async_prefetch": True, "prefetch_depth": 1},
    "depth 2": {"async_prefetch": True, "prefetch_depth": 2},
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of an answer waits 40 ms for the acknowledgement of its beginning

    def log_message(self, *_):
        pass

    def answer(self, value):
        self.answer_bytes(json.dumps(value).encode())

    def answer_bytes(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        routes = ("/health/", "/generate/", "/http_update_weights/", "/reset_prefix_cache/")
        self.answer({"paths": {route: {} for route in routes}} if self.path == "/openapi.json" else {"status": "ok"})

    def do_POST(self):
        begin = time.monotonic()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/generate/":
            return self.answer({})
        asked = json.loads(body)
        draw, count, length = random.Random(len(body)), len(asked["prompts"]) * asked["n"], asked["max_tokens"]
        ids = [[draw.randrange(100, 200) for _ in range(length)] for _ in range(count)]
        reply = {"completion_ids": ids, "logprobs": [[[-4.6]] * length] * count,
                 "logprob_token_ids": [[[token] for token in row] for row in ids]}
        body = json.dumps(reply).encode()  # before the delay: this processor is the trainer's
        # A generation of a part of the prompts takes its part of the delay.
        left = self.server.delay * count / self.server.rows - (time.monotonic() - begin)
        if left > 0:
            time.sleep(left)
        return self.answer_bytes(body)


@contextlib.contextmanager
def own_server(options, folder):
    """rlalgo vllm-serve on the second processor → its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(["taskset", "-c", "1", options.rlalgo, "vllm-serve", options.model, "--port", str(port)], cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        for _ in range(600):
            with contextlib.suppress(OSError, http.client.HTTPException):
                asks = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                asks.request("GET", "/health/")
                if asks.getresponse().status == 200:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def seconds_per_step(options, port, folder, way):
    """Of one run, from its third record to its last."""
    output = folder / "out"
    config = {
        "base_model": options.model, "rl": "grpo", "learning_rate": 1e-5, "max_steps": options.steps, "output_dir": str(output),
        "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}],
        "micro_batch_size": options.micro_batch, "gradient_accumulation_steps": 4, "save_strategy": "no", "logging_steps": 1,
        "trl": {"num_generations": 4, "max_completion_length": options.tokens, "temperature": 4.0 if options.own else 1.0, "reward_funcs": ["soft_overlong_punishment_reward"],
                "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 4}}, "use_vllm": True, "vllm_mode": "server",
                "vllm_server_host": "127.0.0.1", "vllm_server_port": port, **WAYS[way]}}
    (folder / "config.yaml").write_text(json.dumps(config))
    subprocess.run(["rm", "-rf", output], check=True)
    processor, threads = (["taskset", "-c", "0"], {"OMP_NUM_THREADS": "1"}) if options.own else ([], {})
    process = subprocess.Popen([*processor, options.rlalgo, "train", folder / "config.yaml"], cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, env={**os.environ, **threads})
    records, seen, first, begun, ended = output / "metrics.jsonl", 0, 0, None, None
    while ended is None:
        if process.poll() not in (None, 0):
            sys.exit(process.stderr.read().decode())
        if records.exists() and (lines := records.read_text().count("\n")) > seen:
            seen, now = lines, time.monotonic()
            if seen >= 3 and begun is None:
                first, begun = seen, now
            ended = now if seen >= options.steps else None
        time.sleep(0.002)
    process.wait()
    return (ended - begun) / (options.steps - first)


def all_ways(options, port, folder):
    """Way → seconds per step, of the least disturbed round; rounds take turns, for what else runs here changes with time."""
    took = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            took[way].append(seconds_per_step(options, port, folder, way))
            if way == "in turns":
                lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()][2:]
                options.shares.append(statistics.median(line["time/generate"] / (line["time/step"] - line["time/generate"]) for line in lines))
    return {way: min(values) for way, values in took.items()}


def row(delay, best):
    ratio = " | ".join(f"{3600 / best[way]:.0f} ({best['in turns'] / best[way]:.2f}×)" for way in WAYS)
    print(f"| {delay:.3g} | {ratio} | {(1 + delay) / max(1.0, delay):.2f}× |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", required=True, type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--model", default=str(QUICKSTART / "model"), type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48, help="of a completion")
    parser.add_argument("--micro-batch", type=int, default=8, help="completions; a step has four times as many. Fewer and longer ones take longer to generate")
    parser.add_argument("--delays", default="0.25,0.5,1,2,4")
    parser.add_argument("--own", action="store_true", help="rlalgo vllm-serve on the second processor")
    options = parser.parse_args()
    options.shares = []
    head = "| delay ÷ step | " + " | ".join(WAYS) + " | ideal |\n|---|" + "---|" * (len(WAYS) + 1)
    if options.own:
        with tempfile.TemporaryDirectory() as name, own_server(options, name) as port:
            best = all_ways(options, port, pathlib.Path(name))
            print(head)
            return row(statistics.median(options.shares), best)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.delay, server.rows = 0.0, 4 * options.micro_batch
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        port = server.server_address[1]
        step = min(seconds_per_step(options, port, folder, "in turns") for _ in range(options.rounds))
        print(f"a step without delay: {step:.3f} s\n\n{head}")
        for delay in map(float, options.delays.split(",")):
            server.delay = delay * step
            row(delay, all_ways(options, port, folder))


if __name__ == "__main__":
    main()
