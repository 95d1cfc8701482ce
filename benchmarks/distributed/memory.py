#!/usr/bin/env python3
"""Peak memory of every rank with the whole model, and with slices of it.

    memory.py MODEL [--rlalgo PROGRAM] [--ranks 1,2,4] [--layouts whole,zero1,zero2,fsdp,fsdp-whole,experts,fsdp-experts] [--length 128] [--reference]

Trains MODEL (a Hugging Face directory) two steps on made-up preference pairs (`rl: orpo`, one micro-batch a rank; --reference: dpo) and
prints, for each layout and number of ranks, the largest peak of resident memory (VmHWM of /proc, and of it the most that was no file)
of any rank while it trained, the seconds of the second step, and of rank 0 those that gathers and scatters (or sums) were at work, and
that it waited for them. Only the standard library of Python is needed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAYOUTS = {"whole": {}, "zero1": {"deepspeed": {"zero_optimization": {"stage": 1}}}, "zero2": {"deepspeed": {"zero_optimization": {"stage": 2}}},
           "fsdp": {"fsdp_config": {"reshard_after_forward": True}}, "fsdp-whole": {"fsdp_config": {"reshard_after_forward": False}},
           "experts": {}, "fsdp-experts": {"fsdp_config": {"reshard_after_forward": True}}}  # both: expert_parallel_size is the number of ranks


def children(pid):
    try:
        return [int(child) for task in os.listdir(f"/proc/{pid}/task")
                for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []


def watch(process, peaks):
    """The largest values of every process below, until all have ended."""
    while process.poll() is None:
        todo = [process.pid]
        while todo:
            pid = todo.pop()
            todo += children(pid)
            try:
                lines = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
                old = peaks.get(pid, (0, 0))
                now = [int(lines[name].split()[0]) for name in ("VmHWM", "RssAnon")]
                peaks[pid] = (max(old[0], now[0]), max(old[1], now[1]))
            except (OSError, KeyError, ValueError):
                pass
        time.sleep(0.02)


def measure(program, model, layout, ranks, length, reference):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = " ".join(f"word{i % 97}" for i in range(length))
        (folder / "rows.jsonl").write_text("".join(
            json.dumps({"prompt": f"{i}:", "chosen": f" {words} {i}", "rejected": f" {words} {i + 1} no"}) + "\n" for i in range(4 * ranks)))
        config = {"base_model": str(model), "rl": "dpo" if reference else "orpo", "datasets": [{"path": "rows.jsonl"}], "learning_rate": 1e-6,
                  "micro_batch_size": 1, "gradient_accumulation_steps": 1, "max_steps": 2, "logging_steps": 1, "save_strategy": "no",
                  "output_dir": "out", "sequence_len": 4 * length, **LAYOUTS[layout]}
        if layout.endswith("experts"):
            config["expert_parallel_size"] = ranks
        (folder / "config.yaml").write_text(json.dumps(config))
        command = [program, "train", "config.yaml"] + (["--nproc-per-node", str(ranks)] if ranks > 1 else [])
        peaks = {}
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            thread = threading.Thread(target=watch, args=(process, peaks))
            thread.start()
            process.wait()
            thread.join()
        if process.returncode != 0:
            raise SystemExit((folder / "log").read_text()[-2000:])
        record = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()][-1]
        seconds = sum(value for key, value in record.items() if key.startswith("time/"))
        own = [sum(record.get(f"time/{name}{end}", 0.0) for name in ("shards", "sums", "experts")) for end in ("", "_wait")]
        seconds -= sum(own)  # a part of the others
        return max(one[0] for one in peaks.values()), max(one[1] for one in peaks.values()), seconds, *own


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--layouts", default="whole,zero1,zero2,fsdp")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--reference", action="store_true")
    arguments = parser.parse_args()
    print("| layout | ranks | peak, MB | of it no file, MB | second step, s | gathers, scatters, sums, s | waited for, s |\n|---|---|---|---|---|---|---|")
    for layout in arguments.layouts.split(","):
        for ranks in map(int, arguments.ranks.split(",")):
            if ranks == 1 and layout != "whole":
                continue
            peak, anonymous, seconds, busy, waited = measure(os.path.abspath(arguments.rlalgo), arguments.model.resolve(), layout, ranks, arguments.length,
                                                             arguments.reference)
            print(f"| {layout} | {ranks} | {peak / 1000:.0f} | {anonymous / 1000:.0f} | {seconds:.2f} | {busy:.2f} | {waited:.2f} |", flush=True)


if __name__ == "__main__":
    main()
