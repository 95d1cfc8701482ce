#!/usr/bin/env python3
"""A GRPO step beside TRL's: 4 prompts × 8 completions × 64 tokens, all weights, AdamW, micro-batches of 8.

    benchmarks/compare/trl_grpo.py --python VENV/bin/python [--model SMOLLM2 --data GSM8K/train.jsonl] [--table benchmarks/measurements.md]

Both sides generate (temperature 1, no end id, so all completions have 64 tokens), reward (share of even ids), score and train. Before
anything is timed TRL makes one step on our completions of our first step, from the same weights: loss, gradient norm, entropy, reward and
number of tokens must agree. The tiny model (examples/quickstart) runs on one thread. TRL's gradient checkpointing is off. The --python needs
torch, transformers and trl.
"""
import json
import shutil
import sys
import tempfile

import compare
import rewards
import trl_steps

GROUP, PROMPTS, TOKENS, MICRO = 8, 4, 64, 8


def work(arguments):
    wire = compare.Wire()
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    model, tokenizer = trl_steps.load(arguments)
    replay = {}

    class Trainer(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *rest, **more):
            if not replay:
                return super()._generate_single_turn(prompt_ids, *rest, **more)
            texts = self.processing_class.batch_decode(prompt_ids)
            return [replay[text].pop(0) for text in texts], None

    def before(asked):
        replay.clear()
        for row in asked.get("replay", []):
            replay.setdefault(row["prompt"], []).append(row["ids"])

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(**trl_steps.settings(arguments, folder), num_generations=arguments.group, max_completion_length=arguments.tokens,
                              temperature=1.0, loss_type="grpo", steps_per_generation=arguments.accumulation)
        prompts = Dataset.from_list(trl_steps.rows_of(arguments.data, PROMPTS))
        trl_steps.gated(Trainer(model=model, reward_funcs=rewards.even_ids, args=settings, train_dataset=prompts, processing_class=tokenizer), wire, before)


def configuration(data, reward_kwargs=None):
    """Of our side, without the model."""
    return {"rl": "grpo", "datasets": [{"path": data}], "learning_rate": 1e-6, "micro_batch_size": MICRO, "gradient_accumulation_steps": GROUP * PROMPTS // MICRO,
            "trl": {"num_generations": GROUP, "max_completion_length": TOKENS, "temperature": 1.0, "loss_type": "grpo", "beta": 0.0,
                    "reward_funcs": ["rewards.even_ids"], "reward_kwargs": reward_kwargs or {}}}


def one(arguments, name, model, threads, goal, dtype, folder):
    source = arguments.data if model == arguments.model else compare.ROOT / "examples/quickstart/data/train.jsonl"
    data = compare.write_rows(folder / "prompts.jsonl", [{"prompt": row["question"] + "\n"} for row in trl_steps.rows_of(source, PROMPTS)])
    shutil.copy(rewards.__file__, folder / "rewards.py")
    record = folder / "completions.jsonl"
    config = {**configuration(data, {"even_ids": {"record": str(record)}}), "bf16": dtype == "bfloat16"}
    options = ["--micro", MICRO, "--accumulation", GROUP * PROMPTS // MICRO, "--tokens", TOKENS, "--group", GROUP]

    def first_request(_):
        return {"replay": json.loads(record.read_text().splitlines()[0])}

    row, drawn = trl_steps.compare_steps(arguments, __file__, f"GRPO step, {name}, {GROUP * PROMPTS} × {TOKENS} tokens", goal, dtype, threads,
                                                compare.without_end(model, folder / "model"), data, config, options, folder, ("loss", "grad_norm", "entropy", "reward"),
                                                first_request)
    # Of the timed steps, which drew their own: every completion had its length.
    for metrics in drawn:
        compare.close("lengths of completions", metrics["completions/mean_length"], TOKENS, 0.02)
    return row


if __name__ == "__main__":
    if "--worker" in sys.argv:
        work(trl_steps.worker_arguments())
    else:
        trl_steps.every_model(trl_steps.parser(__doc__).parse_args(), __file__, one)
