#!/usr/bin/env python3
"""What the quickstart learns from completions of older weights, with and without each correction (docs/results.md).

    python3 benchmarks/trainer/staleness_learning.py [--rlalgo BINARY] [--seeds 1,2,3] [--steps 60] [--staleness 0,1,4,8]
                                                     [--learning-rate 5e-4] [--only NAME;NAME] [--work DIR]

Every generation is drawn by weights that are exactly so many updates behind those that it trains (the first ones: by those that the run
begins with): this script writes the schedule that `async_schedule: recorded` repeats. So a result is a function of the seed, whatever else the
machine does. Right answers: means over five steps and all seeds, and on the 200 held-out problems after the last step. Standard Python only.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples/quickstart/config.yaml"
MODE = "vllm_importance_sampling_mode"
# A ratio that may be nothing but 1: old log-probs are the trainer's own, and nothing tells old rows from new ones.
IGNORED = {MODE: "token_truncate", "vllm_importance_sampling_clip_min": 0.99999, "vllm_importance_sampling_clip_max": 1.00001}
CORRECTIONS = {
    "none": IGNORED,
    "token_truncate": {MODE: "token_truncate", "vllm_importance_sampling_cap": 3.0},
    "token_mask": {MODE: "token_mask", "vllm_importance_sampling_cap": 3.0},
    "sequence_truncate": {MODE: "sequence_truncate", "vllm_importance_sampling_cap": 3.0},
    "sequence_mask": {MODE: "sequence_mask", "vllm_importance_sampling_cap": 3.0},
    "clipped ratio to the generator": {"vllm_importance_sampling_correction": "false"},
    "none, off-policy mask": {**IGNORED, "off_policy_mask_threshold": 0.5},
    "token_truncate, off-policy mask": {MODE: "token_truncate", "vllm_importance_sampling_cap": 3.0, "off_policy_mask_threshold": 0.5},
}
WINDOWS = (1, 6, 16, 26, 41)  # five steps from there on; and the last five


def train(options, name, staleness, trl, seed):
    """Right answers in each window and held out, and the smallest and largest ratio before its bounds."""
    out = options.work / f"{name.replace(' ', '_').replace(',', '')}_{staleness}_{seed}"
    done = out / "measured.json"
    if done.exists():  # of an earlier call with this --work
        return json.loads(done.read_text())
    if staleness:
        schedule = options.work / f"staleness_{staleness}.jsonl"
        calls = ({"generation": n, "call": 0, "version": max(0, n - staleness)} for n in range(options.steps))
        schedule.write_text("".join(json.dumps(call) + "\n" for call in calls))
        trl = {**trl, "async_prefetch": "true", "prefetch_depth": staleness, "async_schedule": "recorded", "async_schedule_file": schedule}
    arguments = ["train", CONFIG, "--seed", seed, "--max-steps", options.steps, "--eval-steps", options.steps, "--output-dir", out,
                 "--learning-rate", options.learning_rate, "--use-tensorboard", "false"]
    for key, value in trl.items():
        arguments += [f"--trl.{key.replace('_', '-')}", value]
    ended = subprocess.run([options.rlalgo, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                           env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ended.returncode != 0:
        sys.exit(f"rlalgo {' '.join(map(str, arguments))}\n{ended.stderr[-1500:]}")
    records = [json.loads(line) for line in open(out / "metrics.jsonl")]
    steps = [r for r in records if "loss" in r and "rewards/gsm8k_accuracy/mean" in r]
    behind = {r["async/staleness/max"] for r in steps[staleness:]} if staleness else {0}
    if len(steps) != options.steps or behind != {staleness}:
        sys.exit(f"{name}: {len(steps)} steps of staleness {behind}")
    right = [r["rewards/gsm8k_accuracy/mean"] for r in steps]
    ratio = "sampling/importance_sampling_ratio/raw_"
    result = {"curve": [statistics.fmean(right[at - 1:at + 4]) for at in (*WINDOWS, options.steps - 4)],
              "held out": [r["eval_rewards/gsm8k_accuracy/mean"] for r in records if "eval_rewards/gsm8k_accuracy/mean" in r][-1],
              "raw": [min(r.get(ratio + "min", 1.0) for r in steps), max(r.get(ratio + "max", 1.0) for r in steps)]}
    done.write_text(json.dumps(result))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--staleness", default="0,1,4,8")
    parser.add_argument("--learning-rate", default="5e-4")
    parser.add_argument("--only", help="corrections, separated by semicolons")
    parser.add_argument("--work", type=pathlib.Path)
    options = parser.parse_args()
    options.work = (options.work or pathlib.Path(tempfile.mkdtemp())).resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    heads = [f"{at}–{at + 4}" for at in (*WINDOWS, options.steps - 4)]
    print("| updates behind | correction | " + " | ".join(heads) + " | held out |\n|" + "---|" * (len(heads) + 3), flush=True)
    for staleness in map(int, options.staleness.split(",")):
        # Of the weights that are trained all ratios are 1, and every correction is the same run.
        for name, trl in CORRECTIONS.items() if staleness else [("any", {})]:
            if staleness and options.only and name not in options.only.split(";"):
                continue
            results = [train(options, name, staleness, trl, seed) for seed in options.seeds.split(",")]
            cells = [f"{statistics.fmean(column):.2f}" for column in zip(*(r["curve"] for r in results))]
            held = [r["held out"] for r in results]
            print(f"| {staleness} | {name} | {' | '.join(cells)} | {statistics.fmean(held):.3f} ({min(held):.3f}–{max(held):.3f}) |", flush=True)


if __name__ == "__main__":
    main()
