#!/usr/bin/env python3
"""What `rlalgo generate` and `score` make of many lines: a file of N prompts, beside one line with "n": N and beside the
same file with one completion at a time.

    benchmarks/inference/lines.py --model DIR [--program build/release/bin/rlalgo] [--lines 16] [--tokens 128] [--rounds 3]

Seconds are of the whole process less those of one that generates a single token; of the rounds, in turn, the median.
Tokens are drawn at temperature 5, so that hardly a completion ends early.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def timed(program, verb, model, rows, *options):
    begin = time.monotonic()
    done = subprocess.run([program, verb, "--model", model, *options], input="".join(json.dumps(r) + "\n" for r in rows),
                          capture_output=True, text=True, check=True)
    seconds = time.monotonic() - begin
    return seconds, [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--lines", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    program = os.path.abspath(o.program)
    problems = [json.loads(line) for line in (ROOT / "examples/quickstart/data/train.jsonl").read_text().splitlines()[:o.lines]]
    rows = [{"prompt": p["question"], "max_new_tokens": o.tokens, "temperature": 5.0, "seed": i} for i, p in enumerate(problems)]
    ways = {"many lines": (rows, ()), "one line, n": ([dict(rows[0], n=o.lines)], ()), "many lines, --batch 1": (rows, ("--batch", "1"))}
    found = {way: [] for way in ways}
    for _ in range(o.rounds):
        start, _ = timed(program, "generate", o.model, [dict(rows[0], max_new_tokens=1)])
        for way, (lines, options) in ways.items():
            seconds, out = timed(program, "generate", o.model, lines, *options)
            tokens = sum(len(a["ids"]) for a in out)
            found[way].append((seconds - start, tokens / (seconds - start), tokens))
    for way, all_ in found.items():
        middle = sorted(all_)[len(all_) // 2]
        print(f"generate  {way:22} {middle[0]:7.2f} s  {middle[1]:7.1f} tokens/s  ({middle[2]} tokens)", flush=True)
    answered = timed(program, "generate", o.model, rows)[1]
    given = [{"prompt": r["prompt"], "completion_ids": a["ids"]} for r, a in zip(rows, answered)]
    for way, options in {"default": (), "--batch 1": ("--batch", "1"), "--engine": ("--engine",)}.items():
        seconds = [timed(program, "score", o.model, given, *options)[0] - timed(program, "score", o.model, [{"ids": [1, 2]}])[0]
                   for _ in range(o.rounds)]
        print(f"score     {way:22} {statistics.median(seconds):7.2f} s", flush=True)


if __name__ == "__main__":
    main()
