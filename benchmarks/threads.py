#!/usr/bin/env python3
"""What threads cost: a training step with other settings of OpenMP, held to one processor, and beside busy neighbours.

    benchmarks/threads.py [--program build/release/bin/rlalgo] [--model DIR] [--steps 6] [--rounds 3] [--neighbours 2]

Runs a configuration as a user starts it ("default"), with one thread, with OpenMP's own habit of spinning, and with two
threads on one processor ("pinned"), in turn, round after round, first alone and then beside programs that never sleep. A
figure is the median time of a step, over all steps but the first of all rounds: seconds, its ratio to the default alone, and
the processor seconds of the run for each second of it. DIR: another model than the quickstart's, with prompts of 8 problems.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = {
    "base_model": str(ROOT / "examples/quickstart/model"),
    "rl": "grpo",
    "datasets": [{"path": str(ROOT / "examples/quickstart/data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}],
    "trl": {"num_generations": 8, "max_completion_length": 32, "temperature": 1.0, "reward_funcs": ["builtin.gsm8k_accuracy"]},
    "micro_batch_size": 64, "gradient_accumulation_steps": 2,
    "learning_rate": 1e-12, "warmup_steps": 0, "logging_steps": 1, "save_strategy": "no",
}
TINY = {"micro_batch_size": 8, "gradient_accumulation_steps": 1}  # 8 rows a step
WAYS = {
    "default": ({}, ()),
    "one thread": ({"OMP_NUM_THREADS": "1"}, ()),
    "spinning": ({"GOMP_SPINCOUNT": "300000"}, ()),
    "pinned, 2 threads": ({"OMP_NUM_THREADS": "2"}, ("taskset", "-c", "0")),
    "pinned, 1 thread": ({"OMP_NUM_THREADS": "1"}, ("taskset", "-c", "0")),
}


def run(program, config, way, steps):
    """Seconds of each step but the first, and processor seconds per second of the run."""
    variables, prefix = WAYS[way]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
    with tempfile.TemporaryDirectory(prefix="rlalgo-threads-") as folder:
        path = pathlib.Path(folder) / "config.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*prefix, program, "train", str(path), "--max-steps", str(steps), "--output-dir", folder], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**clean, **variables})
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
        records = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    parts = ("time/generate", "time/score", "time/train", "time/optimizer")
    return [sum(r.get(p, 0.0) for p in parts) for r in records[1:] if "time/train" in r], used / wall


def measure(name, program, config, steps, rounds, neighbours):
    alone = None
    for count in (0, neighbours):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            found = {way: ([], []) for way in WAYS}
            for _ in range(rounds):
                for way, (seconds, used) in found.items():
                    times, share = run(program, config, way, steps)
                    seconds += times
                    used.append(share)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        for way, (seconds, used) in found.items():
            median = statistics.median(seconds)
            alone = alone or median
            print(f"{name:12} {count} neighbours  {way:18} {median:8.4f} s  {median / alone:5.2f}  {statistics.median(used):5.2f} processors",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=2)
    options = parser.parse_args()
    cases = {"tiny": {**CONFIG, **TINY}, "quickstart": CONFIG}
    if options.model:
        cases = {"model": {**CONFIG, **TINY, "base_model": options.model}}
    for name, config in cases.items():
        measure(name, os.path.abspath(options.program), config, options.steps, options.rounds, options.neighbours)


if __name__ == "__main__":
    main()
