#!/usr/bin/env python3
"""What energy-based fine-tuning teaches the quickstart's model, beside the likelihood alone and beside GRPO.

    python3 benchmarks/trainer/ebft_learning.py [--rlalgo BINARY] [--seeds 1,2,3] [--steps 100] [--only NAME,NAME] [--work DIR]

Every recipe trains on the 2,000 problems of examples/quickstart/data/train.jsonl, 16 of them a step; all results are measured alike on the 200
held-out ones: mismatch (CFM, features of the untrained model, not whitened) and alignment of blocks at every second token of the solutions,
likelihood of the solutions (nats a token), and the share of right answers of four samples at temperature 1. Standard Python only.
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
QUICKSTART = ROOT / "examples/quickstart"
BLOCKS = dict(mode="strided", stride=2, context_length=1, generate_max_len=4, n_samples_per_prompt=4, temperature=1.0)
TRAIN = dict(lr_scheduler="cosine", warmup_steps=0, learning_rate=5e-4, logging_steps=1, save_strategy="no", use_tensorboard=False)
STRIDED = dict(rl="ebft", micro_batch_size=16, sequence_len=128)
COMPLETIONS = dict(rl="ebft", micro_batch_size=64, gradient_accumulation_steps=2, sequence_len=128,
                   trl=dict(num_generations=8, max_completion_length=32, temperature=1.0))
RECIPES = {
    "likelihood alone": dict(STRIDED, ebft=dict(BLOCKS, rl_coef=0.0, ce_coef=1.0)),
    "ebft": dict(STRIDED, ebft=dict(BLOCKS, use_whitening=True)),
    "ebft, 0.1 likelihood": dict(STRIDED, ebft=dict(BLOCKS, use_whitening=True, ce_coef=0.1)),
    "ebft, not whitened": dict(STRIDED, ebft=dict(BLOCKS)),
    "ebft, completions": dict(COMPLETIONS, ebft=dict(mode="structured", use_whitening=True, embed_method="completion_mean")),
    "grpo": None,  # examples/quickstart/config.yaml
}


def run(options, *arguments):
    done = subprocess.run([options.rlalgo, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"rlalgo {' '.join(map(str, arguments))}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def configuration(work, name, recipe, split_type):
    strided = recipe["ebft"]["mode"] == "strided"
    data = lambda split: [{"path": str(work / f"{split}.{'texts' if strided else 'answers'}.jsonl"),
                           "type": "ebft_strided_structured.transform" if strided else "ebft_opencode.transform"}]
    config = {**TRAIN, **recipe, "base_model": str(QUICKSTART / "model"), "datasets": data("train"), "output_dir": str(work / "out")}
    if split_type == "evaluate":
        config["test_datasets"] = data("test")
    path = work / f"{name.replace(' ', '_').replace(',', '')}.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def make_rows(work):
    for split in ("train", "test"):
        problems = [json.loads(x) for x in open(QUICKSTART / f"data/{split}.jsonl")]
        # As the model has seen them: a turn of the user, and an answer with its end token.
        texts = [{"input": f"<|im_start|>user\n{p['question']}<|im_end|>\n<|im_start|>assistant\n",
                  "output": p["answer"] + "<|im_end|>"} for p in problems]
        answers = [{"input": p["question"], "output": p["answer"]} for p in problems]
        for kind, rows in (("texts", texts), ("answers", answers)):
            (work / f"{split}.{kind}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def measure(options, work, checkpoint):
    """mismatch, alignment, likelihood and accuracy of a directory with a model, on the held-out problems"""
    recipe = dict(STRIDED, micro_batch_size=8, ebft=dict(BLOCKS, ce_coef=1e-9, feature_model=str(QUICKSTART / "model")))
    blocks = json.loads(run(options, "evaluate", configuration(work, "evaluate", recipe, "evaluate"), "--checkpoint", checkpoint,
                            "--output", work / "blocks.json"))
    answers = json.loads(run(options, "evaluate", QUICKSTART / "config.yaml", "--checkpoint", checkpoint, "--output", work / "answers.json",
                             "--output-dir", work / "out", "--trl.num_generations_eval", "4"))
    return (blocks["eval_ebft/cfm_loss"], blocks["eval_ebft/alignment"], blocks["eval_ebft/ce_loss"], answers["eval_rewards/gsm8k_accuracy/mean"])


def curve(directory, name):
    metrics = [json.loads(x) for x in open(directory / "metrics.jsonl")]
    values = [m[name] for m in metrics if name in m and "loss" in m]
    return [statistics.fmean(values[i:i + 5]) for i in (0, 5, 25, 45, len(values) - 5) if i + 5 <= len(values)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only")
    parser.add_argument("--work", type=pathlib.Path)
    options = parser.parse_args()
    work = options.work or pathlib.Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    make_rows(work)
    row = lambda name, values: print(f"| {name} | " + " | ".join(values) + " |", flush=True)
    row("recipe", ["mismatch", "alignment", "likelihood, nats", "right answers"])
    row("---", ["---"] * 4)
    digits = (5, 4, 4, 3)
    row("untrained", [f"{x:.{d}f}" for x, d in zip(measure(options, work, QUICKSTART / "model"), digits)])
    for name, recipe in RECIPES.items():
        if options.only and name not in options.only.split(";"):
            continue
        results, lines = [], []
        for seed in options.seeds.split(","):
            out = work / f"{name.replace(' ', '_').replace(',', '')}_{seed}"
            done = out / "measured.json"
            if done.exists():  # of an earlier call with this --work
                results.append(json.loads(done.read_text()))
                continue
            config = QUICKSTART / "config.yaml" if recipe is None else configuration(work, name, recipe, "train")
            extra = ["--eval-steps", options.steps, "--use-tensorboard", "false"] if recipe is None else []
            run(options, "train", config, "--seed", seed, "--max-steps", options.steps, "--output-dir", out, *extra)
            results.append(measure(options, work, out))
            done.write_text(json.dumps(results[-1]))
            if recipe is not None:
                lines.append(curve(out, "ebft/alignment"))
        columns = list(zip(*results))
        row(name, [f"{statistics.fmean(c):.{d}f} ({min(c):.{d}f}–{max(c):.{d}f})" for c, d in zip(columns, digits)])
        if lines:
            means = ", ".join(f"{statistics.fmean(c):.3f}" for c in zip(*lines))
            print(f"    alignment while training, steps 1–5, 6–10, 26–30, 46–50, last five: {means}", flush=True)


if __name__ == "__main__":
    main()
