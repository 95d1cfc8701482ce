"""`rlalgo evaluate`: the numbers that a training logs at a checkpoint, for every kind of method; and what it refuses."""
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main  # noqa: E402

CASES = {}
SAVED = {"save_steps": 1, "save_strategy": "steps", "save_total_limit": 9, "eval_steps": 1, "eval_strategy": "steps", "warmup_steps": 0}
LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "lora_dropout": 0.1}


def case(function):
    CASES[function.__name__] = function
    return function


def evaluated(c, *words):
    """The result on standard output, which is the file's, without its time."""
    result = c.run("evaluate", "config.yaml", *words).expect(0)
    record = json.loads(result.out)
    file = c.folder / (words[words.index("--output") + 1] if "--output" in words else "out/eval_results.json")
    assert file.read_text() == result.out, "file and standard output differ"
    return {k: v for k, v in record.items() if k not in ("model", "time/eval")}


def logged(c, step):
    records = [r for r in c.metrics() if r["step"] == step and "time/eval" in r]
    assert len(records) == 1, records
    return {k: v for k, v in records[0].items() if k not in ("time/eval", "eval_num_tokens")}


def same(c, model=True):
    """Evaluations of the start, of each checkpoint, of the newest and of the final model (which has no synced reference)."""
    assert logged(c, 0) != logged(c, 2), "nothing was learned"
    where = {"out/checkpoint-1": 1, "out/checkpoint-2": 2, "last": 2, **({"out": 2} if model else {})}
    for words, step in [([], 0)] + [(["--checkpoint", name], step) for name, step in where.items()]:
        ours, theirs = evaluated(c, *words), logged(c, step)
        assert ours == theirs, f"{words}: {ours} and {theirs}"
    assert evaluated(c, "--checkpoint=last", "--output", "there/result.json") == logged(c, 2)


def rewards(c):
    """Rewards that differ from completion to completion."""
    (c.folder / "rewards.py").write_text("def bytes(completions, **kwargs):\n    return [sum(str(x).encode()) % 97 / 97 for x in completions]\n")
    return {"reward_funcs": ["rewards.bytes"]}


@case
def rollouts(c):
    """Generated completions, rewards and a KL penalty; the metrics of an evaluation of its own geometry."""
    c.train({**SAVED, "val_set_size": 0.004, "eval_batch_size": 3,
             "trl": {**rewards(c), "beta": 0.05, "num_generations_eval": 2, "sync_ref_model": True, "ref_model_sync_steps": 1}}).expect(0)
    assert "eval_reward" in logged(c, 2) and "eval_kl" in logged(c, 2)
    same(c, model=False)
    c.run("evaluate", "config.yaml", "--checkpoint", "out").expect(0, "in checkpoints only")


@case
def adapter(c):
    c.train({**SAVED, **LORA, "val_set_size": 0.004, "trl": rewards(c)}).expect(0)
    same(c)
    c.run("evaluate", "config.yaml", "--checkpoint", "last", "--lora-alpha", "16").expect(1, "[rlalgo.config.29]", "lora_alpha: 8")
    c.run("evaluate", "config.yaml", "--checkpoint", "last", "--lora-r", "8").expect(1, "[rlalgo.config.29]", "r: 4")
    fewer = {"lora_target_linear": False, "lora_target_modules": ["q_proj"]}
    c.config({**SAVED, **LORA, **fewer, "val_set_size": 0.004, "trl": rewards(c)})
    c.run("evaluate", "config.yaml", "--checkpoint", "last").expect(1, "[rlalgo.config.29]", "lora_")
    c.run("evaluate", "config.yaml", "--checkpoint", QUICKSTART / "model").expect(1, "[rlalgo.trainer.21]")


@case
def bfloat16(c):
    c.train({**SAVED, "bf16": True, "val_set_size": 0.004, "trl": rewards(c)}).expect(0)
    same(c)


