"""What a run may not write over, and what it says before it loads a model: the model's weights here are garbage."""
import json
import os
import pathlib
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()}


PAIRS = {"rl": "dpo", "datasets": [{"path": "data/pairs.jsonl"}]}


def pairs(c, changes, *overrides):
    """Trains on preferences: BASE without what is of rollouts."""
    return c.run("train", c.config({**PAIRS, "base_model": "model", **changes}, drop=["trl"]), *overrides)


def setting(c):
    model = c.model_copy()
    (model / "model.safetensors").write_text("garbage")
    (c.folder / "data").mkdir()
    (c.folder / "data" / "pairs.jsonl").write_text("".join(
        json.dumps({"prompt": f"1 + {i} =", "chosen": str(i + 1), "rejected": "x"}) + "\n" for i in range(8)))
    return model


@case
def everything_that_is_not_there_at_once(c):
    """Keys, models, data, an output that is a file, functions that no file has: one run says all of it, by line."""
    setting(c)
    (c.folder / "taken").write_text("a file")
    (c.folder / "games.py").write_text("class Game:\n    def reset(self, **row):\n        pass\n")
    text = """base_model: nowhere
rl: grpo
datasets:
  - path: data/pairs.jsonl
  - path: data/none.jsonl
output_dir: taken
learning_rate: -1
micro_batch_sise: 8
trl:
  num_generations: 4
  reward_funcs: [absent.first, games.second, builtin.gsm8k_accuracy]
  environment_factory: games.Chess
"""
    told = c.run("train", c.config(text=text)).expect(2, "[rlalgo.config.45] 8 problems, by line")
    lines = [line for line in told.err.splitlines() if line.startswith("  [rlalgo")]
    expected = (("config.20", "nowhere", "config.yaml:1"), ("data.1", "data/none.jsonl", "config.yaml:5"), ("os.1", "taken", "config.yaml:6"),
                ("config.6", "learning_rate", "config.yaml:7"), ("config.4", "micro_batch_size", "config.yaml:8"))
    for line, parts in zip(lines, expected):
        assert all(part in line for part in parts), (line, parts)
    for parts in (("remote.51", "Chess", "config.yaml:12"), ("absent", "config.yaml:11"), ("second", "config.yaml:11")):
        assert any(all(part in line for part in parts) for line in lines), (parts, told.err)
    assert (c.folder / "taken").read_text() == "a file"
    # Without anything else refused, all functions that cannot be loaded are said, too.
    fine = {"base_model": "model", "datasets": [{"path": "data/rows.jsonl"}], "trl": {
        "reward_funcs": ["absent.first", "games.second"], "environment_factory": "games.Chess"}}
    (c.folder / "data/rows.jsonl").write_text('{"prompt": [{"role": "user", "content": "1 + 1 ="}]}\n')
    c.train(fine).expect(2, "3 problems", "absent", "second", "Chess")


@case
def output_over_input(c):
    """Every spelling of the base model's, a dataset's and an adapter's directory; nothing is touched."""
    model = setting(c)
    (c.folder / "link").symlink_to(model)
    before = tree(c.folder)
    for output in ("model", "./model/", "model/.", "out/../model", "link", model, "model/out", "link/deep/out", ".", "data", "~/model"):
        result = c.run("train", c.config({"base_model": "model", "datasets": [{"path": "data/pairs.jsonl"}]}), f"--output-dir={output}",
                       env={"HOME": str(c.folder)})
        result.expect(2, "[rlalgo.config.31]", "output_dir")
        (c.folder / "config.yaml").unlink()
        assert tree(c.folder) == before, output
    c.train({"base_model": "link", "output_dir": "model"}).expect(2, "[rlalgo.config.31]", "base_model")
    c.train({"base_model": "model", "lora_model_dir": "adapter", "adapter": "lora", "output_dir": "adapter"})  # not there: config.20
    (c.folder / "adapter").mkdir(exist_ok=True)
    c.train({"base_model": "model", "lora_model_dir": "adapter", "adapter": "lora", "output_dir": "adapter"}).expect(
        2, "[rlalgo.config.31]", "lora_model_dir")
    pairs(c, {"dataset_prepared_path": "model"}).expect(2, "[rlalgo.config.31]", "dataset_prepared_path")
    c.run("preprocess", "config.yaml").expect(2, "[rlalgo.config.31]", "dataset_prepared_path")
    for output in ("model", "model/merged", "adapter", "."):
        c.run("merge-lora", "--model", "link", "--lora-model-dir", "adapter", "--output-dir", output).expect(2, "[rlalgo.config.31]")
    assert (model / "model.safetensors").read_text() == "garbage"


