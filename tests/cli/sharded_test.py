"""Sharded weights (fsdp_config, deepspeed) as a user sees them: the numbers of one rank, checkpoints on other numbers of ranks, what is
said and refused."""
import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, without_times  # noqa: E402
from ranks_test import BESIDE, MEASURED, ONLINE, PAIRS, close, ended, of_a_server, rank_of, rows, schedules, started, streamed_run, until, weights, write  # noqa: E402
from serve_test import MODEL, Server, remote  # noqa: E402

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
            # Where policy and reference are equal, rounding decides which of two answers is ahead.
            if name.endswith("rewards/accuracies") and abs(one[name.replace("accuracies", "margins")]) < 1e-5:
                continue
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
    """One rank with the whole model, and several with shards of it: `layouts` are (name, ranks, keys)."""
    c.run("train", write(c, base, "one.yaml", output_dir="one", gradient_accumulation_steps=accumulation, **changes)).expect(0)
    for name, ranks, keys in layouts:
        groups = ranks // keys.get("context_parallel_size", 1)
        many = write(c, base, f"{name}.yaml", output_dir=name, gradient_accumulation_steps=accumulation // groups, **changes, **keys)
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
def every_preference_method(c):
    rows(c)
    for rl in ("ipo", "orpo", "simpo", "cpo"):
        same_run(c, PAIRS, [("fsdp", 2, FSDP)], rl=rl)
    same_run(c, PAIRS, [("fsdp", 2, FSDP)], rl="dpo", precompute_ref_log_probs=True, dataset_prepared_path="prepared")
    rows(c, labelled=True)
    same_run(c, {**PAIRS, "remove_unused_columns": False}, [("fsdp", 2, FSDP), ("zero1", 2, zero(1))], rl="kto")


@case
def uneven_rows(c):
    """Three ranks and rows that do not fill their steps; more ranks than an epoch has micro-batches: some have none."""
    rows(c, count=11)
    same_run(c, {**PAIRS, "max_steps": 4}, [("fsdp", 3, FSDP), ("zero2", 3, zero(2))], accumulation=3, rl="dpo", val_set_size=0.2, eval_steps=2)
    rows(c, count=3)
    same_run(c, {**PAIRS, "micro_batch_size": 1}, [("fsdp", 4, FSDP), ("hybrid", 4, {**FSDP, "dp_shard_size": 2})], accumulation=4, rl="orpo")


@case
def with_shared_rows(c):
    """Long rows: the ranks of a context group hold shards as all others do."""
    shared = {"context_parallel_size": 2}
    rows(c)
    same_run(c, {**PAIRS, "max_steps": 4}, [("group", 2, {**FSDP, **shared}), ("groups", 4, {**FSDP, **shared}), ("zero1", 2, {**zero(1), **shared}),
                                            ("hybrid", 4, {**FSDP, **shared, "dp_shard_size": 1, "dp_replicate_size": 2})],
             rl="dpo", val_set_size=0.2, eval_steps=2)
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "gradient_checkpointing": True}
    same_run(c, PAIRS, [("lora", 2, {**FSDP, **shared})], rl="simpo", **lora)
    rows(c, labelled=True)
    same_run(c, {**PAIRS, "remove_unused_columns": False}, [("kto", 4, {**zero(2), **shared})], rl="kto")
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    same_run(c, base, [("online", 2, {**FSDP, **shared}), ("more", 4, {**FSDP, **shared})], rl="grpo", trl={"beta": 0.02, "num_iterations": 2})
    told = c.run("train", write(c, {**base, "output_dir": "beside"}, "beside.yaml", gradient_accumulation_steps=2, trl=BESIDE, **FSDP, **shared),
                 "--nproc-per-node", 2).expect(0, "done: step")
    assert "[rank 1]" not in told.out + told.err, told.out + told.err


