"""Models with experts as a user trains them: balance, several ranks, resume, adapters, saving, what is refused."""
import json
import math
import pathlib
import random
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sharded_test as sharded  # noqa: E402
from cases import BASE, QUICKSTART, main, same_files, without_times  # noqa: E402
from ranks_test import PAIRS, close, rows, same_run, write  # noqa: E402
from serve_test import Server, remote  # noqa: E402

CASES = {}
SIZES = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16}


def case(function):
    CASES[function.__name__] = function
    return function


def shapes(config):
    """Names and shapes of the tensors of such a model, as transformers writes them."""
    h, v = config["hidden_size"], config["vocab_size"]
    heads, kv, d = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    out = {"model.embed_tokens.weight": [v, h], "model.norm.weight": [h]}
    out |= {"lm_head.weight": [v, h]} if config["model_type"] == "gpt_oss" else {}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        out |= {at + "input_layernorm.weight": [h], at + "post_attention_layernorm.weight": [h],
                at + "self_attn.q_proj.weight": [heads * d, h], at + "self_attn.k_proj.weight": [kv * d, h],
                at + "self_attn.v_proj.weight": [kv * d, h], at + "self_attn.o_proj.weight": [h, heads * d]}
        block, gate, up, down = at + "mlp.", "gate_proj", "up_proj", "down_proj"
        width, count = config.get("moe_intermediate_size"), config.get("num_experts")
        if config["model_type"] == "qwen3_moe":
            out |= {at + "self_attn.q_norm.weight": [d], at + "self_attn.k_norm.weight": [d]}
        if config["model_type"] == "qwen2_moe":
            out |= {at + f"self_attn.{p}_proj.bias": [n * d] for p, n in (("q", heads), ("k", kv), ("v", kv))}
            shared = config["shared_expert_intermediate_size"]
            out |= {block + "shared_expert.gate_proj.weight": [shared, h], block + "shared_expert.up_proj.weight": [shared, h],
                    block + "shared_expert.down_proj.weight": [h, shared], block + "shared_expert_gate.weight": [1, h]}
        if config["model_type"] == "mixtral":
            block, gate, up, down = at + "block_sparse_moe.", "w1", "w3", "w2"
            width, count = config["intermediate_size"], config["num_local_experts"]
        if config["model_type"] == "gpt_oss":
            width, count = config["intermediate_size"], config["num_local_experts"]
            out |= {at + f"self_attn.{p}_proj.bias": [n * d] for p, n in (("q", heads), ("k", kv), ("v", kv))}
            out |= {at + "self_attn.o_proj.bias": [h], at + "self_attn.sinks": [heads], block + "router.weight": [count, h],
                    block + "router.bias": [count], block + "experts.gate_up_proj": [count, h, 2 * width],
                    block + "experts.gate_up_proj_bias": [count, 2 * width], block + "experts.down_proj": [count, width, h],
                    block + "experts.down_proj_bias": [count, h]}
            continue
        out[block + "gate.weight"] = [count, h]
        for e in range(count):
            out |= {f"{block}experts.{e}.{gate}.weight": [width, h], f"{block}experts.{e}.{up}.weight": [width, h],
                    f"{block}experts.{e}.{down}.weight": [h, width]}
    return out


def model(c, kind="qwen3_moe", name="experts", **changes):
    folder = c.folder / name
    shutil.copytree(QUICKSTART / "model", folder)
    config = json.loads((folder / "config.json").read_text()) | SIZES
    config |= {"model_type": kind, "architectures": [{"qwen3_moe": "Qwen3Moe", "qwen2_moe": "Qwen2Moe", "mixtral": "Mixtral", "gpt_oss": "GptOss"}[kind] + "ForCausalLM"],
               "torch_dtype": "float32", "num_experts_per_tok": 2, "router_aux_loss_coef": 0.1}
    config |= {"num_local_experts": 4} if kind in ("mixtral", "gpt_oss") else {"num_experts": 5, "moe_intermediate_size": 12, "norm_topk_prob": True}
    config |= {"shared_expert_intermediate_size": 14} if kind == "qwen2_moe" else {}
    config |= {"sliding_window": 16, "swiglu_limit": 0.5, "tie_word_embeddings": False, "attention_bias": True} if kind == "gpt_oss" else {}
    config |= changes
    draw, header, data = random.Random(3), {}, b""
    for tensor, shape in shapes(config).items():
        count = math.prod(shape)
        values = [1.0 if "norm" in tensor else draw.gauss(0.0, 0.15) for _ in range(count)]
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return str(folder)


