#!/usr/bin/env python3
"""What replay and re-rolls buy where a reward is rare (docs/results.md): generated tokens until a threshold is reached.

    python3 benchmarks/trainer/rare_rewards.py [--rlalgo BINARY] [--seeds 1,2,3,4,5] [--steps 150] [--threshold 0.5] [--only NAME;NAME] [--work DIR]

The quickstart's model and problems; the reward is 1 where the last number is four more than the right answer, which the untrained model says
once in fifty completions. So most groups of eight teach nothing. Generation and training take turns, everything else is that of
examples/quickstart/config.yaml with a constant rate. Every five steps the 200 held-out problems are answered twice each; the first time
that the threshold is reached counts, in all tokens of completions drawn for training until then. Standard Python only.
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
REWARD = '''
import re

def four_more(completions, answer, **kwargs):
    out = []
    for completion, right in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        numbers = re.findall(r"#### *(-?[0-9]+)", text)
        out.append(float(bool(numbers) and int(numbers[-1]) == int(right) + 4))
    return out
'''
WAYS = {
    "neither": {},
    "replay": {"replay_buffer_size": 64},
    "replay, at most 10 updates old": {"replay_buffer_size": 64, "replay_max_age": 10},
    "re-rolls": {"reroll_start_fraction": 0.0, "reroll_max_groups": 4},
}
NAME = "rewards/four_more/mean"


def train(options, name, seed):
    """Share of rewarded completions at the start, tokens and step of the threshold (none: infinite), and the last evaluation."""
    out = options.work / f"{name.replace(' ', '_').replace(',', '')}_{seed}"
    done = out / "measured.json"
    if done.exists():  # of an earlier call with this --work
        return json.loads(done.read_text())
    config = {
        "base_model": str(ROOT / "examples/quickstart/model"), "rl": "grpo", "learning_rate": options.learning_rate, "lr_scheduler": "constant",
        "warmup_steps": 0, "max_steps": options.steps, "micro_batch_size": 64, "gradient_accumulation_steps": 2, "seed": seed,
        "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 5, "save_strategy": "no", "use_tensorboard": False, "output_dir": str(out),
        "datasets": [{"path": str(ROOT / "examples/quickstart/data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}],
        "test_datasets": [{"path": str(ROOT / "examples/quickstart/data/test.jsonl"), "type": "rewards.oai_gsm8k_transform"}],
        "trl": {"num_generations": 8, "num_generations_eval": 2, "max_completion_length": 32, "use_data_producer": True,
                "reward_funcs": ["rare.four_more"], **WAYS[name]}}
    (options.work / "rare.py").write_text(REWARD)
    path = options.work / f"{out.name}.yaml"
    path.write_text(json.dumps(config, indent=1))
    ended = subprocess.run([options.rlalgo, "train", str(path)], capture_output=True, text=True, cwd=options.work,
                           env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ended.returncode != 0:
        sys.exit(f"rlalgo train {path}\n{ended.stderr[-1500:]}")
    first, tokens, reached, last = 0.0, 0.0, (float("inf"), float("inf")), 0.0
    for record in map(json.loads, open(out / "metrics.jsonl")):
        if "loss" in record:
            tokens += record["completions/mean_length"] * 128
            first = record[NAME] if record["step"] == 1 else first
        if "eval_" + NAME in record:
            last = record["eval_" + NAME]
            if last >= options.threshold:
                reached = min(reached, (tokens, record["step"]))
    result = [first, *reached, last]
    done.write_text(json.dumps(result))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", type=lambda p: str(pathlib.Path(p).resolve()), default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--threshold", type=float, default=0.5)
    parser.add_argument("--only", help="ways, separated by semicolons")
    parser.add_argument("--work", type=pathlib.Path)
    options = parser.parse_args()
    options.work = (options.work or pathlib.Path(tempfile.mkdtemp())).resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"| | seeds that reach {options.threshold:g} | thousand tokens until then, median (range) | steps, median | last evaluation, mean |\n|---|---|---|---|---|")
    for name in WAYS:
        if options.only and name not in options.only.split(";"):
            continue
        first, tokens, steps, last = zip(*(train(options, name, int(seed)) for seed in options.seeds.split(",")))
        print(f"| {name} | {sum(t < float('inf') for t in tokens)} of {len(tokens)} | {statistics.median(tokens) / 1000:.0f} "
              f"({min(tokens) / 1000:.0f}–{max(tokens) / 1000:.0f}) | {statistics.median(steps):g} | {statistics.fmean(last):.2f} |", flush=True)
        print(f"    rewarded at the start: {statistics.fmean(first):.3f}", flush=True)


if __name__ == "__main__":
    main()
