"""Ranks that share the tokens of their rows, as a user sees them: the numbers of one rank, resume, ranks that die, what is refused."""
import json
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, same_files, without_times  # noqa: E402
from ranks_test import BESIDE, ONLINE, PAIRS, close, ended, rank_of, rows, same_run, started, weights, write  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def preference_recipes(c):
    rows(c)
    same_run(c, {**PAIRS, "max_steps": 4}, context=2, accumulation=1, rl="dpo", val_set_size=0.2, eval_steps=2)
    for rl in ("ipo", "orpo", "simpo", "cpo"):
        same_run(c, PAIRS, context=2, accumulation=1, rl=rl)
    same_run(c, PAIRS, context=2, accumulation=1, rl="dpo", precompute_ref_log_probs=True, dataset_prepared_path="prepared")
    rows(c, labelled=True)
    same_run(c, {**PAIRS, "remove_unused_columns": False}, context=2, accumulation=1, rl="kto")


@case
def online_recipes(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    two = ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]
    same_run(c, base, context=2, rl="grpo", val_set_size=0.1, eval_steps=2,
             trl={"beta": 0.02, "num_iterations": 2, "scale_rewards": "batch"})
    same_run(c, base, context=2, rl="gdpo", gradient_checkpointing=True, trl={"reward_funcs": two, "loss_type": "dapo"})
    del base["trl"]["loss_type"]
    same_run(c, base, context=2, accumulation=1, rl="rloo", trl={"beta": 0.02})


@case
def feature_matching(c):
    base = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-4, "adam_epsilon": 1e-4, "max_steps": 2, "logging_steps": 1,
            "save_strategy": "no", "micro_batch_size": 2, "sequence_len": 48}
    same_run(c, {**base, "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
                 "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3,
                          "temperature": 1.0, "ce_coef": 0.1, "save_rollouts": True}}, context=2)
    items = [{"input": f"{i % 7} + {i % 5} =", "output": f"{i % 7 + i % 5}" + " apples" * (i % 3)} for i in range(16)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    same_run(c, {**base, "micro_batch_size": 4, "datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}],
                 "chat_template": "tokenizer_default", "ebft": {"mode": "structured", "ce_coef": 0.1},
                 "trl": {"num_generations": 4, "max_completion_length": 12}}, context=2)


@case
def groups_of_groups(c):
    """Four ranks: two groups of two, and one of four."""
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    same_run(c, base, ranks=4, context=2, accumulation=2, rl="grpo", trl={"beta": 0.02, "num_iterations": 2})
    same_run(c, base, ranks=4, context=4, accumulation=2, rl="grpo", ring_attn_func="batch_ring")
    rows(c)
    same_run(c, {**PAIRS, "max_steps": 6}, ranks=4, context=2, accumulation=2, rl="orpo", ring_attn_func="batch_stripe")


@case
def adapter_with_dropout(c):
    rows(c)
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.2, "lora_target_linear": True}
    same_run(c, {**PAIRS, **lora}, context=2, accumulation=1, rl="dpo", weights_file="adapter_model.safetensors")


@case
def asynchronous(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "rl": "grpo", "max_steps": 4, "trl": {**BASE["trl"], **BESIDE}}
    c.run("train", write(c, base, "many.yaml", gradient_accumulation_steps=2, context_parallel_size=2), "--nproc-per-node", 2).expect(0, "done: step")
    assert [record["step"] for record in c.metrics()] == [1, 2, 3, 4]
    # Depth 0 takes turns, and so has the numbers of one rank.
    same_run(c, base, context=2, trl={**BESIDE, "prefetch_depth": 0})


@case
def resumed_with_other_groups(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "max_steps": 4, "save_steps": 2, "trl": {**BASE["trl"], "beta": 0.02, "num_iterations": 2}}
    base.pop("save_strategy")

    def train(folder, ranks, accumulation, **changes):
        name = write(c, base, f"{folder}.yaml", output_dir=folder, gradient_accumulation_steps=accumulation, **changes)
        return c.run("train", name, *(("--nproc-per-node", ranks) if ranks > 1 else ()))

    train("whole", 2, 2, context_parallel_size=2).expect(0)
    half = "whole/checkpoint-2"
    train("again", 2, 2, context_parallel_size=2, resume_from_checkpoint=half).expect(0, "resumed")
    same_files(c.folder / "whole", c.folder / "again", only={"model.safetensors", "optimizer.safetensors", "metrics.jsonl", "samples.jsonl"})
    for folder, ranks, accumulation, size in (("alone", 1, 2, 1), ("rows", 2, 1, 1)):
        train(folder, ranks, accumulation, context_parallel_size=size, resume_from_checkpoint=half).expect(0, "resumed")
        a, b = weights(c.folder / "whole/model.safetensors"), weights(c.folder / folder / "model.safetensors")
        for name, values in a.items():
            assert max(abs(x - y) for x, y in zip(values, b[name])) < 2e-5, f"{folder}: {name}"
        for one, other in zip(without_times(c.metrics("whole")), without_times(c.metrics(folder)), strict=True):
            for name in one:
                close(one[name], other[name], f"{folder}: {name}")


@case
def killed_in_a_step(c):
    process, pids = started(c, context_parallel_size=2)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    text = ended(process, pids, 12)
    assert process.returncode == 137, process.returncode
    for part in ("distributed.8", "rank 1 failed", "Killed"):
        assert part in text, (part, text)


@case
def stopped_in_a_step(c):
    process, pids = started(c, context_parallel_size=2)
    os.kill(rank_of(process, 1), signal.SIGSTOP)
    text = ended(process, pids, 20)
    assert process.returncode != 0 and "distributed.6" in text and "rank 1 is silent" in text, text


@case
def refused(c):
    rows(c)
    config = {**PAIRS, "rl": "dpo"}
    c.run("train", write(c, config, "config.yaml", context_parallel_size=2)).expect(2, "config.40", "--nproc-per-node 2")
    c.run("train", write(c, config, "config.yaml", context_parallel_size=2), "--nproc-per-node", 3).expect(2, "config.40", "3, the number of ranks")
    c.run("train", write(c, config, "config.yaml", context_parallel_size=0)).expect(2, "config.40")
    c.run("train", write(c, config, "config.yaml", ring_attn_func="round")).expect(2, "batch_zigzag")
    c.run("train", write(c, config, "config.yaml", tensor_parallel_size=2)).expect(2, "config.10", "context_parallel_size")
    told = c.run("train", write(c, config, "config.yaml", max_steps=1, sequence_parallel_degree=2, heads_k_stride=1, output_dir="out"),
                 "--nproc-per-node", 2).expect(0)
    assert "sequence_parallel_degree is now context_parallel_size" in told.out + told.err
    assert "heads_k_stride" in told.out + told.err
    assert not (c.folder / "model-out").exists()


if __name__ == "__main__":
    main(CASES)