@case
def refused_before_the_model_is_loaded(c):
    """A model that cannot be loaded is not what is complained of."""
    setting(c)
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.")
    assert not (c.folder / "out").exists(), "a run that never began leaves no directory"
    (c.folder / "file").write_text("x")
    os.symlink("nowhere", c.folder / "dangling")
    for output in ("file", "file/out", "dangling", "n" * 300, "/proc/out", "/".join(["d" * 200] * 20)):
        c.train({"base_model": "model", "output_dir": output}).expect(1, "[rlalgo.os.1]")
    model = {"base_model": "model"}
    for name in ("model.safetensors", "config.json", "metrics.jsonl"):
        (c.folder / "taken" / name).mkdir(parents=True)
        c.train({**model, "output_dir": "taken"}).expect(1, "[rlalgo.os.1]", f"taken/{name}", "a regular file")
        (c.folder / "taken" / name).rmdir()
    c.train({**model, "output_dir": "~no-such-user-here/out"}).expect(2, "[rlalgo.os.9]", "config.yaml:")
    assert not list(c.folder.glob("~*"))
    c.train({**model, "adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["no_proj"]}).expect(2, "[rlalgo.model.23]", "no_proj")
    c.train({**model, "unfrozen_parameters": ["no_layer"]}).expect(2, "[rlalgo.model.23]", "no_layer")
    c.train({**model, "resume_from_checkpoint": "none/checkpoint-3"}).expect(1, "[rlalgo.run.4]", "none/checkpoint-3")
    c.train({**model, "micro_batch_size": 40000, "trl": {"num_generations": 2}}).expect(2, "[rlalgo.config.11]", "fewer rows")
    c.train({**model, "trl": {"use_vllm": True, "vllm_server_base_url": "https://x"}}).expect(2, "[rlalgo.http.4]")
    (c.folder / "data" / "long.jsonl").write_text(json.dumps({"prompt": "apples " * 5000}) + "\n")
    c.train({**model, "datasets": [{"path": "data/long.jsonl"}], "micro_batch_size": 4}).expect(1, "[rlalgo.config.27]")
    adapter = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "trl": {"sync_ref_model": True}}
    c.config({**PAIRS, **model, **adapter})
    settings = json.loads((c.folder / "config.yaml").read_text())
    settings["trl"] = {"sync_ref_model": True}
    (c.folder / "config.yaml").write_text(json.dumps(settings))
    c.run("train", "config.yaml").expect(2, "[rlalgo.config.8]", "sync_ref_model")
    os.mkfifo(c.folder / "fifo")
    beside = {"async_prefetch": True, "async_schedule": "record"}
    for file in ("fifo", "data", "none/calls", "file/calls"):
        c.train({**model, "trl": {**beside, "async_schedule_file": file}}).expect(1, "[rlalgo.sync.7]", file)
    for file in ("fifo", "data", "none/calls", "file"):
        c.train({**model, "trl": {**beside, "async_schedule": "recorded", "async_schedule_file": file}}).expect(1, "[rlalgo.sync.5]", file)
    held_out = {**model, "val_set_size": 0.01, "output_dir": "evaluated"}
    for output, code, number in (("fifo", 1, "os.1"), ("/dev/null", 1, "os.1"), ("data", 1, "os.1"), ("data/pairs.jsonl/x", 1, "os.1"),
                                 ("config.yaml", 2, "config.31"), ("model/config.json", 2, "config.31"), ("~no-such-user-here/x", 2, "os.9")):
        c.run("evaluate", c.config(held_out), f"--output={output}").expect(code, f"[rlalgo.{number}]")
    assert not (c.folder / "evaluated").exists() and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    c.run("evaluate", "config.yaml", "--checkpoint=~/none", env={"HOME": str(c.folder)}).expect(2, "[rlalgo.config.30]", f"{c.folder}/none")
    pairs(c, {"sequence_len": 4, "excess_length_strategy": "raise"}).expect(1, "[rlalgo.data.25]")


@case
def preparation_needs_no_weights(c):
    setting(c)
    c.config({**PAIRS, "base_model": "model", "dataset_prepared_path": "~/prepared"}, drop=["trl"])
    c.run("preprocess", "config.yaml", env={"HOME": str(c.folder / "home")}).expect(0, "prepared in")
    assert list((c.folder / "home" / "prepared").glob("answers-*.bin")) and not list(c.folder.glob("~*"))


if __name__ == "__main__":
    main(CASES)