@case
def a_file_of_each_rank(c):
    """SHARDED_STATE_DICT: the model of a run in the layout of Hugging Face, in as many files as ranks that share it; resumed from, too."""
    rows(c)
    base = {**PAIRS, "rl": "dpo", "save_strategy": "steps", "save_steps": 2, "max_steps": 4, "gradient_accumulation_steps": 1}
    fsdp = {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True, "state_dict_type": "SHARDED_STATE_DICT"}}
    c.run("train", write(c, base, "whole.yaml", output_dir="whole", **FSDP), "--nproc-per-node", 2).expect(0)
    c.run("train", write(c, base, "each.yaml", output_dir="each", **fsdp), "--nproc-per-node", 2).expect(0)
    c.run("train", write(c, base, "again.yaml", output_dir="again", **fsdp), "--nproc-per-node", 2,
          "--resume-from-checkpoint", "each/checkpoint-2").expect(0)
    expected = weights(c.folder / "whole/model.safetensors")
    for folder in ("each", "each/checkpoint-4", "again"):
        index = json.loads((c.folder / folder / "model.safetensors.index.json").read_text())["weight_map"]
        assert set(index.values()) == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, index
        assert not (c.folder / folder / "model.safetensors").exists()
        found = {name: value for file in sorted(set(index.values())) for name, value in weights(c.folder / folder / file).items()}
        assert found == expected, f"{folder}: other weights"
    line = json.dumps({"prompt": "1 + 2 ="}) + "\n"
    assert c.run("generate", "--model", "each", stdin=line).expect(0).out == c.run("generate", "--model", "whole", stdin=line).expect(0).out


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
def synced_reference(c):
    """The reference follows the policy shard by shard; a checkpoint has it whole, for any number of ranks."""
    rows(c)
    trl = {"sync_ref_model": True, "ref_model_sync_steps": 2, "ref_model_mixup_alpha": 0.6}
    pairs = {**PAIRS, "learning_rate": 1e-3, "rl": "dpo", "trl": trl}
    same_run(c, {**pairs, "max_steps": 5}, [("fsdp", 2, FSDP), ("hybrid", 4, {**FSDP, "dp_shard_size": 2})], accumulation=4)
    fixed = write(c, pairs, "fixed.yaml", output_dir="fixed", max_steps=5, gradient_accumulation_steps=4, trl={"sync_ref_model": False})
    c.run("train", fixed).expect(0)
    assert abs(c.metrics("fixed")[-1]["loss"] - c.metrics("fsdp")[-1]["loss"]) > 1e-4, "the reference stayed"
    some = {"unfrozen_parameters": ["model.layers.1.", "model.norm"]}  # trained weights and others in one layer's shards
    same_run(c, {**pairs, "max_steps": 3}, [("some", 2, FSDP)], **some)
    saved = {**pairs, "save_strategy": "steps", "save_steps": 3, "max_steps": 6}
    for name, ranks, source, keys in (("two", 2, None, FSDP), ("again", 2, "two", FSDP), ("alone", 1, "two", {})):
        config = write(c, saved, f"{name}.yaml", output_dir=name, gradient_accumulation_steps=4 // ranks, **keys)
        resume = [] if source is None else ["--resume-from-checkpoint", f"{source}/checkpoint-3"]
        c.run("train", config, *(["--nproc-per-node", ranks] if ranks > 1 else []), *resume).expect(0)
    assert (c.folder / "two/model.safetensors").read_bytes() == (c.folder / "again/model.safetensors").read_bytes()
    a, b = weights(c.folder / "two/checkpoint-6/reference.safetensors"), weights(c.folder / "alone/checkpoint-6/reference.safetensors")
    assert a.keys() == b.keys()
    for key, values in a.items():
        assert max(abs(x - y) for x, y in zip(values, b[key])) < 2e-5, key
    online = {**json.loads(json.dumps(BASE)), **ONLINE}
    same_run(c, online, [("online", 2, FSDP)], rl="grpo", trl={"beta": 0.02, **trl, "ref_model_sync_steps": 1})


@case
def completions_of_a_server(c):
    """Weights go to the server tensor by tensor: in its file, over HTTP, broadcast, as an adapter, merged."""
    (c.folder / "elsewhere").mkdir()
    of_a_server(c, 2, **FSDP)
    assert "weights go to the server over HTTP" in of_a_server(c, 2, ("--allowed-path", c.folder / "elsewhere"), **FSDP)
    if "without libgloo-dev" not in c.run("vllm-serve", MODEL, "--weight-transfer-config", "{}").err:
        of_a_server(c, 2, ("--weight-transfer-config", json.dumps({"backend": "gloo"})), **FSDP)
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    of_a_server(c, 2, **FSDP, **lora, val_set_size=0.05, eval_steps=2)
    of_a_server(c, 2, **FSDP, **lora, peft_use_dora=True)


@case
def a_server_that_is_started_anew(c):
    """It gets its weights again, from all ranks, with the next hand-over at the latest. Where all of them wait for its completions
    before that, nobody could give them, and the run ends at once."""
    server = Server(c)
    base = {**BASE, **ONLINE, **FSDP, "max_steps": 12, "output_dir": "out"}
    trl = {**remote(server.port), "vllm_server_timeout": 60}
    process = c.start("train", write(c, base, "config.yaml", gradient_accumulation_steps=1, trl=trl), "--nproc-per-node", 2, once=True)
    until(c, process, 3)
    server.process.kill()
    server.process.communicate()
    server = Server(c, "--port", server.port, model=str(MODEL))
    try:
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, out + err
        assert [record["step"] for record in c.metrics()] == list(range(1, 13))
        longer = {**base, "max_steps": 60, "output_dir": "beside"}
        process = c.start("train", write(c, longer, "beside.yaml", gradient_accumulation_steps=1, trl={**BESIDE, **trl}), "--nproc-per-node", 2, once=True)
        until(c, process, 3, "beside")
        server.process.kill()
        server.process.communicate()
        server = Server(c, "--port", server.port, model=str(MODEL))
        out, err = process.communicate(timeout=90)
        went_on = process.returncode == 0 and len(c.metrics("beside")) == 60
        assert went_on or (process.returncode == 1 and "sync.11" in err), (process.returncode, out + err)
    finally:
        server.stop()


@case
def asynchronous(c):
    """Each rank generates from a copy that is gathered layer by layer; frozen weights once."""
    schedules(c, **FSDP)
    schedules(c, **FSDP, adapter="lora", lora_r=4, lora_alpha=8, lora_target_linear=True)
    told = c.run("train", write(c, {**BASE, **ONLINE, **FSDP}, "copies.yaml", trl=BESIDE), "--nproc-per-node", 2).expect(0)
    assert "[rank 1]" not in told.out + told.err, told.out + told.err


@case
def streamed(c):
    streamed_run(c, keys=FSDP, trl={"loss_type": "dapo"})
    streamed_run(c, ranks=4, keys={**zero(2), "dp_shard_size": 2}, trl={"loss_type": "dapo", "beta": 0.02})


@case
def feature_matching(c):
    base = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-4, "adam_epsilon": 1e-4, "max_steps": 2, "logging_steps": 1,
            "save_strategy": "no", "micro_batch_size": 2, "sequence_len": 48}
    same_run(c, {**base, "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
                 "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3,
                          "temperature": 1.0}}, [("fsdp", 2, FSDP)])


