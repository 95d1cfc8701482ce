"""Every bad input of a training gives a numbered error, the right exit status and nothing half-written."""
import gzip
import json
import os
import pathlib
import struct
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# --- configuration
@case
def missing_file(c):
    c.run("train", "none.yaml").expect(2, "[rlalgo.config.", "none.yaml")


@case
def no_file_named(c):
    c.run("train").expect(2, "[rlalgo.cli.4]")


@case
def misspelt_key(c):
    text = "base_model: m\nrl: grpo\nlearning_rat: 1.0e-6\ndatasets: [{path: x.jsonl}]\n"
    c.run("train", c.config(text=text)).expect(2, "[rlalgo.config.", "config.yaml:3", "learning_rate")
    c.no_output()


@case
def misspelt_nested_key(c):
    c.train({"trl": {"num_generation": 4}}).expect(2, "[rlalgo.config.", "num_generations")


@case
def missing_key(c):
    c.run("train", c.config(drop=["learning_rate"])).expect(2, "[rlalgo.config.", "learning_rate")


@case
def wrong_type(c):
    c.train({"micro_batch_size": "many"}).expect(2, "[rlalgo.config.", "micro_batch_size", "many")


@case
def indentation(c):
    c.run("train", c.config(text="base_model: m\n   rl: grpo\n\tx: 1\n")).expect(2, "[rlalgo.config.", "config.yaml:")


@case
def one_generation(c):
    c.train({"trl": {"num_generations": 1}}).expect(2, "num_generations")


@case
def generations_do_not_divide(c):
    c.train({"trl": {"num_generations": 3}}).expect(2, "num_generations")


@case
def unknown_recipe(c):
    c.train({"rl": "ppo"}).expect(2, "[rlalgo.config.", "grpo")


@case
def feature_of_another_build(c):
    c.train({"load_in_4bit": True}).expect(2, "[rlalgo.config.", "load_in_4bit")


# --- model
@case
def model_missing(c):
    c.train({"base_model": "nowhere/at-all"}).expect(2, "[rlalgo.config.20]", "nowhere/at-all")


@case
def model_without_config(c):
    model = c.model_copy()
    (model / "config.json").unlink()
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "config.json")


@case
def unknown_architecture(c):
    model = c.model_copy()
    config = json.loads((model / "config.json").read_text())
    config.update(model_type="mamba", architectures=["MambaForCausalLM"])
    (model / "config.json").write_text(json.dumps(config))
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "amba", "llama")


@case
def truncated_weights(c):
    file = c.model_copy() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "model.safetensors")
    c.no_output()


@case
def bad_header_length(c):
    file = c.model_copy() / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "model.safetensors")


def rewrite_header(file, change):
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size:])


@case
def offsets_out_of_range(c):
    def change(header):
        header["model.norm.weight"]["data_offsets"][1] += 1 << 40
    rewrite_header(c.model_copy() / "model.safetensors", change)
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "model.norm.weight")


@case
def wrong_shape(c):
    def change(header):
        header["model.layers.0.self_attn.q_proj.weight"]["shape"].reverse()
        header["model.layers.0.mlp.gate_proj.weight"]["shape"].reverse()
    rewrite_header(c.model_copy() / "model.safetensors", change)
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "gate_proj")


@case
def missing_tensor(c):
    def change(header):
        header["model.unknown.weight"] = header.pop("model.norm.weight")
    rewrite_header(c.model_copy() / "model.safetensors", change)
    c.train({"base_model": "model"}).expect(1, "[rlalgo.model.", "model.norm.weight")


@case
def tokenizer_without_merges(c):
    file = c.model_copy() / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    del tokenizer["model"]["merges"]
    file.write_text(json.dumps(tokenizer))
    c.train({"base_model": "model"}).expect(1, "[rlalgo.text.", "merges")


# --- data
def dataset(c, text):
    (c.folder / "rows.jsonl").write_text(text)
    return {"datasets": [{"path": "rows.jsonl", "type": "rewards.oai_gsm8k_transform"}]}


@case
def dataset_missing(c):
    c.train({"datasets": [{"path": "none.jsonl"}]}).expect(1, "[rlalgo.data.", "none.jsonl")


@case
def dataset_bad_line(c):
    good = '{"question": "q", "answer": "#### 1"}\n'
    c.train(dataset(c, good * 2 + '{"question": \n' + good)).expect(1, "[rlalgo.data.", "rows.jsonl:3")


@case
def dataset_missing_column(c):
    c.train(dataset(c, '{"prompts": "q", "answer": "#### 1"}\n')).expect(1, "[rlalgo.data.", "question")


@case
def dataset_empty(c):
    c.train(dataset(c, "")).expect(1, "[rlalgo.data.", "rows.jsonl")


