#!/usr/bin/env python3
"""The same work as benchmarks/text/tokenizer.cpp with the Python package tokenizers, on one thread,
in processor time as Google Benchmark counts it.

    TOKENIZERS_PARALLELISM=false python3 benchmarks/text/tokenizer_baseline.py MODEL_DIRECTORY TEXT_FILE
"""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402


def best(work, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main():
    path = os.path.join(sys.argv[1], "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    rows = [line for line in open(sys.argv[2], encoding="utf-8", newline="\n")]
    size = sum(len(row.encode()) for row in rows)
    ids = [tokenizer.encode(row).ids for row in rows]
    print(f"load {best(lambda: Tokenizer.from_file(path), 3) * 1e3:.0f} ms")
    seconds = best(lambda: [tokenizer.encode(row) for row in rows])
    print(f"encode {size / seconds / 1e6:.2f} MB/s, {sum(map(len, ids)) / seconds / 1e6:.2f} M tokens/s")
    seconds = best(lambda: tokenizer.encode_batch_fast(rows))
    print(f"encode_batch_fast {size / seconds / 1e6:.2f} MB/s, {sum(map(len, ids)) / seconds / 1e6:.2f} M tokens/s")
    seconds = best(lambda: [tokenizer.decode(row) for row in ids])
    print(f"decode {size / seconds / 1e6:.2f} MB/s")


main()
