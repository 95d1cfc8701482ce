"""What a run leaves for others: an adapter's directory, model cards, dtypes, merges; runs that end themselves; other optimizers."""
import json
import pathlib
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main, same_files  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
LEARNS = {"learning_rate": 1e-3, "warmup_steps": 0, "trl": {"reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 32}}
MODEL = QUICKSTART / "model"


def header(path):
    data = path.read_bytes()
    entries = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: entry for name, entry in entries.items() if name != "__metadata__"}


def dtypes(path):
    return {entry["dtype"] for entry in header(path).values()}


def names(folder):
    return {p.name for p in folder.iterdir() if p.is_file()}


def front(path):
    """The front matter of a model card, of which every value is a scalar or a list of them."""
    lines = path.read_text().split("---\n")[1].splitlines()
    out, key = {}, None
    for line in lines:
        if line.startswith("- "):
            out[key].append(line[2:])
        else:
            key, _, value = line.partition(":")
            out[key] = value.strip() or []
    return out


@case
def an_adapter(c):
    """PEFT's files and a card, no config.json, in checkpoints too; what was there of a whole model goes; everything that reads one still does."""
    c.train({**LEARNS, "save_strategy": "steps", "save_steps": 1}).expect(0)
    assert {"config.json", "model.safetensors", "README.md"} <= names(c.folder / "out")
    c.train({**LEARNS, **LORA, "save_strategy": "steps", "save_steps": 1, "val_set_size": 0.01}).expect(0)
    for folder in (c.folder / "out", c.folder / "out/checkpoint-2"):
        assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md"} <= names(folder), folder
        assert not {"config.json", "generation_config.json", "model.safetensors"} & names(folder), names(folder)
        card = front(folder / "README.md")
        assert card["base_model"] == str(MODEL) and card["library_name"] == "peft" and card["pipeline_tag"] == "text-generation", card
        assert card["tags"] == sorted([f"base_model:adapter:{MODEL}", "generated_from_trainer", "grpo", "lora", "rlalgo", "transformers"]), card
    row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 4, "temperature": 0}) + "\n"
    ours = c.run("generate", "--model", MODEL, "--lora-model-dir", "out", stdin=row).expect(0).out
    c.run("inference", "out", "--max-new-tokens", "3", stdin="2 + 3 =").expect(0)
    c.run("evaluate", "config.yaml", "--checkpoint", "out").expect(0, "eval_")
    # A directory of an earlier build has the base's config.json.
    shutil.copytree(c.folder / "out", c.folder / "older", ignore=shutil.ignore_patterns("checkpoint-*", "runs"))
    shutil.copy(MODEL / "config.json", c.folder / "older/config.json")
    assert c.run("generate", "--model", MODEL, "--lora-model-dir", "older", stdin=row).expect(0).out == ours
    c.run("inference", "older", "--max-new-tokens", "3", stdin="2 + 3 =").expect(0)
    c.run("evaluate", "config.yaml", "--checkpoint", "older").expect(0)
    # A whole model where an adapter was.
    c.train(LEARNS).expect(0)
    assert "adapter_config.json" not in names(c.folder / "out") and "config.json" in names(c.folder / "out")
    assert front(c.folder / "out/README.md")["library_name"] == "transformers"


@case
def an_adapter_of_another_base(c):
    """Its own config.json is not there to tell; the base that it names is."""
    other = c.folder / "other"
    shutil.copytree(MODEL, other)
    config = json.loads((other / "config.json").read_text())
    config["rope_theta"] = 3 * config.get("rope_theta", 10000.0)
    if "rope_parameters" in config:
        config["rope_parameters"]["rope_theta"] = config["rope_theta"]
    (other / "config.json").write_text(json.dumps(config))
    c.train({**LEARNS, **LORA, "base_model": str(other), "output_dir": "theirs"}).expect(0)
    c.config({**LEARNS, **LORA, "val_set_size": 0.01})
    c.run("evaluate", "config.yaml", "--checkpoint", "theirs").expect(1, "[rlalgo.config.29]", "positions")


@case
def a_readme_of_ones_own(c):
    (c.folder / "out").mkdir()
    (c.folder / "out/README.md").write_text("# My notes\n")
    c.train(LEARNS).expect(0, "README.md", "it is kept")
    assert (c.folder / "out/README.md").read_text() == "# My notes\n"