@case
def dataset_too_small(c):
    c.train(dataset(c, '{"question": "q", "answer": "#### 1"}\n')).expect(2, "[rlalgo.config.", "rows")


@case
def prompt_too_long(c):
    row = json.dumps({"question": "how many pears " * 200, "answer": "#### 1"}) + "\n"
    c.train(dataset(c, row * 4)).expect(1, "[rlalgo.config.27]", "row")
    c.no_output()


# --- rewards
def reward(c, body, **trl):
    (c.folder / "rewards.py").write_text(textwrap.dedent(body))
    return c.train({"trl": {"reward_funcs": ["rewards.f"], **trl}})


@case
def reward_throws(c):
    reward(c, """
        def f(completions, **kwargs):
            raise ValueError("no idea")
    """).expect(1, "[rlalgo.remote.", "Traceback", "no idea", "rewards.py")
    c.no_output()


@case
def reward_wrong_count(c):
    reward(c, "def f(completions, **kwargs):\n    return [1.0]\n").expect(1, "[rlalgo.", "rewards.f")


@case
def reward_hangs(c):
    reward(c, "import time\ndef f(completions, **kwargs):\n    time.sleep(600)\n", reward_timeout=1).expect(1, "[rlalgo.remote.", "rewards.f")


@case
def reward_fails_and_the_run_goes_on(c):
    """reward_on_failure: the log says so, the metrics count it; rows that can be scored alone are."""
    body = """
        def f(completions, **kwargs):
            raise ValueError("no idea")
    """
    reward(c, body, reward_on_failure="zero").expect(0, "the reward 'f' failed for", "no idea")
    assert c.metrics()[0]["rewards/f/failed"] == 1.0 and c.metrics()[0]["rewards/f/mean"] == 0.0


@case
def reward_infinite(c):
    """One -inf among good values: not an advantage of 0 for its whole group, but what the failure policy says."""
    body = """
        def f(completions, **kwargs):
            return [float("-inf") if i == 1 else 1e308 if i == 2 else float(i) for i in range(len(completions))]
    """
    reward(c, body).expect(1, "[rlalgo.reward.10]", "'f'", "found -inf for completion 2 of 8", "step 0")
    result = reward(c, body, reward_on_failure="nan").expect(0)
    assert (result.out + result.err).count("the reward 'f' failed for 2 of 8 completions, which count as not scored: it returned -inf") == 1, result.err  # of equal warnings the first is shown
    first, second = c.metrics()
    assert first["rewards/f/failed"] == second["rewards/f/failed"] == 0.25
    assert first["rewards/f/mean"] == 25 / 6 and first["reward_std"] > 0 and first["frac_reward_zero_std"] == 0
    (c.folder / "games.py").write_text("class Wild:\n    def reset(self, **row):\n        pass\n\n"
                                       "    def step(self, text):\n        return None, float('inf'), True\n")
    c.train({"trl": {"environment_factory": "games.Wild"}, "max_steps": 1}).expect(1, "[rlalgo.reward.10]", "Wild", "found inf")
    c.train({"trl": {"environment_factory": "games.Wild", "reward_on_failure": "zero"}, "max_steps": 1}).expect(0, "the reward 'Wild' failed")
    c.train({"trl": {"reward_weights": [1e39]}}).expect(2, "[rlalgo.config.6]", "trl.reward_weights")


@case
def reward_not_there(c):
    reward(c, "def g(completions, **kwargs):\n    return []\n").expect(1, "[rlalgo.remote.", "rewards.f")


@case
def reward_unknown_builtin(c):
    c.train({"trl": {"reward_funcs": ["builtin.magic"]}}).expect(2, "[rlalgo.reward.3]", "gsm8k_accuracy")


@case
def reward_nan_and_none(c):
    """Not an error: NaN and None mean "not applicable", and such rows get advantage 0."""
    reward(c, """
        def f(completions, **kwargs):
            return [None if i % 2 else float("nan") if i % 4 else 1.0 for i in range(len(completions))]
    """).expect(0)
    assert c.metrics()[0]["rewards/f/mean"] == 1.0


# --- what never ends, never begins, or is larger than anything
def numbered(result, code, *parts):
    """A numbered error, at once, in a few lines, without a C++ trace and without control characters."""
    result.expect(code, "[rlalgo.", *parts)
    assert len(result.err) < 40000, f"{len(result.err)} bytes of error"
    assert "Exception raised from" not in result.err and "frame #" not in result.err, result.err[:500]
    assert not [c for c in result.err if ord(c) < 32 and c not in "\n\t"], ascii(result.err[:500])
    return result


