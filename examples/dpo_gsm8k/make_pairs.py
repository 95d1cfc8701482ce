#!/usr/bin/env python3
"""Pairs of a right and a wrong solution of the same problem, from GSM8K's example_model_solutions.jsonl.

    make_pairs.py SOLUTIONS.jsonl TRAIN.jsonl HELD_OUT.jsonl [--held-out N] [--longest CHARS]
                  [--choose shortest|gap] [--unpaired]

A problem gives one pair: its shortest right and its shortest wrong solution, so that length tells little; or with
--choose gap the right solution of the strongest model that has one and the wrong one of the weakest. The last N problems
that give a pair are held out. --unpaired writes each answer as a row with a label, for KTO. Standard library only.
"""
import argparse
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("solutions")
parser.add_argument("train")
parser.add_argument("held_out")
parser.add_argument("--held-out", dest="count", type=int, default=48)
parser.add_argument("--longest", type=int, default=320, help="characters of a solution or a question")
parser.add_argument("--choose", choices=["shortest", "gap"], default="shortest")
parser.add_argument("--unpaired", action="store_true", help="rows {question, completion, label} instead of pairs")
options = parser.parse_args()
MODELS = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]

pairs = []
with open(options.solutions, encoding="utf-8") as file:
    for line in file:
        row = json.loads(line)
        answers = [row[model] for model in MODELS if model in row]  # weakest first
        right = [a["solution"] for a in answers if a["is_correct"]]
        wrong = [a["solution"] for a in answers if not a["is_correct"]]
        if options.choose == "shortest":
            right, wrong = sorted(right, key=len), sorted(wrong, key=len)
        else:
            right.reverse()
        if right and wrong and max(len(right[0]), len(wrong[0]), len(row["question"])) <= options.longest:
            pairs.append({"question": row["question"], "chosen": right[0], "rejected": wrong[0]})


def written(pair):
    if not options.unpaired:
        return [pair]
    return [{"question": pair["question"], "completion": pair[side], "label": side == "chosen"}
            for side in ("chosen", "rejected")]


for path, rows in ((options.train, pairs[: -options.count]), (options.held_out, pairs[-options.count :])):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for pair in rows for row in written(pair))
    print(f"{len(rows)} pairs in {path}")
