"""Experts that ranks divide among them (expert_parallel_size), as a user sees it: the numbers of one rank, files, resume, a rank that
dies, what is refused."""
import json
import os
import pathlib
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, main, same_files  # noqa: E402
from ebft_test import STRIDED  # noqa: E402
from experts_test import model, names  # noqa: E402
from linear_attention_test import model as linear  # noqa: E402
from ranks_test import BESIDE, ONLINE, PAIRS, ended, rank_of, rows, started, write  # noqa: E402
from sharded_test import FSDP, same_run, zero  # noqa: E402

CASES = {}
TWO = {"expert_parallel_size": 2}


def case(function):
    CASES[function.__name__] = function
    return function


def experts(c, kind="qwen3_moe", name="experts"):
    return model(c, kind, name, **({} if kind in ("mixtral", "gpt_oss") else {"num_experts": 4}))


@case
def preference_on_two_ranks(c):
    rows(c)
    base = {**PAIRS, "base_model": experts(c), "max_steps": 4, "rl": "dpo"}
    same_run(c, base, [("many", 2, TWO)], val_set_size=0.2, eval_steps=2)
    steps = [r for r in c.metrics("many") if "time/experts" in r]
    assert steps and all(r["aux_loss"] > 1 for r in steps), c.metrics("many")
    assert names(c.folder / "many/model.safetensors") == names(c.folder / "experts/model.safetensors")
    same_run(c, base, [("recomputed", 2, {**TWO, "gradient_checkpointing": True})])


@case
def completions_on_two_ranks(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "base_model": experts(c)}
    same_run(c, base, [("many", 2, TWO)], rl="grpo", val_set_size=0.1, eval_steps=2,
             trl={"beta": 0.02, "num_iterations": 2, "sync_ref_model": True, "ref_model_sync_steps": 2})
    same_run(c, base, [("replayed", 2, TWO)], rl="grpo", trl={"router_replay": "R3"})
    same_run(c, base, [("asynchronous", 2, TWO)], rl="grpo", trl={**BESIDE, "prefetch_depth": 0})


@case
def every_family(c):
    rows(c)
    for kind in ("qwen2_moe", "mixtral", "gpt_oss"):  # the last one's files join the maps of experts
        layouts = [("many", 2, TWO)] + ([("sharded", 2, FSDP)] if kind == "gpt_oss" else [])
        same_run(c, {**PAIRS, "base_model": experts(c, kind, kind), "max_steps": 2}, layouts, rl="dpo")
        for folder in ("one", "many"):
            shutil.rmtree(c.folder / folder)


@case
def linear_attention_and_other_methods(c):
    rows(c)
    for kind in ("qwen3_5_moe_text", "qwen3_next"):
        base = {**PAIRS, "base_model": linear(c, kind, kind, num_experts=4), "max_steps": 2}
        same_run(c, base, [("many", 2, TWO)], rl="dpo")
        for folder in ("one", "many"):
            shutil.rmtree(c.folder / folder)
    base = {**PAIRS, "base_model": experts(c), "max_steps": 2}
    same_run(c, base, [("pairs", 2, TWO)], rl="orpo")
    rows(c, labelled=True, count=13)
    same_run(c, {**base, "remove_unused_columns": False}, [("labelled", 2, TWO)], rl="kto")
    same_run(c, {**STRIDED, "base_model": base["base_model"], "logging_steps": 1, "save_strategy": "no"}, [("blocks", 2, TWO)])


@case
def beside_shards_and_shared_rows(c):
    rows(c)
    base = {**PAIRS, "base_model": experts(c), "max_steps": 2, "rl": "dpo"}
    same_run(c, base, [("zero1", 2, {**TWO, **zero(1)}), ("zero2", 2, {**TWO, **zero(2)}), ("fsdp", 2, {**TWO, **FSDP}),
                       ("contexts", 2, {**TWO, "context_parallel_size": 2})], trl={"router_aux_loss_coef": 0})
    same_run(c, base, [("groups", 4, TWO), ("four", 4, {"expert_parallel_size": 4}), ("axolotls", 4, {**TWO, **FSDP, "dp_shard_size": 2})],
             accumulation=4)


