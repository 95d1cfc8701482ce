"""A base in 4 or 8 bits as a user sees it: load_in_4bit and load_in_8bit, what is said and refused, resume, ranks, merging."""
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main, without_times  # noqa: E402
from ranks_test import PAIRS, rows, same_run  # noqa: E402
from train_test import header, tensors  # noqa: E402

CASES = {}
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "quantised"
LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
QLORA = {**LORA, "adapter": "qlora", "load_in_4bit": True}
EIGHT = {**LORA, "load_in_8bit": True}


def case(function):
    CASES[function.__name__] = function
    return function


def train(c, changes, *arguments):
    (c.folder / "run.yaml").write_text(json.dumps({**PAIRS, "rl": "dpo", **changes}, indent=1))
    return c.run("train", "run.yaml", *arguments)


@case
def preferences(c):
    """Another base for each code, all near the whole one; the reference is the base: margins begin at 0; an adapter is saved."""
    rows(c)
    first = {}
    for name, changes in {"whole": LORA, "nf4": QLORA, "eight": EIGHT,
                          "fp4": {**QLORA, "bnb_config_kwargs": {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False}},
                          "dora": {**QLORA, "peft_use_dora": True, "gradient_checkpointing": True}}.items():
        said = train(c, {**changes, "output_dir": name}).expect(0)
        note = re.search(r"the base: (\d+) linear maps in (\w+), .* ([0-9.]+) bytes each", said.err + said.out)
        assert (note is None) == (name == "whole"), said.err
        if note:
            assert note[1] == "28", note[0]
            assert note[2] == {"nf4": "nf4", "dora": "nf4", "fp4": "fp4", "eight": "int8"}[name]
            assert float(note[3]) < {"eight": 1.05}.get(name, 0.6), note[0]
        records = c.metrics(name)
        assert abs(records[0]["rewards/margins"]) < 1e-5, records[0]
        assert records[-1]["loss"] < records[0]["loss"], name
        first[name] = records[0]["logps/chosen"]
        assert {p.name for p in (c.folder / name).iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
        assert all("lora" in key or key == "__metadata__" for key in header(c.folder / name / "adapter_model.safetensors"))
    assert first["dora"] == first["nf4"] or abs(first["dora"] - first["nf4"]) < 1e-4
    apart = {name: abs(value - first["whole"]) for name, value in first.items()}
    assert 0 < apart["eight"] < apart["nf4"] and 0 < apart["nf4"] and apart["fp4"] != apart["nf4"], apart


@case
def resumed(c):
    """To the byte; with other bits it is another run."""
    rows(c)
    run = {**QLORA, "max_steps": 6, "save_strategy": "steps", "save_steps": 3, "lora_dropout": 0.1}
    train(c, {**run, "output_dir": "whole"}).expect(0)
    train(c, {**run, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(0)
    for file in ("adapter_model.safetensors", "checkpoint-6/optimizer.safetensors"):
        assert (c.folder / "half" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), file
    for changes in ({"bnb_4bit_quant_type": "fp4"}, {"load_in_4bit": False, "adapter": "lora"}, {"bnb_config_kwargs": {"blocksize": 128}}):
        train(c, {**run, **changes, "output_dir": "other"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "run.12")


@case
def kept_reference(c):
    """Log-probs of a reference that were kept are not those of one in other bits, or in another dtype."""
    rows(c)
    kept = {"precompute_ref_log_probs": True, "dataset_prepared_path": "prepared", "max_steps": 1}
    for changes in (LORA, QLORA, {**QLORA, "bnb_4bit_quant_type": "fp4"}, EIGHT, {**QLORA, "bf16": True}):
        train(c, {**changes, **kept}).expect(0, "computed and kept in")
        train(c, {**changes, **kept}).expect(0, "read from")


@case
def generated(c):
    """The engine draws with the trainer's numbers: what it reports of its tokens is what training computes."""
    for bits in (QLORA, EIGHT):
        c.train({**bits, "learning_rate": 1e-3, "max_steps": 3,
                 "trl": {"beta": 0.05, "reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 16}}).expect(0, "the base: 28")
        for record in c.metrics():
            assert record["kl"] < 1e-3 if record["step"] == 1 else record["kl"] < 1, record
    c.train({**QLORA, "max_steps": 2, "trl": {"generation_quantization": "int8", "max_completion_length": 8}}).expect(0)
    c.train({**QLORA, "max_steps": 3, "trl": {"use_data_producer": True, "async_prefetch": True, "max_completion_length": 8}}).expect(0)


@case
def merged(c):
    """What the codes stand for and the adapter, in the base's dtype or another; how far it was rounded is said."""
    rows(c)
    train(c, {**QLORA, "learning_rate": 1e-3, "max_steps": 4, "output_dir": "out"}).expect(0)
    said = c.run("merge-lora", "run.yaml").expect(0, "28 maps of the base are in 4 or 8 bits", "written in bfloat16: rounded by")
    assert re.search(r"rounded by [0-9.e-]+ at most, by [0-9.e-]+ in the mean", said.out), said.out
    wide = c.run("merge-lora", "run.yaml", "--dtype", "float32", "--output-dir", "wide").expect(0, "rounded by 0 at most")
    assert "28 maps" in wide.out
    c.run("merge-lora", "--model", PAIRS["base_model"], "--lora-model-dir", "out", "--output-dir", "plain").expect(0)
    low, exact, plain = (tensors(c.folder / f / "model.safetensors") for f in ("out/merged", "wide", "plain"))
    types = lambda folder: {v["dtype"] for k, v in header(c.folder / folder / "model.safetensors").items() if k != "__metadata__"}
    assert types("out/merged") == {"BF16"} and types("wide") == {"F32"}
    assert json.loads((c.folder / "wide/config.json").read_text())["torch_dtype"] == "float32"
    name = "model.layers.0.mlp.up_proj.weight"
    assert low[name] != plain[name], "the merged model has the base as it was before it was quantised"
    assert low["model.embed_tokens.weight"] == plain["model.embed_tokens.weight"], "the embedding was rounded"
    assert len(exact[name]) == 2 * len(low[name])
    c.run("inference", "out/merged", "--max-new-tokens", "3", stdin="2 + 3 =").expect(0)


@case
def read_files(c):
    """Checkpoints that bitsandbytes quantised: generated with, trained with an adapter, merged; not trained without one."""
    model = c.folder / "model"
    shutil.copytree(GOLDEN / "llama_nf4", model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(QUICKSTART / "model" / name, model / name)
    config = json.loads((model / "config.json").read_text())
    rows(c)
    train(c, {"base_model": "model", "max_steps": 1}).expect(2, "[rlalgo.config.14]", "7 linear maps in nf4", "adapter: lora")
    for method in ("gptq", "awq", "fp8", "mxfp4", "compressed-tensors"):
        (model / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": method}}))
        refused = train(c, {**LORA, "base_model": "model", "max_steps": 1}).expect(1, "[rlalgo.model.11]", f"quant_method {method}")
        assert refused.err.strip().count("\n") == 0, refused.err


@case
def refused(c):
    rows(c)
    refuse = lambda changes, number, *parts: train(c, {**LORA, "max_steps": 1, **changes}).expect(2, f"[rlalgo.{number}]", *parts)
    refuse({"load_in_4bit": True, "load_in_8bit": True}, "config.8", "exclude each other")
    refuse({"adapter": "qlora"}, "config.8", "load_in_4bit: true")
    refuse({"adapter": "qlora", "load_in_8bit": True}, "config.8", "adapter: lora")
    refuse({**QLORA, "bnb_4bit_quant_type": "int4"}, "config.6", "nf4, fp4")
    refuse({**QLORA, "bnb_4bit_compute_dtype": "float64"}, "config.6", "bnb_4bit_compute_dtype")
    refuse({**QLORA, "bnb_config_kwargs": {"blocksize": 48}}, "config.6", "bnb_config_kwargs.blocksize")
    refuse({**QLORA, "bnb_config_kwargs": {"bnb_4bit_quant_typ": "nf4"}}, "config.4", "bnb_4bit_quant_type")
    refuse({**QLORA, "bnb_config_kwargs": {"llm_int8_skip_modules": ["nobody"]}}, "model.47", "nobody")
    refuse({**QLORA, "peft_init_lora_weights": "pissa"}, "model.24", "pissa")
    refuse({**QLORA, "lora_modules_to_save": ["0.mlp"], "lora_target_linear": False, "lora_target_modules": ["q_proj"]}, "model.46", "mlp")
    train(c, {"load_in_4bit": True}).expect(2, "[rlalgo.config.10]", "adapter: lora")
    for changes, part in (({**QLORA, "bnb_config_kwargs": {"llm_int8_threshold": 6.0, "bnb_4bit_quant_storage": "bfloat16"}}, "no outliers"),
                          ({**QLORA, "bnb_4bit_compute_dtype": "float16"}, "in float32, which is more exact"),
                          ({**QLORA, "bnb_config_kwargs": {"bnb_4bit_compute_dtype": "bfloat16"}}, "the base: 28 linear maps in nf4"),
                          ({**LORA, "load_in_4bit": True}, "the base: 28 linear maps in nf4"),
                          ({**QLORA, "bnb_config_kwargs": {"llm_int8_skip_modules": ["o_proj", "lm_head"]}}, "the base: 24 linear maps"),
                          ({**LORA, "bnb_4bit_quant_type": "fp4"}, "bnb_4bit_quant_type")):
        train(c, {"max_steps": 1, **changes}).expect(0, part)


@case
def ranks(c):
    """Each with its own copy of the base: the numbers of one; stage 2 as well; sharded weights are refused by name."""
    rows(c)
    same_run(c, {**PAIRS, **QLORA}, rl="dpo", weights_file="adapter_model.safetensors")
    (c.folder / "run.yaml").write_text(json.dumps({**PAIRS, **QLORA, "rl": "dpo", "output_dir": "cut", "gradient_accumulation_steps": 1,
                                                   "deepspeed": {"zero_optimization": {"stage": 2}}}))
    c.run("train", "run.yaml", "--nproc-per-node", 2).expect(0)
    for a, b in zip(without_times(c.metrics("one")), without_times(c.metrics("cut"))):
        assert abs(a["loss"] - b["loss"]) < 1e-5, (a, b)
    (c.folder / "run.yaml").write_text(json.dumps({**PAIRS, **QLORA, "rl": "dpo", "fsdp_version": 2,
                                                   "fsdp_config": {"reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}}))
    c.run("train", "run.yaml", "--nproc-per-node", 2).expect(2, "[rlalgo.config.37]", "load_in_4bit")


if __name__ == "__main__":
    main(CASES)