@case
def dtype_of_the_base(c):
    """A base in bfloat16 that is trained in float32 is saved in bfloat16; checkpoints have all bits, so a resume repeats them."""
    assert dtypes(MODEL / "model.safetensors") == {"BF16"}
    run = {**LEARNS, "float32": None, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    c.train({**run, "output_dir": "whole"}).expect(0)
    whole = c.folder / "whole"
    assert dtypes(whole / "model.safetensors") == {"BF16"} and dtypes(whole / "checkpoint-2/model.safetensors") == {"F32"}
    config = json.loads((whole / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16", config
    config = json.loads((whole / "checkpoint-2/config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "float32", config
    assert 1.9 < (whole / "checkpoint-4/model.safetensors").stat().st_size / (whole / "model.safetensors").stat().st_size < 2.1
    c.train({**run, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(0)
    for file in ("model.safetensors", "README.md", "checkpoint-4/model.safetensors", "checkpoint-4/optimizer.safetensors"):
        assert (c.folder / "half" / file).read_bytes() == (whole / file).read_bytes(), file
    # Asked for in float32, also of a resumed run: nothing that is computed changes.
    c.train({**run, "output_dir": "wide", "float32": True}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(0)
    assert (c.folder / "wide/model.safetensors").read_bytes() == (whole / "checkpoint-4/model.safetensors").read_bytes()
    # A checkpoint that nothing goes on from is for others, too.
    c.train({**run, "output_dir": "only", "save_only_model": True}).expect(0)
    assert dtypes(c.folder / "only/checkpoint-4/model.safetensors") == {"BF16"}
    c.train({"bf16": True, "float32": True, "max_steps": 1}).expect(0, "float32", "has no effect")
    assert dtypes(c.folder / "out/model.safetensors") == {"BF16"}


@case
def modules_to_save(c):
    """PEFT's names: norm is every norm. What PEFT cannot have is refused before anything is loaded."""
    c.train({**LEARNS, **LORA, "lora_target_linear": False, "lora_target_modules": ["q_proj"], "lora_modules_to_save": ["norm"]}).expect(0)
    saved = [name for name in header(c.folder / "out/adapter_model.safetensors") if ".lora_" not in name]
    base = [name for name in header(MODEL / "model.safetensors") if name.endswith("norm.weight")]
    assert sorted(saved) == sorted("base_model.model." + name for name in base) and len(saved) > 3, saved
    c.run("merge-lora", "config.yaml").expect(0)
    c.run("inference", "out", "--max-new-tokens", "3", stdin="2 + 3 =").expect(0)
    for entry in ("layers", "self_attn", "lp"):
        c.train({**LORA, "lora_modules_to_save": [entry]}).expect(2, "[rlalgo.model.36]", entry)
    c.train({**LORA, "lora_modules_to_save": ["norms"]}).expect(2, "[rlalgo.model.23]", "norms")


@case
def a_merge_that_fails(c):
    """Nothing is left of it, and what was there stays."""
    c.train({**LEARNS, **LORA}).expect(0)
    weights = c.folder / "out/adapter_model.safetensors"
    whole = weights.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    entries = json.loads(whole[8:8 + size])
    name = next(n for n in entries if n.endswith("lora_A.weight"))
    entries[name.replace("lora_A", "lora_Z")] = entries.pop(name)
    text = json.dumps(entries).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + size:])
    c.run("merge-lora", "config.yaml", "--output-dir", "some/where").expect(1, "[rlalgo.model.30]")
    assert not (c.folder / "some").exists()
    (c.folder / "there").mkdir()
    (c.folder / "there/model.safetensors").write_text("an earlier one")
    c.run("merge-lora", "config.yaml", "--output-dir", "there").expect(1, "[rlalgo.model.30]")
    assert {p.name: p.read_text() for p in (c.folder / "there").iterdir()} == {"model.safetensors": "an earlier one"}
    weights.write_bytes(whole)
    c.run("merge-lora", "config.yaml", "--output-dir", "there").expect(0)
    card = front(c.folder / "there/README.md")
    assert card["library_name"] == "transformers" and card["base_model"] == str(MODEL), card
    assert dtypes(c.folder / "there/model.safetensors") == {"BF16"}


@case
def watchdog(c):
    """A loss that stays above its limit ends the run, which says so and saves the model; a resumed one ends where it would have."""
    run = {**LEARNS, "max_steps": 9, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2, "loss_watchdog_threshold": -1000.0}
    said = c.train(run).expect(0, "stopped after step 4", "loss_watchdog_threshold -1000.0", "3 steps", "stopped by loss_watchdog_threshold at step 4")
    assert "done: step" not in said.out, said.out
    assert [r["step"] for r in c.metrics()] == [1, 2, 3, 4]
    state = json.loads((c.folder / "out/run.json").read_text())
    assert state["status"] == "stopped" and state["step"] == 4 and "threshold" in state["error"], state
    assert {p.name for p in (c.folder / "out").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    (c.folder / "out").rename(c.folder / "whole")
    c.train({**run, "resume_from_checkpoint": "whole/checkpoint-2"}).expect(0, "stopped after step 4")
    same_files(c.folder / "whole", c.folder / "out", ["model.safetensors"])
    shutil.rmtree(c.folder / "out")
    c.train({**run, "loss_watchdog_patience": 1}).expect(0, "stopped after step 2")
    c.train({**run, "loss_watchdog_threshold": 1000.0, "max_steps": 2}).expect(0, "done: step 2")
    c.train({"loss_watchdog_patience": 3}).expect(0, "loss_watchdog_patience", "has no effect")
    c.train({"loss_watchdog_threshold": 1.0, "loss_watchdog_patience": -1}).expect(2, "[rlalgo.config.6]", "loss_watchdog_patience")


@case
def watchdog_of_several_ranks(c):
    c.config({**LEARNS, "max_steps": 6, "logging_steps": 1, "loss_watchdog_threshold": -1000.0, "loss_watchdog_patience": 1})
    c.run("train", "config.yaml", "--nproc-per-node", "2").expect(0, "stopped after step 2")


@case
def optimizers(c):
    """Each moves the weights in its own way, is in the checkpoint, and resumes to the same bytes; ranks change nothing but rounding."""
    run = {**LEARNS, "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "weight_decay": 0.01}
    seen = {}
    for name, more in (("lion", {"learning_rate": 1e-4}), ("adafactor", {}), ("muon", {"optim_args": {"ns_steps": 4}}),
                       ("muon", {**LORA, "lora_modules_to_save": ["norm"], "bf16": True, "float32": None}),
                       ("sgd", {"optim_args": {"momentum": 0.9, "nesterov": True}}), ("adagrad", {"optim_args": {"lr_decay": 0.1}}),
                       ("rmsprop", {"optim_args": "centered=true,momentum=0.5"}), ("sgd", {"bf16": True, "float32": None})):
        c.train({**run, "optimizer": name, "output_dir": "whole", **more}).expect(0)
        c.train({**run, "optimizer": name, "output_dir": "half", **more}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(0)
        weights = "adapter_model.safetensors" if "adapter" in more else "model.safetensors"
        for file in (weights, "checkpoint-4/optimizer.safetensors"):
            assert (c.folder / "half" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), (name, file)
        if weights == "model.safetensors":
            seen[name] = (c.folder / "whole" / weights).read_bytes()
        c.train({**run, **more, "output_dir": "other", "optim_args": None}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(1, "[rlalgo.run.12]", "update rule")
        shutil.rmtree(c.folder / "whole")
        shutil.rmtree(c.folder / "half")
    assert len(set(seen.values())) == 6
    c.train({"optimizer": "schedule_free_adamw"}).expect(2, "[rlalgo.config.10]", "schedule_free_adamw", "average")
    c.train({"optimizer": "muon", "optim_args": {"rank": 3}}).expect(2, "[rlalgo.config.4]", "optim_args.rank")


def widened(path):
    """Name → the bytes of the tensor in float32."""
    raw = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, entry in header(path).items():
        values = raw[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
        if entry["dtype"] == "BF16":
            wide = bytearray(2 * len(values))
            wide[2::4], wide[3::4] = values[::2], values[1::2]
            values = bytes(wide)
        out[name] = values
    return out


@case
def rates_of_groups(c):
    """A group of rate 0 stays where it was, all others move; ranks and shards have the same groups; a resume compares them and repeats the bytes."""
    groups = {"lr_groups": [{"name": "still", "modules": ["mlp"], "lr": 0}], "embedding_lr_scale": 3.0}
    run = {**LEARNS, "max_steps": 4, "save_strategy": "steps", "save_steps": 2, **groups}
    start = widened(MODEL / "model.safetensors")
    c.train({**run, "output_dir": "whole"}).expect(0)
    end = widened(c.folder / "whole/model.safetensors")
    for name, values in end.items():
        assert (values == start[name]) == ("mlp" in name), name
    c.train({**run, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(0)
    for file in ("model.safetensors", "checkpoint-4/optimizer.safetensors"):
        assert (c.folder / "half" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), file
    c.train({**run, "embedding_lr_scale": 2.0, "output_dir": "other"}, "--resume-from-checkpoint", "whole/checkpoint-2").expect(
        1, "[rlalgo.run.12]", "embedding_lr_scale")
    c.config({**run, "output_dir": "shards", "fsdp": ["full_shard"], "fsdp_version": 2})
    c.run("train", "config.yaml", "--nproc-per-node", "2").expect(0)
    for name, values in widened(c.folder / "shards/model.safetensors").items():
        assert (values == start[name]) == ("mlp" in name), name
    c.train({**run, **LORA, "embedding_lr_scale": None, "lr_groups": None, "loraplus_lr_ratio": 16, "output_dir": "plus"}).expect(0)
    c.train({**run, "embedding_lr_scale": None, "lr_groups": [{"name": "lost", "modules": ["no_such_map"], "lr": 1}]}).expect(
        2, "[rlalgo.optim.10]", "lost")


@case
def optimizers_of_several_ranks(c):
    for name in ("lion", "adafactor", "muon", "sgd", "adagrad", "rmsprop"):
        c.config({**LEARNS, "optimizer": name, "micro_batch_size": 8, "max_steps": 3})
        c.run("train", "config.yaml", "--nproc-per-node", "2").expect(0, "done: step 3")
    for name in ("lion", "sgd", "adagrad", "rmsprop"):
        c.config({**LEARNS, "optimizer": name, "fsdp": ["full_shard"], "fsdp_version": 2})
        c.run("train", "config.yaml", "--nproc-per-node", "2").expect(0, "done: step 2")
    c.config({**LEARNS, "optimizer": "muon", "fsdp": ["full_shard"], "fsdp_version": 2})
    c.run("train", "config.yaml", "--nproc-per-node", "2").expect(2, "[rlalgo.config.37]", "muon")


@case
def ends_of_completions(c):
    """Texts and ids of generation_kwargs end completions of this process's engine, asynchronously too; what it does not honour is refused."""
    def completions(kwargs, **more):
        trl = {"num_generations": 4, "max_completion_length": 24, "reward_funcs": ["count.seen"], "generation_kwargs": kwargs, **more}
        shutil.rmtree(c.folder / "out", ignore_errors=True)
        c.train({"max_steps": 1, "trl": trl}).expect(0)
        return [json.loads(line) for line in (c.folder / "seen.jsonl").read_text().splitlines()]

    (c.folder / "count.py").write_text(
        "import json\ndef seen(completions, completion_ids, **_):\n    with open('seen.jsonl', 'w') as f:\n"
        "        for text, ids in zip(completions, completion_ids):\n"
        "            f.write(json.dumps({'text': text[0]['content'] if isinstance(text, list) else text, 'ids': ids}) + '\\n')\n"
        "    return [0.0] * len(completions)\n")
    plain = completions(None)
    one = max(plain, key=lambda row: len(row["ids"]))
    assert len(one["ids"]) > 4, plain
    middle = one["ids"][2]
    for row, before in zip(completions({"stop_token_ids": [middle]}), plain):
        end = before["ids"].index(middle) + 1 if middle in before["ids"] else len(before["ids"])
        assert row["ids"] == before["ids"][:end], (row, before)
    text = one["text"].strip()[1:3]
    for kwargs, more in (({"stop": text}, {}), ({"stop_strings": [text]}, {"use_data_producer": True, "async_prefetch": True})):
        for row, before in zip(completions(kwargs, **more), plain):
            assert row["ids"] == before["ids"][:len(row["ids"])], (row, before)
            assert (text in row["text"]) == (len(row["ids"]) < len(before["ids"]) or text in before["text"]), (row, before)
    assert all(len(row["ids"]) <= 3 for row in completions({"max_new_tokens": 3}))
    assert all(len(row["ids"]) == 24 for row in completions({"ignore_eos": True}))
    for kwargs in ({"num_beams": 2}, {"presence_penalty": 1.0}):
        c.train({"trl": {"generation_kwargs": kwargs}}).expect(2, "[rlalgo.config.10]", "trl.generation_kwargs." + next(iter(kwargs)))
    c.train({"trl": {"generation_kwargs": {"stop_token": [5]}}}).expect(2, "[rlalgo.config.4]", "stop_token")


if __name__ == "__main__":
    main(CASES)