@case
def asynchronous_feature_matching(c):
    """The feature network is asked on the thread that generates: each rank has all of it."""
    items = [{"input": f"{i % 7} + {i % 5} =", "output": f"{i % 7 + i % 5}" + " apples" * (i % 3)} for i in range(16)]
    (c.folder / "answers.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    base = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-4, "adam_epsilon": 1e-4, "max_steps": 4, "logging_steps": 1,
            "save_strategy": "no", "micro_batch_size": 4, "datasets": [{"path": "answers.jsonl", "type": "ebft_opencode.transform"}],
            "chat_template": "tokenizer_default", "ebft": {"mode": "structured", "ce_coef": 0.1}}
    trl = {"num_generations": 4, "max_completion_length": 12, **BESIDE}
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    for name, keys in (("full", {}), ("lora", lora), ("own", {"ebft": {**base["ebft"], "feature_model": BASE["base_model"]}})):
        config = {**base, **keys, "trl": {**trl, "async_schedule": "record"}, "output_dir": name}
        c.run("train", write(c, config, "recorded.yaml", gradient_accumulation_steps=1, **FSDP), "--nproc-per-node", 2).expect(0)
        again = {**config, "trl": {**trl, "async_schedule": "recorded", "async_schedule_file": f"{name}/async_schedule.jsonl"}, "output_dir": "one"}
        c.run("train", write(c, again, "one.yaml", gradient_accumulation_steps=2)).expect(0)
        for a, b in zip(without_times(c.metrics("one")), without_times(c.metrics(name)), strict=True):
            for key in a:
                if not key.startswith(MEASURED):
                    close(a[key], b[key], f"{name} {a['step']} {key}")


@case
def resumed(c):
    """The same bytes on the same ranks; the same numbers on others, sharded or not."""
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
    """Ctrl-C on one rank: all save their shards."""
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
    refused(41, "context_parallel_size", "2 × 1 × 2", **FSDP, context_parallel_size=2, dp_shard_size=2)
    refused(37, "adamw_8bit", "adamw_torch_fused", **zero(1), optimizer="adamw_8bit")
    (c.folder / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                                                     "bf16": {"enabled": "auto"}, "steps_per_print": 10}))
    told = c.run("train", write(c, base, "config.yaml", deepspeed="zero.json"), "--nproc-per-node", 2).expect(0)
    assert "steps_per_print" in told.err and "offload_optimizer" in told.err, told.err
    told = c.run("train", write(c, base, "config.yaml", **FSDP)).expect(0)
    assert "one rank holds everything" in told.err, told.err


if __name__ == "__main__":
    main(CASES)
