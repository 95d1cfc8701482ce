#!/usr/bin/env python3
"""Our adapter in PEFT: the same log-probs, and how long it takes until the first is there.

    benchmarks/compare/peft_load.py --python VENV/bin/python --model DIR [--table benchmarks/measurements.md]

`rlalgo train` makes a LoRA adapter of the model (two DPO steps at a high rate, so that it matters). Then both sides start as fresh
processes, in turns, load model and adapter and score a text: `rlalgo score --lora-model-dir`, and Python with transformers and PEFT.
Log-probs must agree, and must differ from those without adapter. "process" is from the start of the process to its end on both sides;
the second row leaves the imports of Python out, and is our whole process still. The --python needs torch, transformers and peft.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

import compare
import trl_dpo
import trl_steps


def work(arguments):
    """Loads, scores, says so and ends: the process is what is timed."""
    wire = compare.Wire()
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    begin, before = time.perf_counter(), time.process_time()
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, arguments.adapter).eval()
    ids = torch.tensor([json.loads(arguments.ids)])

    def log_probs():
        logits = model(ids).logits[0, :-1].log_softmax(-1)
        return logits.gather(1, ids[0, 1:, None])[:, 0].tolist()

    with torch.inference_mode():
        first = log_probs()
        scored, computed = time.perf_counter() - begin, time.process_time()
        with model.disable_adapter():
            plain = log_probs()
    wire.send(scored=scored, processor_scored=computed - before, processor=computed, log_probs=first, without=plain, versions=compare.installed("peft", "transformers", "torch"), peak=compare.peak_bytes())


def main():
    if "--worker" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--worker", action="store_true")
        for name in ("--model", "--adapter", "--ids"):
            parser.add_argument(name)
        return work(parser.parse_args())
    parser = compare.options(__doc__, dtypes=False)
    parser.add_argument("--model", required=True, help="a checkpoint directory with float32 weights")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlalgo-compare-") as name:
        rows = compare_loading(arguments, pathlib.Path(name))
    compare.finish(arguments, rows)


def compare_loading(arguments, folder):
    source = trl_steps.rows_of(compare.ROOT / "examples/quickstart/data/train.jsonl", 3)
    data = compare.write_rows(folder / "pairs.jsonl", trl_dpo.pairs(source))
    compare.train(arguments.program, {"base_model": str(pathlib.Path(arguments.model).resolve()), "rl": "dpo", "datasets": [{"path": data, "type": trl_dpo.PLAIN}],
                                      "learning_rate": 1e-2, "micro_batch_size": 2, "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
                                      "lora_target_linear": True}, folder, arguments.threads, 2)
    adapter = str(folder / "out")
    text = source[0]["question"] + "\n" + source[0]["answer"]
    out = compare.run_ours(arguments.program, ["tokenize", "--model", arguments.model], 1, stdin=stdin_of(folder, {"text": text})).out
    ids = json.loads(out)["ids"]

    def ours():
        ran = compare.run_ours(arguments.program, ["score", "--model", arguments.model, "--lora-model-dir", adapter],
                                              arguments.threads, stdin=stdin_of(folder, {"ids": ids}))
        return {"process": ran.seconds, "processor": ran.processor, "peak": ran.peak, "log_probs": json.loads(ran.out)["log_probs"]}

    def theirs():
        begin = time.perf_counter()
        with compare.Worker(__file__, arguments.python, arguments.threads, ["--model", arguments.model, "--adapter", adapter, "--ids", json.dumps(ids)]) as worker:
            return {**worker.hello, "process": time.perf_counter() - begin}

    ours()
    theirs()  # files and imports are in the page cache
    with compare.Others() as others:
        mine, peers = compare.interleaved(ours, theirs, arguments.repeats)
    gap = max(compare.close("log-probs", a, b, 0, 2e-3) for a, b in zip(mine[-1]["log_probs"], peers[-1]["log_probs"]))
    compare.same("numbers of log-probs", len(mine[-1]["log_probs"]), len(peers[-1]["log_probs"]))
    moved = max(abs(a - b) for a, b in zip(peers[-1]["log_probs"], peers[-1]["without"]))
    if moved < 100 * max(gap, 1e-6):
        raise compare.Different(f"the adapter changes log-probs by {moved:.2g} only: too little to see whether it was read")
    checked = f"{len(ids) - 1} log-probs within {gap:.1g} nats; the adapter moves them by up to {moved:.2g}"
    rows = []
    for what, key, computed in (("process: load model and adapter, score", "process", "processor"),
                                ("loading and scoring, PEFT without its imports", "scored", "processor_scored")):
        used = [m["processor"] for m in mine], [p[computed] for p in peers]
        pair = [m["process"] for m in mine], [p[key] for p in peers]
        rows.append(compare.Row("peft_load.py", what, "float32", arguments.threads, *map(compare.Spread.of, pair),
                                compare.times_as_fast(*pair, more_is_better=False), compare.times_as_fast(*used, more_is_better=False), "s", 0, checked, others.processors, peers[-1]["versions"],
                                tuple(f"{max(s['peak'] for s in side) / 1e9:.2g} GB" for side in (mine, peers))))
    return rows


def stdin_of(folder, row):
    compare.write_rows(folder / "line.jsonl", [row])
    return open(folder / "line.jsonl")


if __name__ == "__main__":
    main()
