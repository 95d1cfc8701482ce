#!/usr/bin/env python3
"""Trains on one long row with its tokens on one rank and on several, and prints memory and time of each.

    context.py --model DIRECTORY [--rlalgo PROGRAM] [--tokens 4096] [--contexts 1,2] [--steps 3] [--threads 1] [--set KEY=JSON …]

Each run is `rl: simpo` with `adapter: lora` on pairs of TOKENS tokens (a long prompt, two answers), one pair a step. Prints the table of
docs/distributed.md: per number of ranks the largest resident memory of a rank (VmHWM) and the seconds of a step (the median without
the first). PROGRAM is by default build/release/bin/rlalgo. Only the standard library of Python is needed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = ("the cat sat on the mat and looked at a bird that sang in the old tree by the river while rain fell on the roof of the house "
         "where we had lived for many years before the war").split()


def text(words, seed):
    return " ".join(WORDS[(i * 7 + i // 5 + seed) % len(WORDS)] for i in range(words))


def memory(pid, name="VmHWM"):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def ranks_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or [pid]
    except OSError:
        return []


def run(program, folder, given, size, threads):
    settings = {"base_model": str(pathlib.Path(given.model).resolve()), "rl": "simpo", "adapter": "lora", "lora_r": 16, "lora_alpha": 16,
                "lora_target_linear": True, "datasets": [{"path": "rows.jsonl"}], "micro_batch_size": 1, "gradient_accumulation_steps": 1,
                "sequence_len": given.tokens + 64, "learning_rate": 1e-5, "max_steps": given.steps, "logging_steps": 1, "save_strategy": "no",
                "output_dir": f"out-{size}", "ddp_timeout": 600}
    if size > 1:
        settings["context_parallel_size"] = size
    for one in given.set:
        key, _, value = one.partition("=")
        settings[key] = json.loads(value)
    (folder / f"{size}.yaml").write_text(json.dumps(settings))
    words = [str(program), "train", f"{size}.yaml"] + (["--nproc-per-node", str(size)] if size > 1 else [])
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    peak = {}
    while process.poll() is None:
        for pid in ranks_of(process.pid):
            peak[pid] = max(peak.get(pid, 0.0), memory(pid))
        time.sleep(0.02)
    if process.returncode != 0:
        raise RuntimeError(process.stdout.read()[-2000:])
    lines = [json.loads(line) for line in (folder / f"out-{size}/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    seconds = [line["time/train"] for line in steps][1:]
    return {"peak": [round(value) for value in peak.values()], "seconds": statistics.median(seconds), "losses": [line["loss"] for line in steps],
            "norms": [line["grad_norm"] for line in steps]}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--contexts", default="1,2")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--set", action="append", default=[], help="a key of the configuration, KEY=JSON")
    given = parser.parse_args(arguments)
    program = pathlib.Path(given.rlalgo).resolve()
    answer = 128
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = [{"prompt": text(given.tokens - 2 * answer, i), "chosen": " " + text(answer, i + 1), "rejected": " " + text(answer, i + 2)}
                for i in range(given.steps)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print("| ranks | largest memory of a rank | seconds of a step | loss, gradient norm of the last |\n|---|---|---|---|")
        for size in map(int, given.contexts.split(",")):
            found = run(program, folder, given, size, given.threads)
            print(f"| {size} | {max(found['peak'])} MB | {found['seconds']:.1f} | {found['losses'][-1]:.7f}, {found['norms'][-1]:.7f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