def names(path):
    with open(path, "rb") as file:
        return {k: v["shape"] for k, v in json.loads(file.read(struct.unpack("<Q", file.read(8))[0])).items() if k != "__metadata__"}


@case
def every_family_is_trained_balanced_and_saved(c):
    rows(c)
    for kind in ("qwen3_moe", "qwen2_moe", "mixtral", "gpt_oss"):
        base = {**PAIRS, "base_model": model(c, kind, kind), "rl": "dpo", "output_dir": kind + "-out"}
        c.run("train", write(c, base, "dpo.yaml")).expect(0)
        steps = [r for r in c.metrics(kind + "-out") if "aux_loss" in r]
        assert len(steps) == 3, steps
        assert all(1 < r["aux_loss"] <= 5 for r in steps), steps  # k where all experts are alike
        assert abs(steps[0]["loss"] - (0.6931472 + 0.1 * steps[0]["aux_loss"])) < 1e-4, steps[0]
        assert names(c.folder / kind / "model.safetensors") == names(c.folder / (kind + "-out") / "model.safetensors")


@case
def ranks_have_the_numbers_of_one(c):
    rows(c)
    experts = model(c)
    same_run(c, {**PAIRS, "base_model": experts}, rl="dpo")
    base = {**json.loads(json.dumps(BASE)), "base_model": experts, "micro_batch_size": 4, "max_steps": 2, "logging_steps": 1,
            "learning_rate": 1e-4, "adam_epsilon": 1e-4}
    same_run(c, base, rl="grpo")


@case
def weights_and_contexts_are_shared(c):
    rows(c)
    experts = model(c)
    sharded.same_run(c, {**PAIRS, "base_model": experts}, [("fsdp", 2, sharded.FSDP)], rl="dpo")
    same_run(c, {**PAIRS, "base_model": experts}, context=2, accumulation=1, rl="dpo", trl={"router_aux_loss_coef": 0})


@case
def adapters_stand_on_the_parameters_of_experts(c):
    rows(c)
    both = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    for kind in ("qwen3_moe", "gpt_oss"):
        base = {**PAIRS, "base_model": model(c, kind, kind), "rl": "dpo", "adapter": "lora", "lora_r": 2, "lora_alpha": 4,
                "output_dir": kind + "-out", "lora_target_parameters": both}
        config = write(c, base, "lora.yaml")
        c.run("train", config).expect(0)
        saved = names(c.folder / (kind + "-out") / "adapter_model.safetensors")
        first = "base_model.model.model.layers.0.mlp.experts."
        count, width = (5, 12) if kind == "qwen3_moe" else (4, 40)
        assert saved[first + "base_layer.lora_A.weight"] == [2 * count, 32], saved
        assert saved[first + "base_layer.lora_B.weight"] == [2 * width, 2 * count], saved
        assert saved[first + "lora_A.weight"] == [2 * count, width] and saved[first + "lora_B.weight"] == [32, 2 * count], saved
        assert len(saved) == 8, saved
        settings = json.loads((c.folder / (kind + "-out") / "adapter_config.json").read_text())
        assert settings["target_modules"] == [] and settings["target_parameters"] == sorted(both), settings
        c.run("merge-lora", config).expect(0)
        assert names(c.folder / kind / "model.safetensors") == names(c.folder / (kind + "-out") / "merged/model.safetensors")
        text = "".join(json.dumps({"ids": [3, 5, 9, 4, 8, 7, 6, 2, 5]}) + "\n" for _ in range(2))
        score = lambda *more: [json.loads(x)["log_probs"] for x in c.run("score", "--dtype", "float32", *more, stdin=text).expect(0).out.splitlines()]  # noqa: E731
        lora, bare = ("--lora-model-dir", kind + "-out"), ("--model", kind)
        adapted, engine, merged = score(*bare, *lora), score(*bare, *lora, "--engine"), score("--model", kind + "-out/merged")
        for a, b, m, plain in zip(adapted[0], engine[0], merged[0], score(*bare)[0], strict=True):
            assert abs(a - b) < 1e-4 and abs(a - m) < 1e-4, (a, b, m)
        assert any(abs(a - plain) > 1e-5 for a, plain in zip(adapted[0], score(*bare)[0])), adapted
    c.run("train", write(c, base, "no.yaml", lora_dropout=0.1)).expect(2, "model.43", "dropout")
    c.run("train", write(c, base, "no.yaml", lora_target_parameters=["mlp.gate.weight"])).expect(2, "model.23", "mlp.gate.weight")
    same_run(c, {**base, "max_steps": 2}, weights_file="adapter_model.safetensors", rl="dpo")


