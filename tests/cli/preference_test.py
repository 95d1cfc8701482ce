"""Preference methods as a user runs them: every method, resume after a kill, data formats, preprocess, bad input."""
import gzip
import json
import pathlib
import random
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, without_times  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def rows(count, begin=0):
    """Pairs whose chosen answer is right and whose rejected one is not."""
    return [{"prompt": f"{i % 7} + {i % 5} =", "chosen": f" {i % 7 + i % 5} #{i}", "rejected": f" {i % 7 + i % 5 + 1} #"}
            for i in range(begin, begin + count)]


def labelled(count):
    return [{"prompt": row["prompt"], "completion": row["chosen" if i % 3 else "rejected"], "label": bool(i % 3)}
            for i, row in enumerate(rows(count))]


def write(c, name, items):
    text = "".join(json.dumps(item) + "\n" for item in items)
    path = c.folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return name


def settings(c, rl="dpo", data=None, **more):
    """A configuration file of a small run over `data` (rows, or a list of entries)."""
    if data is None:
        data = labelled(24) if rl == "kto" else rows(24)
    if data and "path" not in data[0]:
        data = [{"path": write(c, "rows.jsonl", data)}]
    config = {"base_model": BASE["base_model"], "rl": rl, "datasets": data, "sequence_len": 64, "micro_batch_size": 2,
              "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "lr_scheduler": "constant", "warmup_steps": 0,
              "max_steps": 3, "logging_steps": 1, "save_strategy": "no", "output_dir": "out", "float32": True, **more}
    return c.config(text=json.dumps(config, indent=1), name=more.get("output_dir", "out") + ".yaml")


def notes(result):
    return result.err + result.out


@case
def epochs_and_tokens(c):
    """As transformers counts: an epoch of 5 micro-batches whose last step has one; the tokens of training stand beside an evaluation."""
    c.run("train", settings(c, "dpo", rows(10), max_steps=4, test_datasets=[{"path": write(c, "held.jsonl", rows(2))}],
                            eval_steps=2)).expect(0)
    records = c.metrics("out")
    assert [r["epoch"] for r in records if "loss" in r] == [0.4, 0.8, 1.0, 1.4], records
    tokens = {r["step"]: r["num_tokens"] for r in records if "loss" in r}
    evaluated = {r["step"]: r["eval_num_tokens"] for r in records if "eval_loss" in r}
    assert evaluated == {0: 0, 2: tokens[2], 4: tokens[4]}, (tokens, evaluated)
    assert json.loads((c.folder / "out/trainer_state.json").read_text())["num_train_epochs"] == 2


@case
def every_method(c):
    """Trains, logs TRL's names, evaluates, writes model and report."""
    for rl in ["dpo", "ipo", "kto", "orpo", "simpo", "cpo"]:
        c.run("train", settings(c, rl, output_dir=rl, val_set_size=0.25, eval_steps=3)).expect(0)
        records = c.metrics(rl)
        train = [r for r in records if "loss" in r]
        evaluation = [r for r in records if "eval_loss" in r]
        assert len(train) == 3 and evaluation, records
        pairs = {"rewards/accuracies"} if rl != "kto" else {"kl"}
        for name in {"loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen",
                     "logps/rejected", "logits/chosen", "logits/rejected"} | pairs:
            assert any(name in r for r in train), (rl, name)
            assert "eval_" + name in evaluation[-1] or name == "grad_norm", (rl, name)
        if rl == "orpo":
            assert "log_odds_ratio" in train[0] and "nll_loss" in train[0], train[0]
        html = (c.folder / rl / "report.html").read_text()
        assert "Rewards of chosen and rejected" in html
        assert ("Most and least separated pairs" in html) == (rl != "kto"), rl
        assert (c.folder / rl / "model.safetensors").is_file()


