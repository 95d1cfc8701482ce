#!/usr/bin/env python3
"""Pairs of a right and a wrong solution of the same problem, from GSM8K's example_model_solutions.jsonl.

    make_pairs.py SOLUTIONS.jsonl TRAIN.jsonl HELD_OUT.jsonl [--held-out N] [--longest CHARS]

A problem gives one pair: its shortest right and its shortest wrong solution, so that length tells little. The last N
problems that give a pair are held out. Standard library only.
"""
import argparse
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("solutions")
parser.add_argument("train")
parser.add_argument("held_out")
parser.add_argument("--held-out", dest="count", type=int, default=48)
parser.add_argument("--longest", type=int, default=320, help="characters of a solution or a question")
options = parser.parse_args()

pairs = []
with open(options.solutions, encoding="utf-8") as file:
    for line in file:
        row = json.loads(line)
        answers = [value for value in row.values() if isinstance(value, dict) and "is_correct" in value]
        right = sorted((a["solution"] for a in answers if a["is_correct"]), key=len)
        wrong = sorted((a["solution"] for a in answers if not a["is_correct"]), key=len)
        if right and wrong and max(len(right[0]), len(wrong[0]), len(row["question"])) <= options.longest:
            pairs.append({"question": row["question"], "chosen": right[0], "rejected": wrong[0]})

for path, rows in ((options.train, pairs[: -options.count]), (options.held_out, pairs[-options.count :])):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"{len(rows)} pairs in {path}")
