"""Weights in slices (fsdp_config, deepspeed) as a user sees them: the numbers of one rank, checkpoints on other numbers of ranks, what is
said and refused."""
import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, without_times  # noqa: E402
from ranks_test import ONLINE, PAIRS, close, ended, rank_of, rows, started, weights, write  # noqa: E402

CASES = {}
FSDP = {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}}


def case(function):
    CASES[function.__name__] = function
    return function


def zero(stage, **more):
    return {"deepspeed": {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": "auto", **more}}


def compare(c, first, second, what):
    a, b = without_times(c.metrics(first)), without_times(c.metrics(second))
    assert [r["step"] for r in a] == [r["step"] for r in b]
    for one, two in zip(a, b):
        assert one.keys() == two.keys(), set(one) ^ set(two)
        for name in one:
            close(one[name], two[name], f"{what} step {one['step']} {name}")
    file = "adapter_model.safetensors" if (c.folder / first / "adapter_model.safetensors").exists() else "model.safetensors"
    a, b = weights(c.folder / first / file), weights(c.folder / second / file)
    assert a.keys() == b.keys()
    for name, values in a.items():
        apart = max(abs(x - y) for x, y in zip(values, b[name]))
        assert apart < 2e-5, f"{what} {name}: {apart}"
    if (c.folder / first / "samples.jsonl").exists():
        texts = [[json.loads(line).get("completion") for line in (c.folder / folder / "samples.jsonl").read_text().splitlines()]
                 for folder in (first, second)]
        assert texts[0] == texts[1], "other completions"


def same_run(c, base, layouts, accumulation=2, **changes):
    """One rank with the whole model, and several with slices of it: `layouts` are (name, ranks, keys)."""
    c.run("train", write(c, base, "one.yaml", output_dir="one", gradient_accumulation_steps=accumulation, **changes)).expect(0)
    for name, ranks, keys in layouts:
        many = write(c, base, f"{name}.yaml", output_dir=name, gradient_accumulation_steps=accumulation // ranks, **changes, **keys)
        told = c.run("train", many, "--nproc-per-node", ranks).expect(0, "done: step")
        assert "[rank 1]" not in told.out + told.err, told.out + told.err
        compare(c, "one", name, name)


@case
def preference(c):
    rows(c)
    same_run(c, {**PAIRS, "max_steps": 4}, [("fsdp", 2, FSDP), ("zero1", 2, zero(1)), ("zero2", 2, zero(2))], rl="dpo", val_set_size=0.2,
             eval_steps=2)


@case
def hybrid(c):
    rows(c)
    same_run(c, PAIRS, [("hybrid", 4, {**FSDP, "dp_shard_size": 2, "dp_replicate_size": 2})], accumulation=4, rl="dpo")


@case
def adapter(c):
    rows(c)
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    same_run(c, PAIRS, [("fsdp", 2, FSDP)], rl="dpo", **lora)


@case
def online(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    same_run(c, base, [("fsdp", 2, FSDP), ("zero2", 2, zero(2))], rl="grpo", trl={"beta": 0.02, "num_iterations": 2})


@case
def feature_matching(c):
    base = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-4, "adam_epsilon": 1e-4, "max_steps": 2, "logging_steps": 1,
            "save_strategy": "no", "micro_batch_size": 2, "sequence_len": 48}
    same_run(c, {**base, "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
                 "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3,
                          "temperature": 1.0}}, [("fsdp", 2, FSDP)])


@case
def resumed(c):
    """The same bytes on the same ranks; the same numbers on others, in slices or not."""
    rows(c)
    base = {**PAIRS, "rl": "dpo", "save_strategy": "steps", "save_steps": 2, "max_steps": 4}

    def run(name, ranks, source=None, keys=None):
        config = write(c, base, f"{name}.yaml", output_dir=name, gradient_accumulation_steps=4 // ranks, **(keys or {}))
        extra = [] if source is None else ["--resume-from-checkpoint", f"{source}/checkpoint-2"]
        c.run("train", config, *([] if ranks == 1 else ["--nproc-per-node", ranks]), *extra).expect(0)

    run("two", 2, keys=FSDP)
    names = sorted(p.name for p in (c.folder / "two/checkpoint-2").iterdir() if p.name.startswith("optimizer"))
    assert names == ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"], names
    run("again", 2, source="two", keys=FSDP)
    assert (c.folder / "two/model.safetensors").read_bytes() == (c.folder / "again/model.safetensors").read_bytes()
    run("one", 1, source="two")
    run("four", 4, source="two", keys=zero(2))
    run("back", 2, source="four", keys=FSDP) if (c.folder / "four/checkpoint-2").exists() else run("back", 2, source="two", keys=zero(1))
    for name in ("one", "four", "back"):
        a, b = weights(c.folder / "two/model.safetensors"), weights(c.folder / name / "model.safetensors")
        for key, values in a.items():
            assert max(abs(x - y) for x, y in zip(values, b[key])) < 2e-5, (name, key)


@case
def interrupted(c):
    """Ctrl-C on one rank: all save their slices."""
    process, pids = started(c, **FSDP)
    os.kill(rank_of(process, 1), signal.SIGINT)
    text = ended(process, pids, 30)
    assert process.returncode == 130, (process.returncode, text)
    saved = list((c.folder / "out").glob("checkpoint-*"))
    assert len(saved) == 1 and len(list(saved[0].glob("optimizer-*-of-00002.safetensors"))) == 2, saved


@case
def killed_rank(c):
    process, pids = started(c, **FSDP)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    text = ended(process, pids, 12)
    assert process.returncode == 137 and "distributed.8" in text and "rank 1 failed" in text, (process.returncode, text)


@case
def said_and_refused(c):
    rows(c)
    base = {**PAIRS, "rl": "dpo", "output_dir": "out", "max_steps": 1}

    def refused(number, *words, ranks=2, **keys):
        told = c.run("train", write(c, base, "config.yaml", **keys), "--nproc-per-node", ranks).expect(2, f"config.{number}")
        assert all(word in told.err for word in words), told.err

    refused(8, "deepspeed", **FSDP, **zero(3))
    refused(8, "gradient_clipping", **zero(2, gradient_clipping=0.5))
    refused(6, "stage", **zero(4))
    refused(10, "nvme", deepspeed={"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})
    refused(4, "fsdp_config.sharding", fsdp_config={"sharding": True})
    refused(41, "3 × 2", "2 ranks", **FSDP, dp_shard_size=3, dp_replicate_size=2)
    refused(14, "dp_shard_size", dp_shard_size=2)
    refused(37, "sync_ref_model", **FSDP, trl={"sync_ref_model": True})
    (c.folder / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                                                     "bf16": {"enabled": "auto"}, "steps_per_print": 10}))
    told = c.run("train", write(c, base, "config.yaml", deepspeed="zero.json"), "--nproc-per-node", 2).expect(0)
    assert "steps_per_print" in told.err and "offload_optimizer" in told.err, told.err
    told = c.run("train", write(c, base, "config.yaml", **FSDP)).expect(0)
    assert "one rank holds everything" in told.err, told.err


if __name__ == "__main__":
    main(CASES)