@case
def resume_after_kill(c):
    """Killed at random moments and resumed each time: the bytes and records of an undisturbed run."""
    long = {"max_steps": 12, "save_steps": 1, "save_strategy": "steps", "logging_steps": 2}
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "lora_dropout": 0.1}
    for rl, extra in [("dpo", {"dpo_loss_type": ["sigmoid", "sft"], "trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}}),
                      ("kto", {}),
                      ("ipo", {"precompute_ref_log_probs": True, "dataset_prepared_path": "prepared"}),
                      ("orpo", {"val_set_size": 0.25, "eval_steps": 5}),
                      ("simpo", lora),
                      ("cpo", {"lr_scheduler": "cosine", "optimizer": "paged_adamw_8bit"})]:
        c.run("train", settings(c, rl, output_dir=rl + "-whole", **long, **extra)).expect(0)
        name = settings(c, rl, output_dir=rl, auto_resume_from_checkpoints=True, **long, **extra)
        dice = random.Random(7)
        for _ in range(5 if rl in ("dpo", "kto") else 2):
            process = c.start("train", name)
            time.sleep(dice.uniform(0.1, 1.2))
            process.kill()
            process.communicate()
        c.run("train", name).expect(0)
        weights = "adapter_model.safetensors" if "adapter" in extra else "model.safetensors"
        for file in [weights, "checkpoint-12/optimizer.safetensors"]:
            assert (c.folder / rl / file).read_bytes() == (c.folder / (rl + "-whole") / file).read_bytes(), (rl, file)
        assert without_times(c.metrics(rl)) == without_times(c.metrics(rl + "-whole")), rl


@case
def preprocess_then_train(c):
    name = settings(c, dataset_prepared_path="prepared", precompute_ref_log_probs=True)
    first = c.run("preprocess", name, "--debug").expect(0, "24 pairs to train on", "prepared in prepared")
    assert ", chosen, " in first.out and ", rejected, " in first.out, first.out
    assert " tokens, " in first.out and " with loss" in first.out and "read from" not in first.out, first.out
    c.run("preprocess", name).expect(0, "read from prepared")
    assert len(list((c.folder / "prepared").glob("answers-*.bin"))) == 1
    c.run("train", name).expect(0, "read from prepared", "computed and kept in prepared")
    whole = (c.folder / "out/model.safetensors").read_bytes()
    c.run("train", settings(c, dataset_prepared_path="prepared", precompute_ref_log_probs=True, output_dir="again")).expect(
        0, "reference log-probs of 24 examples read from prepared")
    assert (c.folder / "again/model.safetensors").read_bytes() == whole
    c.run("train", settings(c, output_dir="plain")).expect(0)
    plain = c.metrics("plain")
    assert abs(plain[-1]["loss"] - c.metrics("again")[-1]["loss"]) < 1e-4, "precomputed references change the loss"
    damaged = next((c.folder / "prepared").glob("answers-*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    c.run("train", name).expect(1, "[rlalgo.data.27]")
    assert "tokens are drawn" in c.run("preprocess", c.config(), "--debug").expect(0).out, "prompts of an online method"


@case
def files_of_every_kind(c):
    """gzip, CSV, TSV, a directory, patterns, splits, several datasets, test_datasets, deduplication."""
    write(c, "rows.jsonl.gz", rows(8))
    (c.folder / "rows.csv").write_text("prompt,chosen,rejected\n" + "".join(
        f"\"{r['prompt']}\",\"{r['chosen']}, \"\"yes\"\"\",{i}\n" for i, r in enumerate(rows(6))))
    (c.folder / "rows.tsv").write_text("prompt\tchosen\trejected\n1 + 1 =\t2\t3\n")
    (c.folder / "folder").mkdir()
    write(c, "folder/train-0.jsonl", rows(5))
    write(c, "folder/train-1.jsonl", rows(5, 5))
    write(c, "folder/test.jsonl", rows(4, 30))
    data = [{"path": "rows.jsonl.gz", "split": "train[:50%]"}, {"path": "rows.csv"}, {"path": "rows.tsv"},
            {"path": "folder", "split": "train[-3:]"}, {"data_files": ["folder/train-*.jsonl"]}]
    c.run("train", settings(c, data=data, dataset_exact_deduplication=True,
                            test_datasets=[{"path": "folder", "split": "test"}])).expect(
        0, "17 pairs to train on, 4 held out", "datasets: 7 duplicate rows dropped")  # 4 + 6 + 1 + 3 + 10 − 7
    (c.folder / "x.parquet").write_bytes(b"PAR1")
    c.run("train", settings(c, data=[{"path": "x.parquet"}])).expect(1, "[rlalgo.data.38]", "x.parquet")
    (c.folder / "cut.jsonl.gz").write_bytes((c.folder / "rows.jsonl.gz").read_bytes()[:-12])
    c.run("train", settings(c, data=[{"path": "cut.jsonl.gz"}])).expect(1, "[rlalgo.data.28]")


@case
def python_transform(c):
    (c.folder / "mine.py").write_text(
        "def pairs(cfg, *args, **kwargs):\n"
        "    def row(example):\n"
        "        return {'prompt': example['q'], 'chosen': example['good'] + str(cfg.sequence_len), 'rejected': example['bad']}\n"
        "    return row, {'remove_columns': ['q', 'good', 'bad']}\n"
        "def failing(cfg):\n"
        "    return lambda example: 1 / 0\n")
    data = [{"q": r["prompt"], "good": r["chosen"], "bad": r["rejected"]} for r in rows(8)]
    path = write(c, "mine.jsonl", data)
    c.run("train", settings(c, data=[{"path": path, "type": "mine.pairs"}])).expect(0, "8 pairs")
    c.run("preprocess", settings(c, data=[{"path": path, "type": "mine.pairs"}]), "--debug").expect(0, "8 pairs")
    c.run("train", settings(c, data=[{"path": path, "type": "mine.failing"}])).expect(
        1, "[rlalgo.remote.42]", "ZeroDivisionError", "mine.jsonl:1")
    c.run("train", settings(c, data=[{"path": path, "type": "mine.absent"}])).expect(1, "[rlalgo.remote.41]", "failing, pairs")
    # Online methods, too.
    (c.folder / "ask.py").write_text(
        "def ask(cfg, *args, **kwargs):\n    return lambda row: {'prompt': [{'role': 'user', 'content': row['question']}]}\n")
    c.train({"datasets": [{"path": str(QUICKSTART / "data" / "train.jsonl"), "type": "ask.ask"}], "max_steps": 1}).expect(0)


@case
def bad_rows(c):
    good = rows(3)

    def expect(bad, *parts, rl="dpo", code=1, data=None, **more):
        c.run("train", settings(c, rl, data=data or good + [bad], **more)).expect(code, *parts)

    expect({"prompt": "a", "chosen": "b"}, "[rlalgo.data.10]", "rejected", "rows.jsonl:4")
    expect({"prompt": "", "chosen": "b", "rejected": "c"}, "[rlalgo.data.23]", "prompt", "rows.jsonl:4")
    expect({"prompt": "a", "chosen": "b", "rejected": None}, "[rlalgo.data.10]", "rejected", "rows.jsonl:4")
    expect({"prompt": "a", "chosen": 5, "rejected": "c"}, "[rlalgo.data.8]", "chosen", "rows.jsonl:4")
    expect({}, "[rlalgo.data.10]", "chosen", "rows.jsonl:1", data=[{"prompt": "a", "chosen": 5, "rejected": 6}])
    expect({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"}, "[rlalgo.data.8]",
           "mixes types", "rows.jsonl:4")
    expect({}, "[rlalgo.data.24]", "yes", "rows.jsonl:1", rl="kto", data=[{"prompt": "a", "completion": "b", "label": "yes"}])
    expect({}, "[rlalgo.data.24]", rl="kto", data=[{"prompt": "a", "completion": "b"}])
    expect({"prompt": "x" * 400, "chosen": "b", "rejected": "c"}, "[rlalgo.data.25]", "rows.jsonl:4",
           excess_length_strategy="raise")
    expect({}, "[rlalgo.data.26]", data=[{"prompt": "x" * 400, "chosen": "b", "rejected": "c"}])
    expect({}, "[rlalgo.data.9]", "chatml.intel", code=2, data=[{"path": write(c, "g.jsonl", good), "type": "chatml.intell"}])
    c.no_output()


@case
def counted_warnings(c):
    data = rows(6) + [{"prompt": "a", "chosen": "same", "rejected": "same"}, {"prompt": "x" * 400, "chosen": "b", "rejected": "c"}]
    c.run("train", settings(c, data=data)).expect(
        0, "1 of 8 pairs have the same chosen and rejected answer", "1 of 8 rows dropped, longer than sequence_len")
    desirable = [{**row, "label": True} for row in labelled(8)]
    c.run("train", settings(c, "kto", data=desirable)).expect(
        0, "all rows have the label true", "all rows are desirable", "8 desirable and 1 undesirable rows are not in balance")


@case
def not_finite(c):
    """A weight that is not a number: rows are named and saved, no weights are written, nothing is overwritten."""
    model = c.model_copy() / "model.safetensors"
    raw = bytearray(model.read_bytes())
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    end = start + json.loads(raw[8:start])["model.embed_tokens.weight"]["data_offsets"][1]
    raw[end - 4:end] = b"\xff" * 4
    model.write_bytes(raw)
    for _ in range(2):
        c.run("train", settings(c, base_model="model")).expect(1, "[rlalgo.trainer.31]", "dataset rows", "step 1")
    assert not (c.folder / "out/model.safetensors").exists()
    saved = sorted(p.name for p in (c.folder / "out").glob("offending_rows*"))
    assert saved == ["offending_rows-step-1-2.jsonl", "offending_rows-step-1.jsonl"], saved
    first = json.loads((c.folder / "out" / saved[1]).read_text().splitlines()[0])
    assert set(first) == {"row", "desirable", "loss", "log_prob", "reference_log_prob", "prompt", "completion", "ids"}, first
    assert first["loss"] is None and "=" in first["prompt"], first
    c.run("train", settings(c, learning_rate=1e30)).expect(1, "[rlalgo.trainer.31]", "8 of 8 answers", "learning_rate")


@case
def adapters(c):
    """LoRA: a continued adapter, as it starts, is the reference; rl_adapter_ref_model: false asks for the base."""
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    c.run("train", settings(c, output_dir="first", **lora)).expect(0)
    margins = {}
    for own in [False, True]:
        c.run("train", settings(c, output_dir=f"own-{own}", lora_model_dir="first", rl_adapter_ref_model=own, **lora)).expect(0)
        margins[own] = c.metrics(f"own-{own}")[0]["rewards/margins"]
    assert abs(margins[True]) < 1e-5, "the adapter as it starts is the reference"
    assert abs(margins[False]) > 1e-4, margins


@case
def invalid_combinations(c):
    """Each combination that spec and reference refuse has its numbered error, before anything is loaded."""
    for changes, number in [
            ({"rl": "dpo", "sample_packing": True}, "[rlalgo.config."),
            ({"rl": "kto", "eval_sample_packing": True}, "[rlalgo.config.8]"),
            ({"rl": "kto", "remove_unused_columns": True}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "dpo_loss_weights": [1.0]}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "dpo_loss_type": ["sigmoid", "ipo"], "dpo_loss_weights": [1.0]}, "[rlalgo.config.8]"),
            ({"rl": "ipo", "dpo_loss_type": ["ipo"]}, "[rlalgo.config.8]"),
            ({"rl": "kto", "dpo_loss_weights": [1.0]}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "dpo_loss_type": "sigmoid"}, "[rlalgo.config."),
            ({"rl": "dpo", "dpo_loss_type": ["sigmoidal"]}, "[rlalgo.config.6]"),
            ({"rl": "dpo", "dpo_loss_type": ["exo_pair"]}, "[rlalgo.config."),
            ({"rl": "dpo", "dpo_loss_type": ["aot"], "dpo_use_weighting": True}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "dpo_loss_type": ["nca_pair"], "trl": {"f_divergence_type": "js_divergence"}}, "[rlalgo.config.8]"),
            ({"rl": "ipo", "dpo_use_liger_kernel": True}, "[rlalgo.config.8]"),
            ({"rl": "simpo", "warmup_ratio": 0.1, "warmup_steps": None}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "warmup_ratio": 0.1, "warmup_steps": 2}, "[rlalgo.config."),
            ({"rl": "kto", "micro_batch_size": 1, "gradient_accumulation_steps": 1}, "[rlalgo.config.11]"),
            ({"rl": "dpo", "dpo_use_logits_to_keep": True}, "[rlalgo.config.13]"),
            ({"rl": "dpo", "dpo_generate_during_eval": False}, "[rlalgo.config.13]"),
            ({"rl": "dpo", "dpo_norm_loss": False}, "[rlalgo.config.13]"),
            ({"rl": "dpo", "rpo_alpha": 1.0}, "[rlalgo.config.13]"),
            ({"rl": "dpo", "beta": 0.2, "trl": {"beta": 0.1}}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "rl_beta": 0}, "[rlalgo.config."),
            ({"rl": "dpo", "precompute_ref_log_probs": True, "trl": {"sync_ref_model": True}}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "adapter": "lora", "lora_r": 2, "lora_alpha": 2, "lora_target_linear": True,
              "trl": {"sync_ref_model": True}}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "dataset_exact_deduplication": True, "skip_prepare_dataset": True}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "val_set_size": 0.1, "test_datasets": [{"path": "rows.jsonl"}]}, "[rlalgo.config."),
            ({"rl": "dpo", "val_set_size": 100}, "[rlalgo."),
            ({"rl": "orpo", "precompute_ref_log_probs": True}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "load_in_4bit": True}, "[rlalgo.config.10]"),
            ({"rl": "dpo", "kto_desirable_weight": 2.0}, "[rlalgo.config.8]"),
            ({"rl": "dpo", "excess_length_strategy": "chop"}, "[rlalgo.config.6]"),
            ({"rl": "dpo", "push_dataset_to_hub": "x"}, "[rlalgo.config.10]"),
    ]:
        result = c.run("train", settings(c, **{**changes, "rl": changes["rl"], "max_steps": 1}))
        assert number in notes(result), (changes, notes(result)[-600:])
        assert result.code == 2, (changes, result.code, notes(result)[-600:])


if __name__ == "__main__":
    main(CASES)
