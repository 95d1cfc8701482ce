"""What trl_grpo.py and trl_dpo.py share: a TRL trainer that makes one step whenever it is asked, and the rows made of it."""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import compare

# (relative, absolute)
TOLERANCES = {"float32": {"loss": (0.0, 2e-4), "grad_norm": (2e-3, 0.0), "entropy": (1e-3, 0.0), "reward": (1e-5, 0.0), "logps/chosen": (1e-4, 0.0)},
              "bfloat16": {"loss": (0.02, 5e-3), "grad_norm": (0.1, 0.0), "entropy": (0.02, 0.0), "reward": (1e-5, 0.0), "logps/chosen": (0.02, 0.0)}}


def worker_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    for name in ("--model", "--dtype", "--data"):
        parser.add_argument(name)
    for name in ("--micro", "--accumulation", "--steps", "--tokens", "--group"):
        parser.add_argument(name, type=int)
    return parser.parse_args()


def settings(arguments, folder):
    """What both kinds of trainers are given. Gradient checkpointing, which TRL has on by default, is off: it is slower."""
    return dict(output_dir=folder, per_device_train_batch_size=arguments.micro, gradient_accumulation_steps=arguments.accumulation,
                max_steps=arguments.steps, learning_rate=1e-6, lr_scheduler_type="constant", warmup_steps=0, logging_steps=1, save_strategy="no",
                report_to=[], disable_tqdm=True, use_cpu=True, bf16=arguments.dtype == "bfloat16", gradient_checkpointing=False, beta=0.0,
                dataloader_pin_memory=False, seed=42)


def load(arguments):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    return (AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, arguments.dtype)), AutoTokenizer.from_pretrained(arguments.model))


def gated(trainer, wire, before=lambda asked: None):
    """Trains; a request releases a step, whose seconds and logged metrics are the reply. `before` sees the request first."""
    from transformers import TrainerCallback

    class Gate(TrainerCallback):
        def on_step_begin(self, *_, **__):
            before(next(requests))
            self.begin = time.perf_counter()

        def on_step_end(self, *_, **__):
            self.seconds = time.perf_counter() - self.begin

        def on_log(self, args, state, control, logs=None, **__):
            if "grad_norm" in logs:
                numbers = {k: float(v) for k, v in logs.items() if isinstance(v, (int, float))}
                wire.send(seconds=self.seconds, metrics=numbers, peak=compare.peak_bytes())

    requests = wire.requests()
    trainer.add_callback(Gate())
    wire.send(versions=compare.installed("trl", "transformers", "torch"))
    trainer.train()


def check(ours, theirs, dtype, names):
    """→ "loss 1e-6, grad_norm 0.01 % apart" of the same step."""
    said = []
    for name in names:
        relative, absolute = TOLERANCES[dtype][name]
        gap = compare.close(name, ours[name], theirs[name], relative, absolute)
        said.append(f"{name} {ours[name]:.4g} ({gap:.1g} apart)")
    return ", ".join(said)


def name_of(model):
    path = pathlib.Path(model).absolute()
    return path.parent.name if path.name == "model" else path.name


def models(arguments):
    """(name, directory, threads, goal in f32, goal in bf16)"""
    if arguments.model:
        yield name_of(arguments.model), arguments.model, arguments.threads, 3, 5
    if not arguments.no_tiny:
        yield "0.7M model", str(compare.ROOT / "examples/quickstart/model"), 1, 8, 8


def parser(description):
    out = compare.options(description)
    out.add_argument("--model", help="a checkpoint directory (SmolLM2-135M); without it only the tiny model is trained")
    out.add_argument("--data", help="GSM8K's train.jsonl or rows like it (question, answer); needed with --model")
    out.add_argument("--no-tiny", action="store_true")
    return out


def compare_steps(arguments, script, what, goal, dtype, threads, model, data, config, options, folder, names, first_request=lambda folder: {}):
    """A step of ours and TRL's, in turns. The first of either side, from the weights of the checkpoint, is the one that is checked. A turn of
    ours is a new process, whose first step also reads the weights from their file and makes the optimizer's state, as TRL's first one does: it is
    left out on both sides. Of a large model the next step counts; of a small one the median of the next twelve. Processor time of ours is that of
    the process, its start included, through the number of its steps."""
    large = pathlib.Path(model, "model.safetensors").stat().st_size > 5e7
    each, skipped = 1 if large else 12, 1

    def ours():
        records, ran = compare.train(arguments.program, {**config, "base_model": model}, folder, threads, skipped + each)
        return {"records": records, "seconds": statistics.median(r["time/step"] for r in records[skipped:]), "peak": ran.peak, "processor": ran.processor / (skipped + each)}

    def theirs():
        replies = [worker.ask() for _ in range(each)]
        return {**replies[-1], "seconds": statistics.median(r["seconds"] for r in replies), "processor": sum(r["processor"] for r in replies) / each}

    records = ours()["records"]
    steps = 1 + skipped + arguments.repeats * each
    with compare.Worker(script, arguments.python, threads, ["--model", model, "--dtype", dtype, "--data", data, "--steps", steps, *options]) as worker:
        first = worker.ask(**first_request(folder))
        checked = check(records[0], first["metrics"], dtype, names)
        tokens = [records[0]["num_tokens"], first["metrics"]["num_tokens"]]
        compare.same("tokens of the first step", *map(int, tokens))
        for _ in range(skipped):
            worker.ask()
        print(f"{what} {dtype}: same work ({checked}); timing", file=sys.stderr, flush=True)
        with compare.Others({worker.process.pid}) as others:
            mine, peers = compare.interleaved(ours, theirs, arguments.repeats)
        versions = worker.hello["versions"]
    seconds = [[turn["seconds"] for turn in side] for side in (mine, peers)]
    processor = [[turn["processor"] for turn in side] for side in (mine, peers)]
    peaks = [max(turn["peak"] for turn in side) / 1e9 for side in (mine, peers)]
    row = compare.Row(pathlib.Path(script).name, what, dtype, threads, compare.Spread.of(seconds[0]), compare.Spread.of(seconds[1]),
                      compare.times_as_fast(*seconds, more_is_better=False), compare.times_as_fast(*processor, more_is_better=False), "s", goal, f"{int(tokens[0]):,} tokens, {checked}", others.processors, versions,
                      tuple(f"{p:.2g} GB" for p in peaks))
    print(f"{what} {dtype}: {row.ours} and {row.theirs} s, {row.ratio} times as fast, by processor time {row.processor}; {row.checked}", flush=True)
    return row, [turn["records"][-1] for turn in mine] + [turn["metrics"] for turn in peers]


def rows_of(path, count, first=0):
    with open(path) as file:
        return [json.loads(line) for _, line in zip(range(first + count), file)][first:]


def every_model(arguments, script, one):
    """`one(arguments, name, directory, threads, goal, dtype, folder)` → a row, for every model and dtype, written as soon as it is there."""
    if arguments.model and not arguments.data:
        sys.exit("--model needs --data")
    for name, model, threads, goal, goal_bf16 in models(arguments):
        for dtype in compare.dtypes(arguments.dtypes):
            with tempfile.TemporaryDirectory(prefix="rlalgo-compare-") as folder:
                row = one(arguments, name, model, threads, goal if dtype == "float32" else goal_bf16, dtype, pathlib.Path(folder))
                compare.finish(arguments, [row])
