#!/usr/bin/env python3
"""What a step costs with every recipe, relative to plain grpo.

    benchmarks/recipes.py [--program build/release/bin/rlalgo] [--steps 8] [--rounds 5]

Runs the quickstart's configuration with each recipe in turn, round after round, so that a busy moment hits all of them.
The learning rate is next to nothing: every recipe gets the same completions. A run's figure is the median time of a step
without generating and scoring rewards (log-probs, loss, gradient, optimizer), a recipe's the smallest over the rounds.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The quickstart without its evaluation, and next to nothing to learn.
QUICKSTART = {
    "base_model": "examples/quickstart/model",
    "rl": "grpo",
    "datasets": [{"path": "examples/quickstart/data/train.jsonl", "type": "rewards.oai_gsm8k_transform"}],
    "trl": {"num_generations": 8, "max_completion_length": 32, "temperature": 1.0,
            "reward_funcs": ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"], "reward_weights": [1.0, 0.2]},
    "micro_batch_size": 64, "gradient_accumulation_steps": 2,
    "learning_rate": 1e-12, "warmup_steps": 0, "logging_steps": 1, "save_strategy": "no",
}
GRPO = ["--trl.loss-type=grpo"]
RECIPES = {
    "grpo": GRPO,
    "bnpo": ["--trl.loss-type=bnpo"],
    "dr_grpo": ["--trl.loss-type=dr_grpo"],
    "dapo": ["--trl.loss-type=dapo", "--trl.epsilon-high=0.28"],
    "gspo": GRPO + ["--trl.importance-sampling-level=sequence"],
    "cispo": ["--trl.loss-type=cispo"],
    "sapo": ["--trl.loss-type=sapo"],
    "vespo": ["--trl.loss-type=vespo"],
    "luspo": ["--trl.loss-type=luspo"],
    "gdpo": GRPO + ["--rl=gdpo"],
    "rloo (beta 0)": ["--rl=rloo", "--trl.beta=0"],
    "reinforce++": GRPO + ["--trl.advantage-estimator=reinforce_pp"],
    "grpo, two-sided": GRPO + ["--trl.delta=2.0"],
    "grpo, top entropy": GRPO + ["--trl.top-entropy-quantile=0.2"],
    "grpo, off-policy mask": GRPO + ["--trl.off-policy-mask-threshold=0.5"],
    "grpo, entropy bonus": GRPO + ["--trl.entropy-coef=0.001"],
    "grpo, beta 0.04": GRPO + ["--trl.beta=0.04"],
}


def seconds(program, options, steps):
    with tempfile.TemporaryDirectory(prefix="rlalgo-recipes-") as folder:
        config = pathlib.Path(folder) / "config.yaml"
        config.write_text(json.dumps(QUICKSTART))  # JSON is YAML
        subprocess.run([program, "train", str(config), "--max-steps", str(steps), "--output-dir", folder, *options], cwd=ROOT,
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        records = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    parts = ["time/score", "time/train", "time/optimizer"]
    return statistics.median(sum(r.get(p, 0.0) for p in parts) for r in records[1:] if "time/train" in r)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    best = {}
    for _ in range(chosen.rounds):
        for name, options in RECIPES.items():
            best[name] = min(best.get(name, float("inf")), seconds(chosen.program, options, chosen.steps))
    print("| recipe | ms | relative |\n|---|---|---|")
    for name, value in best.items():
        print(f"| {name} | {1000 * value:.0f} | {value / best['grpo']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
