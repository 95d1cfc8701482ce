#!/usr/bin/env python3
"""Texts to ids and back beside the Python package tokenizers, one thread, in turns; ids and texts must be equal.

    benchmarks/compare/tokenizers_text.py --python VENV/bin/python --model DIR --data GSM8K/train.jsonl [--lines 2000]
                                          [--bench build/benchmark/bin/bench_text_tokenizer] [--table benchmarks/measurements.md]

"as JSON lines": `rlalgo tokenize` beside a Python program that does the same job (JSON lines in; ids and the text decoded from them, or
the text of ids, out as JSON lines). "library": with --bench, encode and decode alone, beside `encode_batch_fast` and `decode` on texts and
ids that are in memory. MB/s of text. (Not named tokenizers.py: it would hide the package that it compares with.)
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import compare


def work(arguments):
    wire = compare.Wire()
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(arguments.model, "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in open(arguments.data)]
    rows = [e.ids for e in tokenizer.encode_batch_fast(texts)]
    wire.send(versions=compare.installed("tokenizers"))
    for asked in wire.requests():
        begin = time.perf_counter()
        if asked["do"] == "encode":
            tokenizer.encode_batch_fast(texts)
        elif asked["do"] == "decode":
            for row in rows:
                tokenizer.decode(row, skip_special_tokens=False)
        else:  # a file of JSON lines into another
            with open(asked["source"]) as source, open(asked["target"], "w") as target:
                for line in source:
                    given = json.loads(line)
                    ids = given["ids"] if "ids" in given else tokenizer.encode(given["text"]).ids
                    target.write(json.dumps({"ids": ids, "rendered": given.get("text"),
                                             "decoded": tokenizer.decode(ids, skip_special_tokens=False)}) + "\n")
        wire.send(seconds=time.perf_counter() - begin)


def library(bench, what, model, text):
    """Seconds of a pass of our benchmark program over the lines of `text`."""
    ran = compare.run_ours(bench, [f"--benchmark_filter=^{what}$", "--benchmark_format=json", "--benchmark_min_time=0.3"], 1,
                                 environment={"RLALGO_TOKENIZER": os.path.abspath(model), "RLALGO_TEXT": text})
    found = json.loads(ran.out)["benchmarks"][0]
    return found["real_time"] / 1e3, None, found["cpu_time"] / 1e3


def main():
    if "--worker" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--worker", action="store_true")
        parser.add_argument("--model")
        parser.add_argument("--data")
        return work(parser.parse_args())
    parser = compare.options(__doc__, dtypes=False, repeats=5, threads=1)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--bench", help="bench_text_tokenizer of the preset benchmark")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rlalgo-compare-") as folder:
        path = lambda name: os.path.join(folder, name)
        with open(arguments.data) as file:
            texts = [json.loads(line)["question"].replace("\n", " ") + "\n" for _, line in zip(range(arguments.lines), file)]
        size = sum(len(t.encode()) for t in texts) / 1e6
        with open(path("texts.jsonl"), "w") as file:
            file.writelines(json.dumps({"text": t}) + "\n" for t in texts)
        with open(path("plain"), "w") as file:
            file.writelines(texts)
        with compare.Worker(__file__, arguments.python, 1, ["--model", arguments.model, "--data", path("texts.jsonl")]) as worker, \
                compare.Lines(arguments.program, ["tokenize", "--model", arguments.model, "--no-special-tokens"], 1) as verb:
            for what, source in (("encode and decode, as JSON lines", "texts.jsonl"), ("decode, as JSON lines", "ids.jsonl")):
                text = open(path(source), "rb").read()

                def ours():
                    begin, before = time.perf_counter(), compare.processor_seconds(verb.process.pid)
                    answers = verb.ask_bytes(text, len(texts))
                    return time.perf_counter() - begin, answers, compare.processor_seconds(verb.process.pid) - before

                def theirs():
                    return work_of(worker.ask(do="lines", source=path(source), target=path("theirs")))

                with compare.Others({worker.process.pid, verb.process.pid}) as others:
                    mine, peers = compare.interleaved(ours, theirs, arguments.repeats)
                found, expected = [json.loads(line) for line in mine[-1][1]], [json.loads(line) for line in open(path("theirs"))]
                for a, b, given in zip(found, expected, texts):
                    compare.same("ids", a["ids"], b["ids"])
                    compare.same("texts of ids", a["decoded"], b["decoded"])
                    compare.same("texts encoded and decoded", a["decoded"], given)
                tokens = sum(len(a["ids"]) for a in found)
                checked = f"{tokens:,} ids and {len(texts):,} texts equal"
                rows.append(row_of(what, size, mine, peers, checked, others, worker))
                compare.write_rows(pathlib.Path(path("ids.jsonl")), [{"ids": a["ids"]} for a in found])
            for what in ("encode", "decode") if arguments.bench else ():
                with compare.Others({worker.process.pid}) as others:
                    mine, peers = compare.interleaved(lambda: library(arguments.bench, what, arguments.model, path("plain")),
                                                      lambda: work_of(worker.ask(do=what)), arguments.repeats)
                rows.append(row_of(f"{what}, library", size, mine, peers, "the same texts", others, worker))
    compare.finish(arguments, rows)


def work_of(reply):
    return reply["seconds"], None, reply["processor"]


def row_of(what, size, mine, peers, checked, others, worker):
    rate = [[size / seconds for seconds, *_ in side] for side in (mine, peers)]
    row = compare.Row("tokenizers_text.py", what, "–", 1, *map(compare.Spread.of, rate), compare.times_as_fast(*rate, more_is_better=True),
                      compare.times_as_fast(*([max(0.01, turn[2]) for turn in side] for side in (mine, peers)), more_is_better=False), "MB/s", 0, checked,
                      others.processors, worker.hello["versions"])
    print(f"{what}: {row.ours} and {row.theirs} MB/s, {row.ratio} times as fast, by processor time {row.processor}", flush=True)
    return row


if __name__ == "__main__":
    main()