@case
def adapters_on_experts(c):
    rows(c)
    base = {**PAIRS, "base_model": experts(c), "max_steps": 2, "adapter": "lora", "lora_r": 2, "lora_alpha": 4,
            "lora_target_modules": ["q_proj"], "lora_target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
    same_run(c, base, [("many", 2, TWO)], rl="dpo")
    online = {**json.loads(json.dumps(BASE)), **ONLINE, **{k: v for k, v in base.items() if k.startswith(("lora", "adapter", "base"))}}
    same_run(c, online, [("asynchronous", 2, TWO)], rl="grpo", trl={"beta": 0.02, **BESIDE, "prefetch_depth": 0})


@case
def a_resumed_run_is_the_run_on_any_number_of_ranks(c):
    rows(c)
    base = {**PAIRS, "base_model": experts(c), "rl": "dpo", "save_strategy": "steps", "save_steps": 2, "max_steps": 4, **TWO}
    c.run("train", write(c, base, "whole.yaml", output_dir="whole"), "--nproc-per-node", 2).expect(0)
    parts = sorted(p.name for p in (c.folder / "whole/checkpoint-2").glob("optimizer*"))
    assert parts == ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"], parts
    one, two = (names(c.folder / "whole/checkpoint-2" / part) for part in parts)
    assert not set(one) & set(two), set(one) & set(two)  # nothing is written twice
    assert all(".experts." in name for name in two), two
    for name, ranks, changes in (("again", 2, {}), ("one", 1, {"expert_parallel_size": 1, "gradient_accumulation_steps": 2})):
        shutil.copytree(c.folder / "whole", c.folder / name)
        shutil.rmtree(c.folder / name / "checkpoint-4")
        (c.folder / name / "model.safetensors").unlink()
        config = write(c, base, name + ".yaml", output_dir=name, resume_from_checkpoint=str(c.folder / name / "checkpoint-2"), **changes)
        c.run("train", config, *(("--nproc-per-node", ranks) if ranks > 1 else ())).expect(0)
        if ranks == 2:
            same_files(c.folder / "whole", c.folder / name, only=["model.safetensors"])
    from sharded_test import weights
    a, b = weights(c.folder / "whole/model.safetensors"), weights(c.folder / "one/model.safetensors")
    assert max(abs(x - y) for tensor in a for x, y in zip(a[tensor], b[tensor])) < 2e-5
    # What is saved without a step is the file of the base, byte for byte.
    base = {**{k: v for k, v in base.items() if not k.startswith("save")}, "save_strategy": "no", "max_steps": 1, "learning_rate": 0.0}
    c.run("train", write(c, base, "still.yaml", output_dir="still"), "--nproc-per-node", 2).expect(0)
    alone = write(c, {**base, "expert_parallel_size": 1}, "alone.yaml", output_dir="alone")
    c.run("train", alone).expect(0)
    assert (c.folder / "still/model.safetensors").read_bytes() == (c.folder / "alone/model.safetensors").read_bytes()


@case
def a_rank_that_dies_ends_the_others(c):
    process, pids = started(c, base_model=experts(c), **TWO)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    text = ended(process, pids, 12)
    assert process.returncode == 137 and "distributed.8" in text, (process.returncode, text)


@case
def a_run_that_is_stopped_saves_and_ends(c):
    process, pids = started(c, base_model=experts(c), **TWO)
    os.kill(rank_of(process, 1), signal.SIGINT)
    text = ended(process, pids, 30)
    assert process.returncode == 130, (process.returncode, text)
    saved = list((c.folder / "out").glob("checkpoint-*"))
    assert len(saved) == 1 and len(list(saved[0].glob("optimizer-*-of-00002.safetensors"))) == 2, saved


@case
def a_rank_that_stands_still_is_named(c):
    process, pids = started(c, base_model=experts(c), **TWO)
    os.kill(rank_of(process, 1), signal.SIGSTOP)
    text = ended(process, pids, 15)
    assert process.returncode == 1 and "distributed.6" in text and "rank 1" in text, (process.returncode, text)


@case
def what_does_not_go_with_it_is_refused(c):
    rows(c)
    whole = experts(c)
    base = {**PAIRS, "base_model": whole, "rl": "dpo", **TWO}

    def refused(ranks, *says, **changes):
        c.run("train", write(c, base, "no.yaml", **changes), *(("--nproc-per-node", ranks) if ranks > 1 else ())).expect(2, *says)

    refused(1, "config.60", "--nproc-per-node 2")
    refused(2, "config.60", "a divisor of 2", expert_parallel_size=3)
    refused(3, "config.60", "4 experts in a layer", expert_parallel_size=3)
    refused(2, "config.60", "no layer of a qwen3 has experts", base_model=BASE["base_model"])
    refused(2, "config.6]", expert_parallel_size=0)
    refused(2, "config.37", "expert_parallel_size: 2", optimizer="muon")
    refused(2, "config.37", "expert_parallel_size: 2", optimizer="adamw_8bit")
    refused(2, "config.37", "expert_parallel_size", adapter="qlora", load_in_4bit=True, lora_r=2, lora_alpha=4, lora_target_modules=["q_proj"])


if __name__ == "__main__":
    main(CASES)