@case
def special_files(c):
    """A FIFO, a device, a directory or a loop of links, wherever a file is named."""
    os.mkfifo(c.folder / "fifo")
    (c.folder / "loop").symlink_to("loop")
    (c.folder / "folder").mkdir()
    for name, number in {"fifo": "config.1", "/dev/zero": "config.1", "loop": "config.1", "folder": "config.1"}.items():
        numbered(c.run("train", name, timeout=20), 2, f"[rlalgo.{number}]", name)
    for name, number in {"fifo": "data.2", "/dev/zero": "data.2", "loop": "os.7", "folder": "data.1"}.items():
        numbered(c.train({"datasets": [{"path": name}]}, timeout=20), 1, f"[rlalgo.{number}]", name)
    for name, code, number in (("fifo", 2, "config.20"), ("/dev/zero", 2, "config.20"), ("loop", 1, "os.7"), ("folder", 1, "")):
        numbered(c.train({"base_model": name}, timeout=20), code, f"[rlalgo.{number}", name)
    model = c.model_copy()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"):
        before = (model / name).read_bytes()
        (model / name).unlink()
        os.mkfifo(model / name)
        numbered(c.train({"base_model": "model"}, timeout=20), 1, name, "a named pipe")
        (model / name).unlink()
        (model / name).symlink_to("/dev/zero")
        numbered(c.train({"base_model": "model"}, timeout=20), 1, name, "a device")
        (model / name).unlink()
        (model / name).write_bytes(before)
    (c.folder / "rewards.py").symlink_to("/dev/zero")
    numbered(c.train({"trl": {"reward_funcs": ["rewards.f"]}}, timeout=60), 1, "rewards")
    c.no_output()


@case
def deep_json_everywhere(c):
    deep = "[" * 100000 + "]" * 100000
    good = json.dumps({"question": "q", "answer": "#### 1"}) + "\n"
    row = '{"question": "q", "answer": "#### 1", "x": ' + deep + "}\n"
    numbered(c.train(dataset(c, good + row)), 1, "[rlalgo.data.30]", "rows.jsonl:2")
    (c.folder / "rows.json").write_text("[" + row + "]")
    numbered(c.train({"datasets": [{"path": "rows.json"}]}), 1, "[rlalgo.data.30]", "rows.json:1")
    model = c.model_copy()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        before = (model / name).read_text()
        (model / name).write_text(before.rstrip()[:-1] + ', "x": ' + deep + "}")
        numbered(c.train({"base_model": "model"}), 1, name, "deep")
        (model / name).write_text(before)
    numbered(c.run("train", c.config(text="base_model: " + "[" * 100000)), 2, "[rlalgo.config.2]")
    for verb, line in (("tokenize", "text"), ("score", "prompt"), ("generate", "prompt")):
        numbered(c.run(verb, "--model", "model", stdin='{"%s": %s}\n' % (line, deep)), 1, "[rlalgo.cli.11]", "line 1")
    numbered(reward(c, """
        def f(completions, log_extra, **kwargs):
            value = []
            for _ in range(300):
                value = [value]
            log_extra("x", [value] * len(completions))
            return [1.0] * len(completions)
    """), 1, "[rlalgo.remote.5]", "200 levels")
    c.no_output()


@case
def yaml_bombs(c):
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 30):
        text += f"a{i}: &a{i} [" + ", ".join(f"*a{i - 1}" for _ in range(10)) + "]\n"
    numbered(c.run("train", c.config(text=text), timeout=30), 2, "[rlalgo.config.28]")
    text = "m0: &m0 {k: 1}\n"
    for i in range(1, 30):
        text += f"m{i}: &m{i}\n" + "".join(f"  k{k}: {{<<: *m{i - 1}}}\n" for k in range(10))
    numbered(c.run("train", c.config(text=text), timeout=30), 2, "[rlalgo.config.28]")
    numbered(c.run("train", c.config(text="a: " + "x" * 5000000), timeout=30), 2, "[rlalgo.config.1]", "1048576")


@case
def compressed_bombs(c):
    member = gzip.compress(b"\n" * (1 << 26))
    (c.folder / "rows.jsonl.gz").write_bytes(member * 128)  # 8 GiB
    numbered(c.train({"datasets": [{"path": "rows.jsonl.gz"}]}, timeout=30), 1, "[rlalgo.data.30]", "rows.jsonl.gz:1000001")
    member = gzip.compress(b'{"question": "q", "answer": "#### 1"}\n' * (1 << 20))
    (c.folder / "rows.jsonl.gz").write_bytes(member * 64)
    numbered(c.train({"datasets": [{"path": "rows.jsonl.gz"}]}, timeout=300), 1, "[rlalgo.data.30]", "gunzip")
    (c.folder / "rows.jsonl").write_text("{}\n")
    os.truncate(c.folder / "rows.jsonl", 1 << 40)
    numbered(c.train({"datasets": [{"path": "rows.jsonl"}]}, timeout=30), 1, "[rlalgo.data.30]", "rows.jsonl:2")


