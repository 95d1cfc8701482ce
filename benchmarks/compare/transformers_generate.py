#!/usr/bin/env python3
"""Decoding beside transformers' generate(): greedy, 1, 16 and 64 sequences × 128 tokens, in turns, texts compared.

    benchmarks/compare/transformers_generate.py --python VENV/bin/python --model DIR [--table benchmarks/measurements.md]

Ours is one running `rlalgo generate`, JSON lines in and out within the timing; transformers' is generate() on a batch of ids that is
there as a tensor (its default cache and attention). The --python needs torch and transformers.
"""
import argparse
import sys
import tempfile
import time

import compare
import decode


def work(arguments):
    wire = compare.Wire()
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(int(arguments.threads or torch.get_num_threads()))
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, arguments.dtype)).eval()
    wire.send(versions=compare.installed("transformers", "torch"))
    for asked in wire.requests():
        with torch.inference_mode():
            if asked["do"] == "margin":
                logits = model(torch.tensor([asked["ids"]])).logits[0, -1].float()
                wire.send(margin=float(logits[asked["theirs"]] - logits[asked["ours"]]))
                continue
            ids = torch.tensor(asked["prompts"])
            begin = time.perf_counter()
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=asked["tokens"], min_new_tokens=asked["tokens"],
                                 do_sample=False, pad_token_id=0)
            wire.send(seconds=time.perf_counter() - begin, ids=out[:, ids.shape[1]:].tolist())


def main():
    if "--worker" in sys.argv:
        parser = argparse.ArgumentParser()
        for name in ("--model", "--dtype", "--threads"):
            parser.add_argument(name)
        parser.add_argument("--worker", action="store_true")
        return work(parser.parse_args())
    arguments = decode.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="rlalgo-compare-") as folder:
        for row in decode.run(arguments, __file__, "greedy decoding", 4, folder):
            compare.finish(arguments, [row])


if __name__ == "__main__":
    main()
