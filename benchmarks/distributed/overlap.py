#!/usr/bin/env python3
"""What the sum of gradients costs a step of several ranks that hold the whole model, and what of it is behind the backward pass.

    overlap.py MODEL [--rlalgo PROGRAM] [--against PROGRAM] [--ranks 2] [--micro-batches 1] [--steps 4] [--rounds 3] [--length 128]

Trains MODEL (a Hugging Face directory) some steps on made-up preference pairs (`rl: orpo`, one pair a micro-batch), each program in
turn, and prints the medians over all steps but the first of each run: seconds of a step, of its training and of what follows it
(sums that were not there yet, clipping, optimizer), of the thread that sums, and of the wait for it at the end. Programs of the same
arithmetic must print the same losses and gradient norms to the last digit: exit status 1 where they do not.
Only the standard library of Python is needed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TIMES = ("step", "train", "optimizer", "sums", "sums_wait")


def train(program, model, ranks, micro_batches, steps, length):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = " ".join(f"word{i % 97}" for i in range(length))
        rows = [{"prompt": f"{i}:", "chosen": f" {words} {i}", "rejected": f" {words} {i + 1} no"} for i in range(ranks * micro_batches * steps)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "config.yaml").write_text(json.dumps(
            {"base_model": str(model), "rl": "orpo", "datasets": [{"path": "rows.jsonl"}], "learning_rate": 1e-6, "micro_batch_size": 1,
             "gradient_accumulation_steps": micro_batches, "max_steps": steps, "logging_steps": 1, "save_strategy": "no", "output_dir": "out",
             "sequence_len": 4 * length}))
        done = subprocess.run([program, "train", "config.yaml", "--nproc-per-node", str(ranks)], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr[-2000:])
        return [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--against")
    for name, value in (("ranks", 2), ("micro-batches", 1), ("steps", 4), ("rounds", 3), ("length", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    programs = [os.path.abspath(one) for one in (given.rlalgo, given.against) if one]
    times, numbers = {one: [] for one in programs}, {one: [] for one in programs}
    for _ in range(given.rounds):
        for program in programs:
            records = train(program, given.model.resolve(), given.ranks, given.micro_batches, given.steps, given.length)
            times[program] += records[1:]
            numbers[program].append([(r["loss"], r["grad_norm"]) for r in records if "loss" in r and "grad_norm" in r])
    print("| program | " + " | ".join(f"time/{one}" for one in TIMES) + " |\n" + "|---" * (len(TIMES) + 1) + "|")
    for program in programs:
        known = [[r[f"time/{one}"] for r in times[program] if f"time/{one}" in r] for one in TIMES]
        print(f"| {program} | " + " | ".join(f"{statistics.median(one):.3f}" if one else "" for one in known) + " |")
    runs = [run for program in programs for run in numbers[program]]
    same = all(run == runs[0] for run in runs)
    print(f"losses and gradient norms of {len(runs)} runs: {'the same' if same else 'others'}, {runs[0]}")
    return 0 if same and runs[0] else 1


if __name__ == "__main__":
    sys.exit(main())
