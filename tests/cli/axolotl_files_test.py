"""Every file of axolotl 0.19 with an `rl:` (examples, tests, documents) starts on a tiny model, or is refused by the number that is written here.

axolotl_files.json has their keys and values. What a machine has not is replaced: the model by that of the quickstart, whose tokenizer has
the files' special tokens; data by rows with the same columns; lengths and steps by small ones. Nothing else is."""
import contextlib
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402
from gym_test import gym  # noqa: E402
from serve_test import Server  # noqa: E402

CASES = {}
FILES = dict(json.loads(pathlib.Path(__file__).with_name("axolotl_files.json").read_text()))
TOKENS = ["<|eot_id|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|begin_of_text|>", "<|start_header_id|>"]

# Refused here, and why: as axolotl does, or for what this program has not.
REFUSED = {
    "tests/e2e/multigpu/test_fsdp1.py::test_dpo_fft": "config.8",  # sample_packing: axolotl refuses it with rl, too
    "tests/e2e/multigpu/test_fsdp1.py::test_dpo_lora": "config.8",
    "tests/e2e/multigpu/test_fsdp2.py::test_dpo_fft": "config.8",
    "tests/e2e/multigpu/test_fsdp2.py::test_dpo_lora": "config.8",
    "tests/e2e/test_dpo.py::test_kto_pair_lora": "config.6",  # rl: kto_pair is not one of axolotl's methods any more
    "tests/e2e/test_qat.py::test_qat_dpo": "config.10",  # weights are not quantized while training
}
# Their models are of a family that is not read (Qwen3.5): the file starts on another model, and is refused with its own.
FAMILIES = {"Qwen/Qwen3.5-4B": ("Qwen3_5ForConditionalGeneration", "qwen3_5"), "Qwen/Qwen3.5-9B": ("Qwen3_5ForConditionalGeneration", "qwen3_5")}

PYTHON = '''
def _score(completions, **kwargs):
    return [float(len(str(c)) % 5) for c in completions]
first = second = third = format_reward = correctness_reward = rand_reward_func = accuracy_reward = math_reward = _score

def _transform(cfg, *args, **kwargs):
    def row(example, tokenizer=None):
        question = example.get("question") or example["problem"]
        return {"prompt": [{"role": "user", "content": question}], "answer": str(example.get("answer") or example["solution"])}
    return row, {"remove_columns": ["question"]}
oai_gsm8k_transform = gsm8k_transform = math_transform = prompt_transform = _transform

def math_solver_rollout(prompts, trainer=None, **kwargs):
    return {"prompt_ids": [[1, 2]] * len(prompts), "completion_ids": [[3, 4, 5]] * len(prompts), "logprobs": [[-1.0, -1.0, -1.0]] * len(prompts)}
'''


def case(function):
    CASES[function.__name__] = function
    return function


def says(role, text):
    return {"role": role, "content": text}


def rows_for(kind, rl, wanted):
    """Rows with the columns that `type` reads."""
    question, good, bad = "3 + 4 = ?", "7", "8"
    if isinstance(kind, dict):
        return {"system": "Be brief.", "prompt": question, "chosen": good, "rejected": bad, "completion": good, "label": wanted}
    if kind == "chat_template.default":
        return {"conversation": [says("user", question)], "messages": [says("user", question)], "chosen": says("assistant", good), "rejected": says("assistant", bad)}
    if kind == "chat_template.argilla":
        return {"prompt": question, "chosen": [says("user", question), says("assistant", good)], "rejected": [says("user", question), says("assistant", bad)]}
    if rl == "kto":
        return {"prompt": question, "completion": good, "label": wanted}
    if kind in ("chatml.intel", None) and rl in ("dpo", "ipo", "orpo", "simpo"):
        return {"system": "Be brief.", "question": question, "chosen": good, "rejected": bad}
    if kind == "chatml.ultra":
        return {"prompt": question, "chosen": [says("user", question), says("assistant", good)], "rejected": [says("user", question), says("assistant", bad)]}
    if kind == "chatml":
        return {"prompt": question, "chosen": good, "rejected": bad}
    if kind and kind.startswith("ebft"):
        return {"input": question, "output": "7 is the sum of 3 and 4, as 4 and 3 make 7.", "text": "3 and 4 make 7; 4 and 5 make 9; 5 and 6 make 11; 6 and 7 make 13."}
    return {"question": question, "problem": question, "answer": "3 + 4 = 7 #### 7", "solution": "7"}