@case
def a_server_takes_the_weights_of_joined_experts(c):
    a_server_draws(c, model(c, "gpt_oss"))


@case
def a_server_draws_what_the_trainer_would(c):
    a_server_draws(c, model(c))


def a_server_draws(c, experts):
    trl = {"reward_funcs": ["soft_overlong_punishment_reward"], "max_completion_length": 30, "temperature": 1.5,
           "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 30}}}
    base = {**json.loads(json.dumps(BASE)), "base_model": experts, "micro_batch_size": 4, "max_steps": 3, "logging_steps": 1}
    c.run("train", write(c, base, "here.yaml", output_dir="here", trl=trl)).expect(0)
    server = Server(c, "--port", "0", model=experts)
    try:
        there = write(c, base, "there.yaml", output_dir="there",
                      trl={**trl, **remote(server.port, vllm_importance_sampling_correction=False)})
        c.run("train", there).expect(0)
    finally:
        server.stop()
    for a, b in zip(without_times(c.metrics("here")), without_times(c.metrics("there")), strict=True):
        for name in a:
            close(a[name], b[name], name)


@case
def generation_and_its_switches(c):
    base = {"base_model": model(c), "logging_steps": 1}
    c.train(base).expect(0)
    assert all(r["aux_loss"] > 1 for r in c.metrics() if "loss" in r), c.metrics()
    c.train({**base, "trl": {"router_aux_loss_coef": 0}, "output_dir": "off"}).expect(0)
    assert not any("aux_loss" in r for r in c.metrics("off"))
    c.train({**base, "trl": {"generation_quantization": "int8"}, "output_dir": "int8"}).expect(0)


@case
def generations_experts_are_passed_again(c):
    base = replay_is_exact_and_resumed(c, model(c))
    ranks = {k: v for k, v in base.items() if k != "save_steps"}
    same_run(c, {**ranks, "save_strategy": "no", "max_steps": 2, "learning_rate": 1e-4, "adam_epsilon": 1e-4}, rl="grpo")
    for changes, says in (({"base_model": BASE["base_model"]}, "the model has none"),
                          ({"trl": {**base["trl"], "use_vllm": True}}, "a server"), ({"trl": {**base["trl"], "router_replay": "R2"}}, "R3")):
        c.run("train", write(c, base | changes, "no.yaml")).expect(2, says)


def replay_is_exact_and_resumed(c, experts):
    """The same weights choose the same experts in generation and training; a resumed run has the experts of its rollouts."""
    base = {**json.loads(json.dumps(BASE)), "base_model": experts, "micro_batch_size": 4, "max_steps": 4, "logging_steps": 1, "learning_rate": 1e-3,
            "save_strategy": "steps", "save_steps": 3, "trl": {**BASE["trl"], "router_replay": "R3", "num_iterations": 2}}
    c.run("train", write(c, base, "whole.yaml", output_dir="whole")).expect(0)
    steps = [r["router/replay_mismatch"] for r in c.metrics("whole") if "loss" in r]
    assert len(steps) == 4 and all(0 <= x <= 0.2 for x in steps), steps
    assert steps[0] < 0.01 and steps[2] < 0.01, steps  # the weights that generated, in float32
    off = json.loads(json.dumps(base)) | {"output_dir": "off"}
    del off["trl"]["router_replay"]
    c.run("train", write(c, off, "off.yaml")).expect(0)
    assert not any("router/replay_mismatch" in r for r in c.metrics("off"))
    # Of rollouts that were half used, too.
    shutil.copytree(c.folder / "whole", c.folder / "again")
    for left in ("model.safetensors", "checkpoint-4"):
        path = c.folder / "again" / left
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    c.run("train", write(c, base, "again.yaml", output_dir="again", resume_from_checkpoint=str(c.folder / "again/checkpoint-3"))).expect(0)
    same_files(c.folder / "whole", c.folder / "again", only=["model.safetensors"])
    return base


@case
def a_resumed_run_is_the_run(c):
    rows(c)
    a_resume_is_the_run(c, {**PAIRS, "base_model": model(c), "rl": "dpo"})


def a_resume_is_the_run(c, base):
    base = {**base, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    c.run("train", write(c, base, "whole.yaml", output_dir="whole")).expect(0)
    shutil.copytree(c.folder / "whole", c.folder / "again")
    for left in ("model.safetensors", "checkpoint-4"):
        path = c.folder / "again" / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    c.run("train", write(c, base, "again.yaml", output_dir="again", resume_from_checkpoint=str(c.folder / "again/checkpoint-2"))).expect(0)
    same_files(c.folder / "whole", c.folder / "again", only=["model.safetensors"])


@case
def adapters_stand_outside_of_experts(c):
    rows(c)
    base = {**PAIRS, "base_model": model(c), "rl": "dpo", "adapter": "lora", "lora_r": 2, "lora_alpha": 4, "output_dir": "out"}
    c.run("train", write(c, base, "lora.yaml", lora_target_linear=True)).expect(0)
    targets = json.loads((c.folder / "out/adapter_config.json").read_text())["target_modules"]
    assert sorted(targets) == ["k_proj", "o_proj", "q_proj", "v_proj"], targets
    for found in (["q_proj", "gate_proj"], ["experts.0.down_proj"], ["gate"], "all-linear", ".*experts.*"):
        c.run("train", write(c, base, "no.yaml", lora_target_modules=found)).expect(2, "model.40")
    c.run("merge-lora", write(c, base, "lora.yaml", lora_target_linear=True)).expect(0)
    shared = model(c, "qwen2_moe", "shared")
    c.run("train", write(c, {**base, "base_model": shared, "output_dir": "beside"}, "shared.yaml", lora_target_linear=True)).expect(0)
    targets = json.loads((c.folder / "beside/adapter_config.json").read_text())["target_modules"]
    assert sorted(targets) == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "shared_expert_gate", "up_proj", "v_proj"], targets


@case
def what_cannot_be_is_refused(c):
    rows(c)
    c.run("train", write(c, {**PAIRS, "rl": "dpo"}, "dense.yaml", trl={"router_aux_loss_coef": 0.1})).expect(2, "config.49", "no experts")
    experts = model(c)
    c.run("train", write(c, {**PAIRS, "rl": "dpo", "base_model": experts}, "low.yaml", trl={"router_aux_loss_coef": -1})).expect(2, "config.6]")
    shared = write(c, {**PAIRS, "rl": "dpo", "base_model": experts, "context_parallel_size": 2}, "context.yaml")
    c.run("train", shared, "--nproc-per-node", 2).expect(2, "model.39", "router_aux_loss_coef")
    off = write(c, {**PAIRS, "rl": "dpo", "base_model": experts, "context_parallel_size": 2, "trl": {"router_aux_loss_coef": 0}}, "off.yaml")
    c.run("train", off, "--nproc-per-node", 2).expect(0)


if __name__ == "__main__":
    main(CASES)
