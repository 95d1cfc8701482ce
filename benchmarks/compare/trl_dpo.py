#!/usr/bin/env python3
"""A DPO step beside TRL's: 8 pairs of GSM8K solutions, all weights, AdamW, micro-batches of 4 pairs.

    benchmarks/compare/trl_dpo.py --python VENV/bin/python [--model SMOLLM2 --data GSM8K/train.jsonl] [--table benchmarks/measurements.md]

A pair is a question, its solution and that of the next question; the reference is computed in the step. Loss, gradient norm, log-probs
and number of tokens of the first step must agree. The tiny model (examples/quickstart) runs on one thread. TRL's gradient checkpointing is off. The
--python needs torch, transformers and trl.
"""
import sys
import tempfile

import compare
import trl_steps

PAIRS, MICRO = 8, 4


def pairs(rows):
    return [{"prompt": a["question"] + "\n", "chosen": a["answer"], "rejected": b["answer"]} for a, b in zip(rows, rows[1:])]


def work(arguments):
    wire = compare.Wire()
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer
    model, tokenizer = trl_steps.load(arguments)
    with tempfile.TemporaryDirectory() as folder:
        settings = DPOConfig(**{**trl_steps.settings(arguments, folder), "beta": 0.1}, max_length=None)
        data = Dataset.from_list(trl_steps.rows_of(arguments.data, PAIRS))
        trl_steps.gated(DPOTrainer(model=model, args=settings, train_dataset=data, processing_class=tokenizer), wire)


def configuration(data):
    """Of our side, without the model."""
    return {"rl": "dpo", "datasets": [{"path": data, "type": PLAIN}], "learning_rate": 1e-6, "rl_beta": 0.1, "micro_batch_size": MICRO,
            "gradient_accumulation_steps": PAIRS // MICRO, "sequence_len": 1024}


def one(arguments, name, model, threads, goal, dtype, folder):
    source = arguments.data if model == arguments.model else compare.ROOT / "examples/quickstart/data/train.jsonl"
    data = compare.write_rows(folder / "pairs.jsonl", pairs(trl_steps.rows_of(source, PAIRS + 1)))
    config = {**configuration(data), "bf16": dtype == "bfloat16"}
    return trl_steps.compare_steps(arguments, __file__, f"DPO step, {name}, {PAIRS} pairs", goal, dtype, threads, model, data, config,
                                   ["--micro", MICRO, "--accumulation", PAIRS // MICRO], folder, ("loss", "grad_norm", "logps/chosen"))[0]


# Texts as they are, without a chat template.
PLAIN = {"field_prompt": "prompt", "field_chosen": "chosen", "field_rejected": "rejected", "prompt_format": "{prompt}", "chosen_format": "{chosen}",
         "rejected_format": "{rejected}"}

if __name__ == "__main__":
    if "--worker" in sys.argv:
        work(trl_steps.worker_arguments())
    else:
        trl_steps.every_model(trl_steps.parser(__doc__).parse_args(), __file__, one)