@case
def enormous_numbers(c):
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    numbered(c.train({**lora, "lora_r": 1000000000}), 2, "[rlalgo.config.6]", "lora_r", "1000000000", "1 to 16384")
    for key in ("micro_batch_size", "max_steps", "logging_steps", "trl.num_generations", "trl.max_completion_length",
                "trl.num_iterations", "trl.generation_batch_size", "lora_r", "eval_batch_size", "gradient_accumulation_steps"):
        for value in ("9223372036854775807", "99999999999999999999999", "1e400"):
            numbered(c.train(lora, f"--{key}={value}"), 2, "[rlalgo.config.6]", key, value)
    for key in ("trl.beta", "trl.delta", "learning_rate", "trl.temperature", "lora_alpha"):
        numbered(c.train(lora, f"--{key}=1e308"), 2, "[rlalgo.config.6]", key, "float32")
        numbered(c.train(lora, f"--{key}=.nan"), 2, "[rlalgo.config.5]", key, "not a number")
    numbered(c.train(dataset(c, '{"question": "q", "answer": "#### 1", "x": 1e999}\n')), 1, "[rlalgo.data.3]", "rows.jsonl:1", "1e999")


@case
def keys_without_effect(c):
    result = c.train({"trl": {"max_turns": 3, "environment_timeout": 5}, "max_steps": 1})
    result.expect(0, "trl.max_turns", "trl.environment_timeout", "no effect", "trl.environment_factory")


@case
def control_characters_are_shown_not_obeyed(c):
    esc = "\x1b[31m\x1b]0;owned\x07"
    quoted = '"\\e[31m\\x07\\r"'
    numbered(c.run("train", c.config(text=f"rl: grpo\n{quoted}: 1\n")), 2, "[rlalgo.config.4]", "\\x1b[31m\\x07\\x0d")
    numbered(c.run("train", c.config(text=f"rl: {quoted}\n")), 2, "[rlalgo.config.6]", "\\x1b[31m")
    numbered(c.run("train", c.config(text=f"rl: grpo\nrl: grpo\n{quoted}: 1\n{quoted}: 2\n")), 2, "\\x1b[31m")
    numbered(c.run("train", f"none{esc}.yaml"), 2, "\\x1b[31m\\x1b]0;owned\\x07")
    numbered(c.run(f"verb{esc}"), 2, "[rlalgo.cli.1]", "\\x1b")
    numbered(c.train({"base_model": f"model{esc}"}), 2, "\\x1b")
    numbered(c.train(dataset(c, "\x1b[31m\n")), 1, "[rlalgo.data.3]")
    numbered(c.train(dataset(c, '{"question": "q", "answer": "#### 1", "\\u001b[31m": 1}\n{"\\u001b[31m": "x"}\n')), 1, "\\x1b[31m")
    numbered(reward(c, """
        def f(completions, **kwargs):
            raise ValueError("\\x1b[31mred\\r\\x07")
    """), 1, "[rlalgo.remote.3]", "\\x1b[31mred\\x0d\\x07")


@case
def exceptions_of_any_size_and_text(c):
    result = numbered(reward(c, """
        def f(completions, **kwargs):
            raise ValueError("x" * 5000000 + "the end")
    """), 1, "[rlalgo.remote.3]", "bytes left out", "the end", "Traceback")
    assert len(result.err) < 20000, len(result.err)
    numbered(reward(c, """
        def f(completions, **kwargs):
            raise ValueError("half \\ud83d of a character")
    """), 1, "[rlalgo.remote.3]", "half \ufffd of a character")


# --- output
@case
def disk_full(c):
    """Files may not grow beyond 200 kB: the model cannot be saved, and no part of it stays."""
    script = "import resource, os, signal, sys\n" \
             "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" \
             "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))\n" \
             "os.execv(sys.argv[1], sys.argv[1:])\n"
    (c.folder / "limited.py").write_text(script)
    program, c.program = c.program, sys.executable
    result = c.run("limited.py", program, "train", c.config({"save_steps": 1, "save_strategy": "steps"}))
    result.expect(1, "[rlalgo.", "File too large")
    left = [str(p.relative_to(c.folder)) for p in (c.folder / "out").rglob("*.safetensors*")]
    assert not left, f"left behind: {left}"


@case
def output_not_writable(c):
    (c.folder / "out").write_text("a file, not a directory")
    c.train().expect(1, "[rlalgo.os.1]", "out")


if __name__ == "__main__":
    main(CASES)
