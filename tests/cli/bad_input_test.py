"""Every bad input of a training gives a numbered error, the right exit status and nothing half-written."""
import json
import os
import pathlib
import resource
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
    c.train().expect(1, "[rlalgo.core.1]", "out")


if __name__ == "__main__":
    main(CASES)