def model_with_tokens(c):
    """The quickstart's model whose tokenizer has the special tokens of axolotl's files in the place of its last words."""
    folder = c.folder / "model"
    shutil.copytree(QUICKSTART / "model", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    words = sorted(vocabulary, key=vocabulary.get)[-len(TOKENS):]
    for word, token in zip(words, TOKENS):
        tokenizer["added_tokens"].append({"id": vocabulary.pop(word), "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    del merges[-len(TOKENS):]
    tokenizer["added_tokens"].sort(key=lambda t: t["id"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**roles, "bos_token": "<|begin_of_text|>"}))
    return folder


def adapted(c, name, keys):
    """The file with what this machine has: (configuration, further arguments)."""
    config = json.loads(json.dumps(keys))
    rl = config.setdefault("rl", "dpo" if "data_files" in str(config.get("datasets")) else "grpo")
    config["base_model"] = "model"
    config.setdefault("learning_rate", 1e-5)
    online = rl in ("grpo", "gdpo", "ebft")
    if online and "micro_batch_size" not in config:
        config["micro_batch_size"] = 8
    if rl == "kto":
        config["micro_batch_size"] = max(2, config.get("micro_batch_size", 2))  # rows are compared with each other
        config.setdefault("remove_unused_columns", False)
    if rl == "ebft":
        config.setdefault("ebft", {})
    trl = config.get("trl") or {}
    if online:
        config["trl"] = trl
        trl["max_completion_length"] = min(trl.get("max_completion_length") or 8, 8)
        if "stop_token_ids" in trl.get("generation_kwargs", {}):
            trl["generation_kwargs"]["stop_token_ids"] = [444, 446]  # of this vocabulary
        if rl != "ebft" and not config.get("nemo_gym_enabled"):
            trl.setdefault("reward_funcs", ["rewards.first"])
    gym_path = c.folder / "Gym"
    if config.get("nemo_gym_enabled"):
        config["nemo_gym_dir"] = str(gym_path)
        agent = "numbers_steady_agent" if config.get("nemo_gym_multi_turn") else "numbers_simple_agent"
        for entry in config["nemo_gym_datasets"]:
            path = gym_path / entry["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps({
                "responses_create_params": {"input": [says("user", f"{i} + 1 = ?")]}, "expected_answer": str(i + 1),
                "agent_ref": {"type": "responses_api_agents", "name": agent}}) + "\n" for i in range(16)))
            entry.pop("server_name")  # the Gym of the tests has its own
    for i, entry in enumerate(config.setdefault("datasets", [{"path": "x"}])):
        kind = entry.get("type")
        if kind is None and rl == "dpo":
            kind = entry["type"] = "chatml.intel"
        if kind is None and rl in ("ipo", "orpo", "simpo"):
            kind = entry["type"] = "chatml.intel"
        if kind is None and rl == "kto":
            kind = entry["type"] = "chatml.ultra"
        if kind is None and online:
            kind = entry["type"] = "ebft_opencode.transform" if rl == "ebft" else "rewards.oai_gsm8k_transform"
        path = c.folder / f"rows{i}.jsonl"
        path.write_text("".join(json.dumps(rows_for(kind, rl, k % 2 == 0)) + "\n" for k in range(400)))
        if "data_files" in entry:
            entry["data_files"] = [path.name]
        else:
            entry["path"] = path.name
    if deepspeed := config.get("deepspeed"):
        (c.folder / deepspeed).parent.mkdir(exist_ok=True)
        (c.folder / deepspeed).write_text(json.dumps({"zero_optimization": {"stage": 3, "overlap_comm": True, "sub_group_size": 0}, "bf16": {"enabled": True},
                                                      "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}))
    more = ["--max-steps", 1]
    if config.get("context_parallel_size", 1) > 1:
        more += ["--num-processes", config["context_parallel_size"]]
    for module in {e["type"].split(".")[0] for e in config["datasets"] if isinstance(e.get("type"), str)} | {f.split(".")[0] for f in trl.get("reward_funcs") or []} | {"rewards", "math_env"}:
        if module not in ("chatml", "llama3", "chat_template", "axolotl") and not module.startswith("ebft"):
            (c.folder / f"{module}.py").write_text(PYTHON)
    return config, more


def start(c, name, keys):
    for old in c.folder.iterdir():
        if old.name != "model":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    config, more = adapted(c, name, keys)
    path = c.folder / "config.yaml"
    with contextlib.ExitStack() as stack:
        path.write_text(json.dumps(config, indent=1))
        agents = []
        if (config.get("trl") or {}).get("use_vllm"):
            server = Server(c, "--port", 0, model="config.yaml")
            stack.callback(server.stop)
            agents = ["--model-url", f"http://127.0.0.1:{server.port}"]
            more += ["--trl.vllm_server_base_url", agents[1]]
        if config.get("nemo_gym_enabled"):
            more += ["--nemo_gym_head_port", stack.enter_context(gym(*agents))]
        return c.run("train", "config.yaml", *more)


def all_of(c, parts):
    model_with_tokens(c)
    wrong = []
    for name, keys in FILES.items():
        if not name.startswith(parts):
            continue
        result = start(c, name, keys)
        number = REFUSED.get(name)
        good = result.code == 2 and f"[rlalgo.{number}]" in result.err if number else result.code == 0
        if not good:
            wrong.append(f"{name}: {result.code} instead of {number or 'a start'}: " + "; ".join(l for l in (result.err + result.out).splitlines() if "rlalgo." in l or "rror" in l)[:400])
    assert not wrong, f"{len(wrong)} files: " + " || ".join(wrong)


@case
def preference_examples(c):
    all_of(c, ("examples/falcon-e", "examples/llama-3", "examples/mistral", "examples/qwen2", "examples/swanlab"))


@case
def ebft_examples(c):
    all_of(c, "examples/ebft")


@case
def tests_of_axolotl(c):
    all_of(c, "tests/")


@case
def blocks_of_documents(c):
    all_of(c, "document")


def unknown(c, verb, config):
    """The keys that are called unknown."""
    (c.folder / "config.yaml").write_text(json.dumps(config, indent=1))
    result = c.run(verb, "config.yaml")
    assert result.code == 2, result.err
    return set(re.findall(r"unknown key ([^:\s]+)", result.err))


@case
def every_key_of_the_schema_is_known(c):
    """Of axolotl 0.19's 390 keys at the top, those of its sections and those of its plugins: used, or recognised."""
    keys = json.loads(pathlib.Path(__file__).with_name("axolotl_keys.json").read_text())
    nothing = {section: dict.fromkeys(names) for section, names in keys.items()}
    model_with_tokens(c)
    for rl in ("grpo", "gdpo", "dpo", "kto", "orpo", "simpo", "ebft"):
        config = {**nothing[""], **nothing["plugins"], "rl": rl, "zzzz": 1, "base_model": "model", "learning_rate": 1e-5, "trl": {**nothing["trl"], "zzzz": 1},
                  "special_tokens": {**nothing["special_tokens"], "zzzz": 1}, "fsdp_config": {**nothing["fsdp_config"], "zzzz": 1},
                  "datasets": [{**nothing["datasets"], "path": "x", "zzzz": 1}]}
        expected = {"zzzz", "trl.zzzz", "special_tokens.zzzz", "fsdp_config.zzzz", "datasets[0].zzzz"}
        if rl == "ebft":
            config["ebft"] = {**nothing["ebft"], "zzzz": 1}
            expected.add("ebft.zzzz")
        assert unknown(c, "train", config) == expected, (rl, unknown(c, "train", config) ^ expected)
    found = unknown(c, "vllm-serve", {"rl": "grpo", "vllm": {**nothing["vllm"], "zzzz": 1}})
    assert found == {"vllm.zzzz"}, found


@case
def families_that_are_not_read(c):
    """The files themselves start; with a model of their own family they are refused by its name."""
    for name, keys in FILES.items():
        if keys.get("base_model") not in FAMILIES:
            continue
        architecture, kind = FAMILIES[keys["base_model"]]
        folder = c.folder / "own"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(QUICKSTART / "model", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture], "model_type": kind}))
        shutil.rmtree(c.folder / "model", ignore_errors=True)
        model_with_tokens(c)
        changed, more = adapted(c, name, keys)
        changed["trl"]["use_vllm"] = False
        (c.folder / "config.yaml").write_text(json.dumps({**changed, "base_model": "own"}, indent=1))
        result = c.run("train", "config.yaml", *more)
        assert result.code == 1 and "[rlalgo.model." in result.err and kind in result.err, (name, result.err[-500:])


if __name__ == "__main__":
    main(CASES)
