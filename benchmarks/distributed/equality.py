#!/usr/bin/env python3
"""Trains the quickstart's model with every method on 1, 2 and 4 ranks, five steps each, and prints how far the runs are apart.

    equality.py [--rlalgo PROGRAM] [--only PATTERN] [--ranks 2,4] [--context 1] [--layout whole|zero1|zero2|fsdp|hybrid]
    equality.py --layouts zero1:2,zero1:4,fsdp:4,hybrid:4,fsdp:4x2     layout:ranks, or :ranks x ranks that share their rows

With --layouts one row for each of them: the largest of all methods. Otherwise prints the table of docs/distributed.md: per method and number of ranks the largest difference from one rank of losses, gradient
norms, all other metrics and weights, relative to the largest value of its name (FLOOR at least: a loss of advantages that add up to
0, or a divergence of equal policies, is made of rounding alone); and whether completions are identical.
Exit status 1 where float32's rounding does not explain a difference (LIMIT). PROGRAM is by default build/release/bin/rlalgo.
Only the standard library of Python is needed.
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUICKSTART = ROOT / "examples/quickstart"
STEPS = 5
FLOOR = 0.01
LIMIT = 2e-5  # weights after five steps of AdamW, whose quotients multiply what rounding left in the gradients
COMMON = {"base_model": str(QUICKSTART / "model"), "max_steps": STEPS, "logging_steps": 1, "learning_rate": 1e-4, "adam_epsilon": 1e-4,
          "save_strategy": "no", "val_set_size": 0}
LAYOUTS = {"whole": {}, "zero1": {"deepspeed": {"zero_optimization": {"stage": 1}}}, "zero2": {"deepspeed": {"zero_optimization": {"stage": 2}}},
           "fsdp": {"fsdp_config": {"reshard_after_forward": True}}, "hybrid": {"fsdp_config": {"reshard_after_forward": True}, "dp_shard_size": 2}}
ONLINE = {**COMMON, "micro_batch_size": 2,
          "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}]}
TRL = {"num_generations": 4, "max_completion_length": 16, "reward_funcs": ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]}
PAIRS = {**COMMON, "micro_batch_size": 2, "datasets": [{"path": "rows.jsonl"}]}


def online(rl, **trl):
    return {**ONLINE, "rl": rl, "trl": {**TRL, **trl}}


def methods():
    for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"):
        yield f"grpo, {loss}", online("grpo", loss_type=loss, beta=0.02)
    yield "grpo, scale_rewards batch, 2 iterations", online("grpo", loss_type="dapo", scale_rewards="batch", num_iterations=2, beta=0.02)
    yield "gdpo", online("gdpo", beta=0.02)
    yield "rloo", online("rloo", beta=0.02)
    for rl in ("dpo", "ipo", "orpo", "simpo", "cpo"):
        yield rl, {**PAIRS, "rl": rl}
    yield "kto", {**PAIRS, "rl": "kto", "remove_unused_columns": False}
    yield "ebft, structured", {**COMMON, "rl": "ebft", "micro_batch_size": 4, "chat_template": "tokenizer_default",
                               "datasets": [{"path": "answers.jsonl", "type": "ebft_opencode.transform"}],
                               "ebft": {"mode": "structured", "ce_coef": 0.1},
                               "trl": {"num_generations": 4, "max_completion_length": 12}}
    yield "ebft, strided", {**COMMON, "rl": "ebft", "micro_batch_size": 2, "sequence_len": 48,
                            "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
                            "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3,
                                     "n_samples_per_prompt": 3, "temperature": 1.0, "ce_coef": 0.1}}


def write_rows(folder):
    pairs, labelled, answers = [], [], []
    for i in range(48):
        prompt, right, wrong = f"{i % 7} + {i % 5} =", f" {i % 7 + i % 5} #{i}", f" {i % 7 + i % 5 + 1} #"
        pairs.append({"prompt": prompt, "chosen": right, "rejected": wrong})
        labelled.append({"prompt": prompt, "completion": right if i % 3 else wrong, "label": bool(i % 3)})
        answers.append({"input": prompt, "output": f"{i % 7 + i % 5}" + " apples" * (i % 3)})
    for name, rows in (("rows", pairs), ("labelled", labelled), ("answers", answers)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def weights(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield from struct.unpack(f"<{(end - begin) // 4}f", data[8 + length + begin:8 + length + end])


def train(program, folder, config, ranks, context=1):
    out = f"ranks-{ranks}"
    settings = {**config, "output_dir": out, "gradient_accumulation_steps": 4 * context // ranks}
    if context > 1:
        settings["context_parallel_size"] = context
    (folder / f"{out}.yaml").write_text(json.dumps(settings))
    words = [str(program), "train", f"{out}.yaml"] + (["--nproc-per-node", str(ranks)] if ranks > 1 else [])
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    records = [json.loads(line) for line in (folder / out / "metrics.jsonl").read_text().splitlines()]
    samples = folder / out / "samples.jsonl"
    texts = [json.loads(line).get("completion") for line in samples.read_text().splitlines()] if samples.exists() else []
    return records, list(weights(folder / out / "model.safetensors")), texts


def apart(one, other):
    """The largest difference, relative to the largest value."""
    largest = max((abs(x) for x in one), default=0.0)
    return max((abs(x - y) for x, y in zip(one, other, strict=True)), default=0.0) / max(largest, FLOOR)


def column(records, name):
    return [record[name] for record in records if isinstance(record.get(name), (int, float))]


def compare(one, many):
    names = {name for record in one[0] for name in record if not name.startswith("time/") and name != "tokens_per_second"}
    others = names - {"loss", "grad_norm"}
    return {"loss": apart(column(one[0], "loss"), column(many[0], "loss")),
            "gradient norm": apart(column(one[0], "grad_norm"), column(many[0], "grad_norm")),
            "metrics": max(apart(column(one[0], name), column(many[0], name)) for name in others),
            "weights": apart(one[1], many[1]),
            "completions": "none" if not one[2] else "identical" if one[2] == many[2] else "DIFFERENT"}


def differences(program, only, runs):
    """Of every method that `only` names, and every (label, layout, ranks, ranks that share their rows): (method, label, what compare() finds)."""
    for name, config in methods():
        if not re.search(only, name):
            continue
        with tempfile.TemporaryDirectory(prefix="rlalgo-equality-") as place:
            folder = pathlib.Path(place)
            write_rows(folder)
            if config["rl"] == "kto":
                config = {**config, "datasets": [{"path": "labelled.jsonl"}]}
            one = train(program, folder, config, 1)
            for label, layout, ranks, context in runs:
                yield name, label, compare(one, train(program, folder, {**config, **LAYOUTS[layout]}, ranks, context))


def summarize(program, only, layouts):
    runs = []
    for text in layouts:
        layout, _, size = text.partition(":")
        ranks, _, context = size.partition("x")
        runs.append((text, layout, int(ranks), int(context or 1)))
    worst, different, names = {}, {}, set()
    for name, text, found in differences(program, only, runs):
        print(f"{name}, {text}: {found}", file=sys.stderr, flush=True)
        names.add(name)
        different[text] = different.get(text, 0) + (found["completions"] == "DIFFERENT")
        for key, value in found.items():
            if not isinstance(value, str):
                worst.setdefault(text, {})[key] = max(worst.get(text, {}).get(key, 0.0), value)
    print("| layout | ranks | loss | gradient norm | other metrics | weights | completions |\n|---|---|---|---|---|---|---|")
    for text in layouts:
        layout, _, size = text.partition(":")
        print(f"| {layout} | {size.replace('x', ', in groups of ')} | " + " | ".join(f"{value:.0e}" for value in worst[text].values()) +
              (" | identical |" if different[text] == 0 else f" | DIFFERENT in {different[text]} |"))
    print(f"{len(names)} methods", file=sys.stderr)
    return 0 if max(max(row.values()) for row in worst.values()) <= LIMIT and not any(different.values()) else 1


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--only", default="")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--context", type=int, default=1, help="ranks that share the tokens of their rows")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), default="whole")
    parser.add_argument("--layouts", help="a row for each, over all methods")
    given = parser.parse_args(arguments)
    if given.layouts:
        return summarize(pathlib.Path(given.rlalgo).resolve(), given.only, given.layouts.split(","))
    print("| method | ranks | loss | gradient norm | other metrics | weights | completions |\n|---|---|---|---|---|---|---|")
    program, good = pathlib.Path(given.rlalgo).resolve(), True
    runs = [(str(ranks) if given.context == 1 else f"{ranks // given.context} × {given.context}", given.layout, ranks, given.context)
            for ranks in [int(text) for text in given.ranks.split(",")]]
    for name, shown, found in differences(program, given.only, runs):
        numbers = [value for value in found.values() if not isinstance(value, str)]
        print(f"| {name} | {shown} | " + " | ".join(f"{value:.0e}" for value in numbers) + f" | {found['completions']} |", flush=True)
        good = good and max(numbers) <= LIMIT and found["completions"] != "DIFFERENT"
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
