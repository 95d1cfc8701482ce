"""Qwen3.5 and Qwen3-Next as a user trains them: methods, blocks, ranks, resume, adapters, a server, checkpoints that see images."""
import json
import math
import pathlib
import random
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sharded_test as sharded  # noqa: E402
from cases import BASE, QUICKSTART, main, same_files  # noqa: E402
from ebft_test import STRIDED, finite  # noqa: E402
from experts_test import a_resume_is_the_run, a_server_draws, names, replay_is_exact_and_resumed  # noqa: E402
from ranks_test import PAIRS, rows, same_run, write  # noqa: E402

CASES = {}
SIZES = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5,
         "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 14,
           "router_aux_loss_coef": 0.1}
CLASSES = {"qwen3_5_text": "Qwen3_5", "qwen3_5_moe_text": "Qwen3_5Moe", "qwen3_next": "Qwen3Next"}


def case(function):
    CASES[function.__name__] = function
    return function


def shapes(config):
    """Names and shapes of the tensors of such a model, as transformers writes them."""
    h, v = config["hidden_size"], config["vocab_size"]
    heads, kv, d = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    value_heads = config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = value_heads * config["linear_value_head_dim"]
    out = {"model.embed_tokens.weight": [v, h], "model.norm.weight": [h]}
    for layer, kind in enumerate(config["layer_types"]):
        at = f"model.layers.{layer}."
        out |= {at + "input_layernorm.weight": [h], at + "post_attention_layernorm.weight": [h]}
        if kind == "full_attention":
            own = at + "self_attn."
            out |= {own + "q_proj.weight": [2 * heads * d, h], own + "k_proj.weight": [kv * d, h], own + "v_proj.weight": [kv * d, h],
                    own + "o_proj.weight": [h, heads * d], own + "q_norm.weight": [d], own + "k_norm.weight": [d]}
        else:
            own = at + "linear_attn."
            maps = ({"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * value_heads} if config["model_type"] == "qwen3_next"
                    else {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": value_heads, "in_proj_a": value_heads})
            out |= {f"{own}{name}.weight": [count, h] for name, count in maps.items()}
            out |= {own + "conv1d.weight": [2 * keys + values, 1, config["linear_conv_kernel_dim"]], own + "A_log": [value_heads],
                    own + "dt_bias": [value_heads], own + "norm.weight": [config["linear_value_head_dim"]],
                    own + "out_proj.weight": [h, values]}
        block = at + "mlp."
        if "num_experts" not in config:
            width = config["intermediate_size"]
            out |= {block + "gate_proj.weight": [width, h], block + "up_proj.weight": [width, h], block + "down_proj.weight": [h, width]}
            continue
        for part, width in [(f"experts.{e}.", config["moe_intermediate_size"]) for e in range(config["num_experts"])] + \
                [("shared_expert.", config["shared_expert_intermediate_size"])]:
            out |= {block + part + "gate_proj.weight": [width, h], block + part + "up_proj.weight": [width, h],
                    block + part + "down_proj.weight": [h, width]}
        out |= {block + "gate.weight": [config["num_experts"], h], block + "shared_expert_gate.weight": [1, h]}
    return out


def save(path, tensors):
    """Random values in a safetensors file."""
    draw, header, data = random.Random(3), {}, b""
    for tensor, shape in tensors.items():
        count = math.prod(shape)
        centre = 1.0 if tensor.endswith("linear_attn.norm.weight") else 0.0  # the other norms are 1 + w
        values = [centre + draw.gauss(0.0, 0.15) for _ in range(count)]
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def model(c, kind="qwen3_5_text", name="delta", **changes):
    folder = c.folder / name
    shutil.copytree(QUICKSTART / "model", folder)
    config = json.loads((folder / "config.json").read_text()) | SIZES
    config |= {"model_type": kind, "architectures": [CLASSES[kind] + "ForCausalLM"], "torch_dtype": "float32",
               "partial_rotary_factor": 0.5}
    config |= EXPERTS if kind != "qwen3_5_text" else {}
    config |= changes
    save(folder / "model.safetensors", shapes(config))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return str(folder)


@case
def every_family_is_trained_and_saved(c):
    rows(c)
    for kind in CLASSES:
        base = {**PAIRS, "base_model": model(c, kind, kind), "rl": "dpo", "output_dir": kind + "-out"}
        c.run("train", write(c, base, "dpo.yaml")).expect(0)
        assert names(c.folder / kind / "model.safetensors") == names(c.folder / (kind + "-out") / "model.safetensors")
        assert all(("aux_loss" in r) == (kind != "qwen3_5_text") for r in c.metrics(kind + "-out") if "loss" in r)
        c.train({"base_model": str(c.folder / kind), "logging_steps": 1, "output_dir": kind + "-grpo"}).expect(0)
        assert finite(c.metrics(kind + "-grpo"))


@case
def blocks_of_documents(c):
    base = {**STRIDED, "base_model": model(c)}
    (c.folder / "strided.yaml").write_text(json.dumps(base))
    c.run("train", "strided.yaml").expect(0)
    assert finite(c.metrics()) and len([r for r in c.metrics() if "loss" in r]) == 2, c.metrics()


@case
def ranks_have_the_numbers_of_one(c):
    rows(c)
    delta = model(c)
    same_run(c, {**PAIRS, "base_model": delta}, rl="dpo")
    base = {**json.loads(json.dumps(BASE)), "base_model": delta, "micro_batch_size": 4, "max_steps": 2, "logging_steps": 1,
            "learning_rate": 1e-4, "adam_epsilon": 1e-4}
    same_run(c, base, rl="grpo")
    sharded.same_run(c, {**PAIRS, "base_model": delta}, [("fsdp", 2, sharded.FSDP)], rl="dpo")
    shared = write(c, {**PAIRS, "rl": "dpo", "base_model": delta, "context_parallel_size": 2}, "context.yaml")
    c.run("train", shared, "--nproc-per-node", 2).expect(2, "model.50", "context_parallel_size")


@case
def a_server_draws_what_the_trainer_would(c):
    a_server_draws(c, model(c))


@case
def a_resumed_run_is_the_run(c):
    rows(c)
    a_resume_is_the_run(c, {**PAIRS, "base_model": model(c), "rl": "dpo", "gradient_checkpointing": True})


@case
def experts_of_qwen3_5_are_passed_again(c):
    replay_is_exact_and_resumed(c, model(c, "qwen3_5_moe_text"))


@case
def experts_of_qwen3_next_are_passed_again(c):
    replay_is_exact_and_resumed(c, model(c, "qwen3_next"))


@case
def adapters_have_the_names_of_peft(c):
    rows(c)
    base = {**PAIRS, "base_model": model(c), "rl": "dpo", "adapter": "lora", "lora_r": 2, "lora_alpha": 4, "output_dir": "out",
            "peft_use_dora": True}
    c.run("train", write(c, base, "lora.yaml", lora_target_linear=True)).expect(0)
    targets = json.loads((c.folder / "out/adapter_config.json").read_text())["target_modules"]
    assert sorted(targets) == ["down_proj", "gate_proj", "in_proj_a", "in_proj_b", "in_proj_qkv", "in_proj_z", "k_proj", "o_proj",
                               "out_proj", "q_proj", "up_proj", "v_proj"], targets
    c.run("merge-lora", write(c, base, "lora.yaml", lora_target_linear=True)).expect(0)
    assert names(c.folder / "out/merged/model.safetensors") == names(c.folder / "delta/model.safetensors")
    c.run("train", write(c, base, "no.yaml", lora_target_modules=["conv1d"])).expect(2, "model.25", "conv1d")


@case
def adapters_of_qwen3_next_stand_on_all_experts_of_a_layer(c):
    rows(c)
    base = {**PAIRS, "base_model": model(c, "qwen3_next"), "rl": "dpo", "adapter": "lora", "lora_r": 2, "lora_alpha": 4,
            "output_dir": "out"}
    c.run("train", write(c, base, "lora.yaml", lora_target_linear=True)).expect(0)
    targets = json.loads((c.folder / "out/adapter_config.json").read_text())["target_modules"]
    assert sorted(targets) == ["in_proj_ba", "in_proj_qkvz", "k_proj", "o_proj", "out_proj", "q_proj", "shared_expert_gate",
                               "v_proj"], targets
    # As PEFT 0.21 takes the names of an expert's maps: for the parameters of all, with twice the rank where two maps are one.
    c.run("train", write(c, base, "mlp.yaml", lora_target_modules=["gate_proj", "up_proj", "down_proj"], output_dir="mlp")).expect(0)
    config = json.loads((c.folder / "mlp/adapter_config.json").read_text())
    assert sorted(config["target_parameters"]) == ["down_proj", "gate_up_proj"] and config["target_modules"] == [], config
    assert config["rank_pattern"] == {".*\\.gate_up_proj": 4} and config["alpha_pattern"] == {".*\\.gate_up_proj": 8}, config
    found = names(c.folder / "mlp/adapter_model.safetensors")
    assert all(".mlp.experts." in name for name in found) and found, found
    for target in (["q_proj", "up_proj"], ["shared_expert.down_proj"], "all-linear"):
        c.run("train", write(c, base, "no.yaml", lora_target_modules=target)).expect(2, "model.40")


@case
def of_a_checkpoint_that_sees_images_the_text_is_trained(c):
    rows(c)
    text = pathlib.Path(model(c))
    images = c.folder / "images"
    shutil.copytree(text, images)
    config = json.loads((text / "config.json").read_text())
    whole = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "torch_dtype": "float32",
             "tie_word_embeddings": True, "vision_config": {"depth": 1}, "text_config": config}
    (images / "config.json").write_text(json.dumps(whole))
    tensors = {name.replace("model.", "model.language_model.", 1): shape for name, shape in shapes(config).items()}
    save(images / "model.safetensors", tensors | {"model.visual.blocks.0.norm1.weight": [4], "mtp.layers.0.input_layernorm.weight": [32],
                                                  "mtp.norm.weight": [32]})
    base = {**PAIRS, "rl": "dpo", "base_model": str(images), "output_dir": "out"}
    told = c.run("train", write(c, base, "images.yaml")).expect(0, "1 tensors model.visual.", "2 tensors mtp.", "docs/models.md")
    assert "qwen3_5_text" in told.out + told.err
    assert names(c.folder / "out/model.safetensors") == names(text / "model.safetensors")
    saved = json.loads((c.folder / "out/config.json").read_text())
    assert saved["model_type"] == "qwen3_5_text" and saved["architectures"] == ["Qwen3_5ForCausalLM"], saved
    c.run("train", write(c, {**base, "base_model": str(text), "output_dir": "plain"}, "text.yaml")).expect(0)
    same_files(c.folder / "out", c.folder / "plain", only=["model.safetensors"])
    lora = {**base, "adapter": "lora", "lora_r": 2, "lora_alpha": 4, "lora_target_linear": True, "output_dir": "lora"}
    c.run("train", write(c, lora, "lora.yaml")).expect(0)
    c.run("merge-lora", "lora.yaml").expect(0)
    assert names(c.folder / "lora/merged/model.safetensors") == names(text / "model.safetensors")
    whole["quantization_config"] = {"quant_method": "fp8"}
    (images / "config.json").write_text(json.dumps(whole))
    c.run("train", write(c, base, "images.yaml")).expect(1, "model.11", "fp8")


if __name__ == "__main__":
    main(CASES)