@case
def preferences(c):
    rows = [{"prompt": f"{i % 7} + {i % 5} =", "chosen": f" {i % 7 + i % 5} #{i}", "rejected": f" {i % 7 + i % 5 + 1} #"} for i in range(24)]
    (c.folder / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = {"base_model": BASE["base_model"], "rl": "dpo", "datasets": [{"path": "pairs.jsonl"}], "sequence_len": 64, "micro_batch_size": 2,
           "learning_rate": 1e-3, "max_steps": 2, "val_set_size": 0.25, "output_dir": "out", "float32": True, **SAVED}
    for change in [{"trl": {"sync_ref_model": True, "ref_model_sync_steps": 1}}, {"precompute_ref_log_probs": True, "dataset_prepared_path": "kept"},
                   {**LORA, "rl": "orpo"}]:
        shutil.rmtree(c.folder / "out", ignore_errors=True)
        c.config(text=json.dumps({**run, **change}))
        c.run("train", "config.yaml").expect(0)
        assert {"eval_loss", "eval_rewards/accuracies", "eval_rewards/margins"} <= logged(c, 2).keys()
        pairs = (c.folder / "out/pairs.json").read_bytes()
        same(c, model="trl" not in change)
        assert (c.folder / "out/pairs.json").read_bytes() == pairs, "an evaluation changed the run's pairs"


@case
def feature_matching(c):
    """Both modes of rl: ebft on held-out rows, without an adapter and with one."""
    data = str(QUICKSTART / "data" / "train.jsonl")
    common = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-3, "max_steps": 2, "val_set_size": 0.004, "output_dir": "out", "float32": True, **SAVED}
    strided = {**common, "datasets": [{"path": data, "type": "ebft_strided_structured.transform"}], "sequence_len": 48, "micro_batch_size": 2,
               "ebft": {"mode": "strided", "n_samples_per_prompt": 3, "generate_max_len": 3, "use_whitening": True, "ce_coef": 0.1}}
    rows = [{"input": f"{i % 7} + {i % 5} =", "output": f"{i % 7 + i % 5} apples"} for i in range(24)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    structured = {**common, "datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}], "micro_batch_size": 4, "val_set_size": 0.25,
                  "ebft": {"mode": "structured", "ce_coef": 0.1}, "trl": {"num_generations": 4, "max_completion_length": 8}}
    for run in [strided, structured, {**strided, **LORA}]:
        shutil.rmtree(c.folder / "out", ignore_errors=True)
        c.config(text=json.dumps(run))
        c.run("train", "config.yaml").expect(0)
        assert {"eval_loss", "eval_ebft/alignment", "eval_ebft/cfm_loss", "eval_ebft/ce_loss"} <= logged(c, 2).keys(), logged(c, 2)
        same(c)


@case
def on_other_rows(c):
    """Overrides come after CONFIG; what differs from the training is told, on standard error."""
    c.train({"save_steps": 2, "save_strategy": "steps", "val_set_size": 0.004}).expect(0)
    (c.folder / "result.json").write_text("old")
    (c.folder / "link.json").symlink_to("result.json")
    result = c.run("evaluate", "config.yaml", "--val-set-size", "0.01", "--checkpoint", "last", "--trl.temperature=0.5", "--output", "link.json").expect(0)
    assert (c.folder / "link.json").is_symlink() and (c.folder / "result.json").read_text() == result.out
    assert json.loads(result.out)["model"] == "out/checkpoint-2", result.out
    assert "trl.temperature: 1.0 in the checkpoint, 0.5 now" in result.err, result.err


@case
def refusals(c):
    c.run("evaluate").expect(2, "[rlalgo.cli.18]")
    c.train({"save_steps": 1, "save_strategy": "steps"}).expect(0)
    c.run("evaluate", "config.yaml").expect(2, "[rlalgo.config.32]", "val_set_size")
    held_out = ["--val-set-size", "0.004"]
    c.run("evaluate", "config.yaml", *held_out, "--checkpoint").expect(2, "[rlalgo.cli.8]", "--checkpoint")
    c.run("evaluate", "config.yaml", *held_out, "--checkpoint", "none").expect(2, "[rlalgo.config.30]", "none")
    c.run("evaluate", "config.yaml", *held_out, "--checkpoint", "last", "--output-dir", "empty").expect(2, "[rlalgo.config.30]")
    c.run("evaluate", "config.yaml", *held_out, "--chekpoint", "last").expect(2, "[rlalgo.config.4]")
    weights = c.folder / "out/checkpoint-1/model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    weights.write_bytes(flipped)
    c.run("evaluate", "config.yaml", *held_out, "--checkpoint", "out/checkpoint-1").expect(1, "[rlalgo.run.5]", "damaged")
    assert not (c.folder / "out/eval_results.json").exists(), "a refused evaluation left a result"
    c.run("evaluate", "config.yaml", *held_out, "--checkpoint", "out/checkpoint-2", "--output", "config.yaml/x").expect(1, "[rlalgo.os.")


@case
def follows_evaluations(c):
    """reduce_lr_on_plateau: the rate falls with evaluations, and a resumed run goes on with the same bytes."""
    run = {**SAVED, "val_set_size": 0.004, "max_steps": 6, "logging_steps": 1, "lr_scheduler": "reduce_lr_on_plateau",
           "metric_for_best_model": "reward", "lr_scheduler_kwargs": {"mode": "max", "patience": 0, "factor": 0.5, "threshold": 1e9}}
    c.train({**run, "output_dir": "whole"}).expect(0)
    rates = [r["learning_rate"] for r in c.metrics("whole") if "learning_rate" in r]
    assert rates[0] == 1e-3 and rates == sorted(rates, reverse=True) and rates[-1] < rates[0], rates
    for step in (1, 3, 4):
        c.train({**run, "output_dir": f"from-{step}"}, "--resume-from-checkpoint", f"whole/checkpoint-{step}").expect(0)
        for file in ["model.safetensors", "checkpoint-6/optimizer.safetensors"]:
            assert (c.folder / f"from-{step}" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), (step, file)
    c.train({**run, "eval_steps": 2}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "[rlalgo.run.12]", "eval_steps")
    c.train({**run, "metric_for_best_model": "rewards"}).expect(2, "[rlalgo.trainer.26]", "reward_std")


if __name__ == "__main__":
    main(CASES)
