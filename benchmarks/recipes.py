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
RECIPES = {
    "grpo": [],
    "bnpo": ["--trl.loss-type=bnpo"],
    "dr_grpo": ["--trl.loss-type=dr_grpo"],
    "dapo": ["--trl.loss-type=dapo", "--trl.epsilon-high=0.28"],
    "gspo": ["--trl.importance-sampling-level=sequence"],
    "cispo": ["--trl.loss-type=cispo"],
    "sapo": ["--trl.loss-type=sapo"],
    "vespo": ["--trl.loss-type=vespo"],
    "luspo": ["--trl.loss-type=luspo"],
    "gdpo": ["--rl=gdpo"],
    "rloo (beta 0)": ["--rl=rloo", "--trl.beta=0"],
    "reinforce++": ["--trl.advantage-estimator=reinforce_pp"],
    "grpo, two-sided": ["--trl.delta=2.0"],
    "grpo, top entropy": ["--trl.top-entropy-quantile=0.2"],
    "grpo, off-policy mask": ["--trl.off-policy-mask-threshold=0.5"],
    "grpo, entropy bonus": ["--trl.entropy-coef=0.001"],
    "grpo, beta 0.04": ["--trl.beta=0.04"],
}


def seconds(program, options, steps):
    with tempfile.TemporaryDirectory(prefix="rlalgo-recipes-") as folder:
        config = pathlib.Path(folder) / "config.yaml"
        lines = (ROOT / "examples/quickstart/config.yaml").read_text().splitlines()
        # RLOO has no loss_type, and there is nothing to evaluate.
        unwanted = ("eval_", "save_", "test_datasets") + (("loss_type",) if "--rl=rloo" in options else ())
        kept, skipping = [], False
        for line in lines:
            skipping = line.startswith("test_datasets") or (skipping and line.startswith(" "))
            if not skipping and not line.strip().startswith(unwanted):
                kept.append(line)
        config.write_text("\n".join(kept).replace("num_generations_eval", "# num_generations_eval"))
        subprocess.run([program, "train", str(config), "--max-steps", str(steps), "--save-strategy=no",
                        "--learning-rate=1e-12", "--output-dir", folder, *options], cwd=ROOT,
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
