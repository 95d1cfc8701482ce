"""Training as a user sees it: outputs, overrides, resume after a kill, Ctrl-C, inference, report."""
import json
import pathlib
import random
import shutil
import signal
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, same_files, without_times  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def header(path):
    raw = path.read_bytes()
    return json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])


def tensors(path):
    """The bytes of every tensor of a safetensors file."""
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    return {name: raw[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
            for name, entry in header(path).items() if name != "__metadata__"}


@case
def outputs(c):
    c.train({"save_steps": 1, "save_strategy": "steps", "trl": {"num_iterations": 2}}).expect(0)
    out = c.folder / "out"
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                 "metrics.jsonl", "report.html", "trainer_state.json", "checkpoint-1/optimizer.safetensors", "checkpoint-2/model.safetensors"]:
        assert (out / name).is_file(), f"{name} is missing"
    assert list(out.glob("runs/**/events.out.tfevents.*")), "no TensorBoard events"
    assert not list(out.rglob("*.tmp*")), "temporary files stay"
    ours, base = header(out / "model.safetensors"), header(QUICKSTART / "model" / "model.safetensors")
    assert {k: v["shape"] for k, v in ours.items() if k != "__metadata__"} == \
        {k: v["shape"] for k, v in base.items() if k != "__metadata__"}
    first, second = c.metrics()
    assert first["step"] == 1 and second["step"] == 2
    for name in ["loss", "grad_norm", "learning_rate", "reward", "reward_std", "rewards/gsm8k_accuracy/mean", "entropy",
                 "completions/mean_length", "completions/clipped_ratio", "clip_ratio/region_mean", "frac_reward_zero_std",
                 "num_tokens", "time/step", "time/generate", "time/train"]:
        assert isinstance(first[name], (int, float)), name
    assert "reward" not in second, "the second iteration over a generation has no rewards of its own"
    html = (out / "report.html").read_text()
    assert "<svg" in html and "http://" not in html.replace("http://www.w3.org", ""), "the report is not self-contained"


@case
def overrides(c):
    c.train({}, "--max-steps", "1", "--trl.num-generations=8", "--output-dir", "other").expect(0)
    assert len(c.metrics("other")) == 1
    assert not (c.folder / "out").exists()


@case
def unknown_override(c):
    c.train({}, "--lerning-rate", "1").expect(2, "learning_rate")


@case
def same_bytes_twice(c):
    c.train({"output_dir": "a"}).expect(0)
    c.train({"output_dir": "b"}).expect(0)
    assert (c.folder / "a/model.safetensors").read_bytes() == (c.folder / "b/model.safetensors").read_bytes()
    assert without_times(c.metrics("a")) == without_times(c.metrics("b"))


LONG = {"max_steps": 6, "save_steps": 1, "save_strategy": "steps", "logging_steps": 2, "lr_scheduler": "linear",
        "micro_batch_size": 4, "gradient_accumulation_steps": 2, "trl": {"num_iterations": 2, "beta": 0.02}}


@case
def resume_after_kill(c):
    """Killed at random moments and resumed each time: the files of an undisturbed run. Run again: the same."""
    name = c.config({**LONG, "auto_resume_from_checkpoints": True}, name="killed.yaml")
    c.run("train", name).expect(0)
    (c.folder / "out").rename(c.folder / "whole")
    dice = random.Random(11)
    for _ in range(6):
        process = c.start("train", name)
        time.sleep(dice.uniform(0.05, 0.9))
        process.kill()
        process.communicate()
    for _ in range(2):
        c.run("train", name).expect(0)
        same_files(c.folder / "whole", c.folder / "out")


@case
def quantized_generation(c):
    """With weights in 8 bits: another policy draws, the loss corrects for it, and a run that is resumed is the same run."""
    run = {"max_steps": 4, "save_steps": 2, "save_strategy": "steps", "micro_batch_size": 32, "learning_rate": 1e-3,
           "trl": {"generation_quantization": "int8", "max_completion_length": 32}}
    c.train(run).expect(0)
    (c.folder / "out").rename(c.folder / "whole")
    records = c.metrics("whole")
    for record in records:
        if "reward" in record:
            assert 0 < record["sampling/sampling_logp_difference/mean"] < 0.05, record
            low, high = (record[f"sampling/importance_sampling_ratio/raw_{end}"] for end in ("min", "max"))
            assert low < 1 < high, record
    shutil.copytree(c.folder / "whole/checkpoint-2", c.folder / "out/checkpoint-2")
    c.train({**run, "resume_from_checkpoint": "out/checkpoint-2"}).expect(0)
    same_files(c.folder / "whole", c.folder / "out", only=["model.safetensors", "checkpoint-4/optimizer.safetensors"])
    c.train({**run, "output_dir": "plain", "trl": {**run["trl"], "generation_quantization": "none"}}).expect(0)
    assert "sampling/sampling_logp_difference/mean" not in c.metrics("plain")[0]
    assert (c.folder / "plain/model.safetensors").read_bytes() != (c.folder / "whole/model.safetensors").read_bytes()
    c.train({**run, "resume_from_checkpoint": "out/checkpoint-2", "trl": {**run["trl"], "generation_quantization": "none"}}).expect(
        1, "generation_quantization")
    for name, more in {"beside": {"trl": {"async_prefetch": True}}, "adapter": {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}}.items():
        trl = {**run["trl"], **more.pop("trl", {})}
        c.train({**run, **more, "trl": trl, "output_dir": name}).expect(0)
        assert c.metrics(name)[0]["sampling/sampling_logp_difference/mean"] > 0


@case
def finished_run_again(c):
    """The last step is not logged on schedule and evaluated at the end: run again, nothing is lost and nothing is there twice."""
    run = {"max_steps": 5, "logging_steps": 3, "save_steps": 2, "save_strategy": "steps", "val_set_size": 0.004, "eval_steps": 2,
           "eval_strategy": "steps", "lr_scheduler": "constant", "auto_resume_from_checkpoints": True}
    c.train(run).expect(0)
    (c.folder / "out").rename(c.folder / "whole")
    shutil.copytree(c.folder / "whole", c.folder / "out")
    c.train(run).expect(0, "step 5/5")
    same_files(c.folder / "whole", c.folder / "out")
    assert [r["step"] for r in c.metrics() if "eval_reward" in r] == [0, 2, 4, 5]
    assert {json.loads(line)["step"] for line in (c.folder / "out/samples.jsonl").read_text().splitlines()} == {1, 3, 5}
    # Extended: the logs of a run that was to be longer from the start.
    c.train(run, "--max-steps", "8").expect(0)
    shutil.rmtree(c.folder / "whole")
    (c.folder / "out").rename(c.folder / "whole")
    c.train(run, "--max-steps", "8").expect(0)
    same_files(c.folder / "whole", c.folder / "out", ["metrics.jsonl", "samples.jsonl", "events", "folders and files of events"])


LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "lora_dropout": 0.1,
        "lora_modules_to_save": ["lm_head"]}


@case
def adapter(c):
    """Trains, resumes to the same bytes, is used by inference, and is continued."""
    c.train({**LONG, **LORA, "trl": {"beta": 0.05}, "output_dir": "whole"}).expect(0)
    names = {p.name for p in (c.folder / "whole").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md"} <= names, names
    assert not {"model.safetensors", "config.json", "generation_config.json"} & names, names
    config = json.loads((c.folder / "whole" / "adapter_config.json").read_text())
    assert config["r"] == 4 and config["base_model_name_or_path"] == BASE["base_model"], config
    assert list(config) == sorted(config), config
    c.train({**LONG, **LORA, "trl": {"beta": 0.05}, "output_dir": "half"},
            "--resume-from-checkpoint", "whole/checkpoint-3").expect(0)
    assert (c.folder / "whole/adapter_model.safetensors").read_bytes() == (c.folder / "half/adapter_model.safetensors").read_bytes()
    c.run("inference", "whole", "--max-new-tokens", "3", stdin="2 + 3 =").expect(0)
    c.train({**LORA, "lora_model_dir": "whole", "output_dir": "more"}).expect(0)
    c.train({**LORA, "adapter": "qlora", "max_steps": 1}).expect(2, "[rlalgo.config.8]", "load_in_4bit")


@case
def bfloat16(c):
    """Weights in bfloat16, masters in float32 in the checkpoint, which a resumed run needs to reach the same bytes."""
    low = {**LONG, "bf16": True, "learning_rate": 1e-4, "warmup_steps": 0,
           "trl": {**LONG["trl"], "reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 32}}
    c.train({**low, "output_dir": "whole"}).expect(0, "several times as long")
    described = header(c.folder / "whole/model.safetensors")
    assert {v["dtype"] for k, v in described.items() if k != "__metadata__"} == {"BF16"}, described
    state = header(c.folder / "whole/checkpoint-3/optimizer.safetensors")
    assert {v["dtype"] for k, v in state.items() if k.endswith((".master", ".exp_avg", ".exp_avg_sq"))} == {"F32"}
    assert sum(k.endswith(".master") for k in state) == len(described) - ("__metadata__" in described)
    masters, rounded = tensors(c.folder / "whole/checkpoint-3/optimizer.safetensors"), tensors(c.folder / "whole/checkpoint-3/model.safetensors")
    assert any(masters["model.norm.weight.master"][4 * i:4 * i + 2] != b"\0\0" for i in range(16)), "masters are not finer"
    assert len(rounded["model.norm.weight"]) * 2 == len(masters["model.norm.weight.master"])
    c.train({**low, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(0)
    for file in ["model.safetensors", "checkpoint-6/optimizer.safetensors"]:
        assert (c.folder / "half" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), f"{file} differs"
    c.train({"fp16": True}).expect(2, "[rlalgo.config.10]", "float32")


@case
def adamw_8bit(c):
    """Moments in 8 bits: a quarter of the bytes, the same file after a resume, and no mixing with whole ones."""
    run = {**LONG, "warmup_steps": 0, "trl": {**LONG["trl"], "reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 32}}
    c.train({**run, "output_dir": "full"}).expect(0)
    c.train({**run, "optimizer": "adamw_8bit", "output_dir": "whole"}).expect(0)
    full, eight = (header(c.folder / folder / "checkpoint-6/optimizer.safetensors") for folder in ("full", "whole"))
    size = lambda state, name: sum(e["data_offsets"][1] - e["data_offsets"][0] for k, e in state.items() if k.startswith(name + ".exp_avg"))
    quantized = {k[:-len(".exp_avg_scale")] for k in eight if k.endswith(".exp_avg_scale")}
    assert len(quantized) == 28 and "model.embed_tokens.weight" not in quantized, quantized  # the matrices of 4 layers
    for name in quantized:
        assert {eight[name + moment]["dtype"] for moment in (".exp_avg", ".exp_avg_sq")} == {"U8"}
        assert 0.25 <= size(eight, name) / size(full, name) < 0.26, name
    assert eight["model.embed_tokens.weight.exp_avg"]["dtype"] == "F32"
    moved = [tensors(c.folder / folder / "model.safetensors") for folder in ("full", "whole")]
    assert moved[0] != moved[1], "8 bits change nothing"
    c.train({**run, "optimizer": "adamw_bnb_8bit", "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(0)
    for file in ["model.safetensors", "checkpoint-6/optimizer.safetensors"]:
        assert (c.folder / "half" / file).read_bytes() == (c.folder / "whole" / file).read_bytes(), f"{file} differs"
    c.train({**run, "output_dir": "other"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "run.12", "moments of the optimizer")
    c.train({**run, "optimizer": "adamw_8bit", "output_dir": "other"}, "--resume-from-checkpoint", "full/checkpoint-3").expect(
        1, "run.12", "moments of the optimizer")
    c.train({**run, "output_dir": "other", "force_resume": True}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "optim.1")
    c.train({"optimizer": "adopt_adamw"}).expect(2, "[rlalgo.config.10]", "adamw_8bit")


@case
def unfrozen(c):
    """Only the named weights move."""
    c.train({"unfrozen_parameters": ["model.norm", "model.layers.0.mlp"], "output_dir": "some", "warmup_steps": 0,
             "trl": {"reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 32}}).expect(0)
    before, after = tensors(pathlib.Path(BASE["base_model"]) / "model.safetensors"), tensors(c.folder / "some/model.safetensors")
    widened = {name: b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)) for name, data in before.items()}
    moved = {name for name in after if widened[name] != after[name]}  # bf16 on disk, trained and saved in f32
    assert moved and all(name.startswith(("model.norm", "model.layers.0.mlp")) for name in moved), moved


@case
def resume_by_name(c):
    c.train({**LONG, "output_dir": "whole"}).expect(0)
    c.train({**LONG, "output_dir": "out", "max_steps": 3, "lr_scheduler": "constant"}).expect(0)
    c.train({**LONG, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(0)
    assert (c.folder / "half/model.safetensors").read_bytes() == (c.folder / "whole/model.safetensors").read_bytes()
    c.train({**LONG}, "--resume-from-checkpoint", "none/checkpoint-3").expect(1, "[rlalgo.run.4]", "none/checkpoint-3")
    c.train({**LONG, "seed": 1}, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "[rlalgo.run.6]", "seed")
    hotter = {**LONG, "trl": {**LONG["trl"], "temperature": 0.5}}
    c.train(hotter, "--resume-from-checkpoint", "whole/checkpoint-3").expect(1, "[rlalgo.run.12]", "trl.temperature: 1.0 in the checkpoint, 0.5 now")
    weights = c.folder / "whole/checkpoint-5/model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    weights.write_bytes(flipped)
    c.train({**LONG}, "--resume-from-checkpoint", "whole/checkpoint-5").expect(1, "[rlalgo.run.5]", "damaged", "model.safetensors")


@case
def resume_notices_changes(c):
    """Other rows, other reward code, other reward weights: an error that names them; --force-resume goes on."""
    code = "def long(completions, **kwargs):\n    return [float(len(x)) for x in completions]\n"
    (c.folder / "length.py").write_text(code)
    rows = [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(12)]
    data = c.folder / "own.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = {**LONG, "datasets": [{"path": "own.jsonl"}], "trl": {**LONG["trl"], "reward_funcs": ["length.long"]}}
    c.train({**run, "output_dir": "whole"}).expect(0)
    resume = ["--resume-from-checkpoint", "whole/checkpoint-3", "--output-dir", "half"]
    c.train(run, *resume).expect(0)
    assert (c.folder / "half/model.safetensors").read_bytes() == (c.folder / "whole/model.safetensors").read_bytes()
    rows[7]["answer"] = "9"
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    c.train(run, *resume).expect(1, "[rlalgo.run.12]", "rows of datasets")
    c.train(run, *resume, "--force-resume").expect(0, "warning: resuming with a changed setting", "rows of datasets")
    rows[7]["answer"] = "8"
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    (c.folder / "length.py").write_text(code.replace("len(x)", "2 * len(x)"))
    c.train(run, *resume).expect(1, "[rlalgo.run.12]", "code of length.long")
    (c.folder / "length.py").write_text(code)
    c.train({**run, "trl": {**run["trl"], "reward_weights": [2.0]}}, *resume).expect(1, "[rlalgo.run.12]", "trl.reward_weights")
    c.train(run, *resume, "--max-steps", "7").expect(0, "max_steps: 6 in the checkpoint, 7 now")


@case
def another_runs_checkpoint(c):
    """A fresh run over an old output_dir, stopped early: auto resume takes none of the old run's later checkpoints."""
    c.train({**LONG}).expect(0)
    assert (c.folder / "out/checkpoint-6").is_dir()
    c.train({**LONG, "seed": 7, "max_steps": 2, "lr_scheduler": "constant"}).expect(0)
    assert (c.folder / "out/checkpoint-6").is_dir() and (c.folder / "out/checkpoint-2").is_dir()
    c.train({**LONG, "seed": 7, "lr_scheduler": "constant", "auto_resume_from_checkpoints": True}).expect(
        0, "checkpoint-6 is of another run", "resumed from out/checkpoint-2")
    weights = c.folder / "out/checkpoint-6/model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    weights.write_bytes(flipped)
    c.train({**LONG, "seed": 7, "lr_scheduler": "constant", "auto_resume_from_checkpoints": True}).expect(
        0, "the checkpoint is damaged", "resumed from out/checkpoint-5")


@case
def control_c(c):
    process = c.start("train", c.config({"max_steps": 100000, "save_strategy": "epoch", "logging_steps": 1}))
    line = process.stdout.readline()
    while line and "step 2/" not in line:
        line = process.stdout.readline()
    assert line, process.stderr.read()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, f"exit status {process.returncode}\n{err}"
    checkpoints = [p.name for p in (c.folder / "out").glob("checkpoint-*")]
    assert len(checkpoints) == 1, checkpoints
    assert (c.folder / "out" / "model.safetensors").is_file()


@case
def python_reward(c):
    (c.folder / "rewards.py").write_text(
        "def short(completions, completion_ids, answer, trainer_state, log_extra, **kwargs):\n"
        "    print('noise on standard output')\n"
        "    assert isinstance(answer[0], str) and trainer_state is not None\n"
        "    assert completions[0][0]['role'] == 'assistant'\n"
        "    log_extra('gold', answer)\n"
        "    return [-float(len(ids)) for ids in completion_ids]\n")
    c.train({"trl": {"reward_funcs": ["rewards.short", "builtin.gsm8k_format"], "reward_weights": [0.1, 1.0]}}).expect(0)
    samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
    assert samples and all(isinstance(sample["logged"]["gold"], str) for sample in samples)
    record = c.metrics()[0]
    assert abs(record["rewards/short/mean"] + record["completions/mean_length"]) < 1e-9
    weighted = 0.1 * record["rewards/short/mean"] + record["rewards/gsm8k_format/mean"]
    assert abs(record["reward"] - weighted) < 1e-9


@case
def metrics_of_a_function_by_the_runs_names(c):
    """Whatever a function logs, the run's own numbers are what they are without it."""
    (c.folder / "quiet.py").write_text(
        "def f(completions, **kwargs):\n    return [0.1 * (i % 4) for i in range(len(completions))]\n")
    changes = {"trl": {"reward_funcs": ["quiet.f"], "beta": 0.02}}
    c.train({**changes, "output_dir": "quiet"}).expect(0)
    names = sorted({name for record in c.metrics("quiet") for name in record})
    (c.folder / "quiet.py").write_text(
        "def f(completions, log_metric, **kwargs):\n"
        f"    for name in {names!r}:\n        log_metric(name, 1e6)\n"
        "    log_metric('mine', 2.0)\n"
        "    return [0.1 * (i % 4) for i in range(len(completions))]\n")
    result = c.train({**changes, "output_dir": "loud"}).expect(0, "logs a metric by the name 'loss'", "logged/loss")
    assert result.err.count("by the name 'loss'") + result.out.count("by the name 'loss'") == 1, result.err
    quiet, loud = without_times(c.metrics("quiet")), without_times(c.metrics("loud"))
    for one, other in zip(quiet, loud):
        assert all(other[name] == value for name, value in one.items()), (one, other)
        assert other["mine"] == 2.0 and other["logged/step"] == 1e6 and other["logged/reward"] == 1e6, other
    c.run("report", "loud").expect(0)


GAME = """
import os, time

class Guess:
    def reset(self, answer, **columns):
        self.answer, self.turns = answer, 0

    def step(self, text):
        self.turns += 1
        if self.answer in text:
            return None, 1.0, True
        return "No. Again.", -0.25, self.turns == 3

class Hangs(Guess):
    def step(self, text):
        time.sleep(60)

class Dies(Guess):
    def step(self, text):
        os._exit(3)

class Endless(Guess):
    def step(self, text):
        return "", 0.0, False
"""


@case
def environment(c):
    (c.folder / "games.py").write_text(GAME)
    change = {"trl": {"environment_factory": "games.Guess", "max_completion_length": 64, "num_iterations": 2},
              "max_steps": 4, "save_steps": 3, "save_strategy": "steps"}
    c.config(change)
    c.run("train", "config.yaml").expect(0)
    first = c.metrics()[0]
    assert 1 < first["environment/turns"] <= 3, first
    assert "rewards/Guess/mean" in first and "rewards/gsm8k_accuracy/mean" in first
    samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
    assert any("No. Again." in s["completion"] for s in samples), samples
    # In the middle of a generation: the rest of it is played on, and the next one is the same.
    c.run("train", "config.yaml", "--resume-from-checkpoint", "out/checkpoint-3", "--output-dir", "again").expect(0)
    for name in ["model.safetensors"]:
        assert (c.folder / "again" / name).read_bytes() == (c.folder / "out" / name).read_bytes(), name


@case
def environments_that_fail(c):
    (c.folder / "games.py").write_text(GAME)
    def train(name, **more):
        return c.train({"trl": {"environment_factory": "games." + name, "environment_timeout": 2, **more}, "max_steps": 1})
    train("Hangs").expect(1, "rlalgo.remote.54", "trl.environment_timeout")
    train("Dies").expect(1, "rlalgo.remote.55", "games.Dies")
    train("Chess").expect(1, "rlalgo.remote.51", "Chess", "Guess")
    train("Endless", max_completion_length=64).expect(0)
    assert c.metrics()[0]["environment/turns"] > 1
    train("Guess", tools=["calculator"]).expect(2, "rlalgo.config.25")


# As axolotl's pages on rollout functions and rewards have them: processing_class=False for tokenize=False, a reward that asks
# for `answers` where the column is `answer`, completions that are texts although prompts are conversations.
MATH_ENV = """
import re

def think(model, processing_class, prompts, generation_config=None):
    completions = []
    for prompt in prompts:
        text = processing_class.apply_chat_template(prompt.get("messages", []), processing_class=False, add_generation_prompt=True)
        said = ""
        for step in range(3):
            inputs = processing_class(text + said + "\\nNext step:", return_tensors="pt").to(model.device)
            outputs = model.generate(**inputs, max_new_tokens=4, generation_config=generation_config)
            words = processing_class.decode(outputs[0][inputs.input_ids.shape[1]:], skip_special_tokens=True)
            if "####" in words:
                said += words
                break
            said += words + "\\n"
        completions.append(said)
    return completions

def right(prompts, completions, answers, **kwargs):
    found = [re.search(r"(\\d+)", c) for c in completions]
    return [1.0 if f and f.group(1) == str(a) else 0.1 * len(c) for f, a, c in zip(found, answers, completions)]

def transform(cfg, *args, **kwargs):
    def one(example, processing_class=None):
        return {"prompt": [{"role": "user", "content": example["question"]}], "answer": str(example["answer"]).split("#")[-1].strip()}
    return one, {"remove_columns": ["question"]}
"""

TRL_ENV = """
from trl.experimental.openenv import generate_rollout_completions

def play(prompts, trainer):
    tokenizer = trainer.processing_class
    first = generate_rollout_completions(trainer, prompts)
    hint = tokenizer.encode(" Again.", add_special_tokens=False)
    out = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "env_reward": []}
    for one in first:
        out["prompt_ids"].append(one["prompt_ids"])
        out["completion_ids"].append(one["completion_ids"] + hint)
        out["logprobs"].append(one["logprobs"] + [0.0] * len(hint))
        out["env_mask"].append([1] * len(one["completion_ids"]) + [0] * len(hint))
        out["env_reward"].append(float(len(one["text"])))
    return out

def from_env(completions, env_reward, **kwargs):
    assert all(c[0]["role"] == "assistant" and c[0]["content"].endswith(" Again.") for c in completions), completions
    return env_reward
"""


@case
def rollout_functions(c):
    (c.folder / "math_env.py").write_text(MATH_ENV)
    change = {"trl": {"rollout_func": "math_env.think", "reward_funcs": ["math_env.right"], "max_completion_length": 40},
              "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "math_env.transform"}],
              "max_steps": 4, "save_steps": 3, "save_strategy": "steps"}
    c.config(change)
    c.run("train", "config.yaml").expect(0)
    first = c.metrics()[0]
    assert first["rewards/right/mean"] > 0 and first["grad_norm"] > 0 and "environment/turns" not in first, first
    samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
    assert any("\n" in s["completion"] for s in samples), samples
    c.run("train", "config.yaml", "--resume-from-checkpoint", "out/checkpoint-3", "--output-dir", "again").expect(0)
    for name in ["model.safetensors"]:
        assert (c.folder / "again" / name).read_bytes() == (c.folder / "out" / name).read_bytes(), name
    (c.folder / "math_env.py").write_text(MATH_ENV.replace("max_new_tokens=4", "max_new_tokens=3"))
    c.run("train", "config.yaml", "--resume-from-checkpoint", "out/checkpoint-3", "--output-dir", "other").expect(1, "math_env.think")
    beside = {"async_prefetch": True, "vllm_importance_sampling_correction": True}
    later = {k: v for k, v in change.items() if not k.startswith("save")}
    c.train({**later, "trl": {**change["trl"], **beside}, "output_dir": "beside"}).expect(0)


@case
def rollout_functions_of_trl(c):
    (c.folder / "envs.py").write_text(TRL_ENV)
    change = {"trl": {"rollout_func": "envs.play", "reward_funcs": ["envs.from_env"]}, "max_steps": 2}
    c.train(change).expect(0)
    first = c.metrics()[0]
    assert first["rewards/from_env/mean"] > 0 and first["completions/max_length"] <= 12, first
    c.train({**change, "trl": {**change["trl"], "tools": ["calculator"]}}).expect(2, "rlalgo.config.8", "trl.rollout_func")
    c.train({**change, "trl": {**change["trl"], "rollout_func": "envs.no"}}).expect(1, "rlalgo.remote.61", "play")
    (c.folder / "envs.py").write_text(TRL_ENV.replace("tokenizer = ", "trainer.vllm_client.tokenizer = "))
    c.train(change).expect(1, "rlalgo.remote.62", "vllm_client", "envs.py")


@case
def tools(c):
    """The quickstart's model calls nothing: its prompts change, its turns end at once."""
    (c.folder / "mytools.py").write_text('def look(title: str) -> str:\n    """Looks.\n\n    Args:\n        title: A title\n    """\n')
    c.train({"trl": {"tools": ["calculator", "mytools.look"]}, "chat_template": "jinja", "max_steps": 1,
             "chat_template_jinja": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                    "{% for t in tools %}{{ t.function.name }} {% endfor %}<|im_start|>assistant\n"}).expect(0)
    record = c.metrics()[0]
    assert record["tools/call_frequency"] == 0 and record["tools/failure_frequency"] == 0 and record["environment/turns"] == 1
    c.train({"trl": {"tools": ["mytools.listen"]}}).expect(1, "rlalgo.remote.51", "listen", "look")


@case
def evaluation(c):
    c.train({"val_set_size": 0.004, "eval_steps": 1, "eval_strategy": "steps"}).expect(0)
    evaluations = [r for r in c.metrics() if "eval_reward" in r]
    assert [r["step"] for r in evaluations] == [0, 1, 2], evaluations
    assert "eval_rewards/gsm8k_accuracy/mean" in evaluations[0] and "eval_loss" in evaluations[0]


@case
def split_does_not_matter(c):
    """One optimizer step of 16 rows: the same loss, gradient norm and metrics in 1, 2 and 4 micro-batches."""
    records = []
    for parts in (1, 2, 4):
        c.train({"micro_batch_size": 16 // parts, "gradient_accumulation_steps": parts, "max_steps": 1,
                 "output_dir": f"out{parts}", "trl": {"beta": 0.0}}).expect(0)
        records += without_times(c.metrics(f"out{parts}")[:1])
    for other in records[1:]:
        for name, value in records[0].items():
            # The number of rows per forward pass changes float rounding, nothing else.
            assert abs(value - other[name]) <= 2e-5 * max(1.0, abs(value)), f"{name}: {value} and {other[name]}"


@case
def inference(c):
    question = "Jon finds 10 pears on Monday and 12 on Tuesday. How many pears does Jon find in all?"
    greedy = c.run("inference", QUICKSTART / "model", "--chat", "--temperature", "0", "--repetition-penalty", "1", stdin=question)
    greedy.expect(0)
    assert "pears" in greedy.out and "<|im_end|>" not in greedy.out, greedy.out
    same = c.run("inference", QUICKSTART / "model", "--chat", "--temperature", "0", "--repetition-penalty", "1", stdin=question)
    assert same.out == greedy.out
    c.run("inference", QUICKSTART / "model", "--temprature", "0", stdin="x").expect(2, "[rlalgo.cli.8]", "temperature")


@case
def report_and_version(c):
    c.train().expect(0)
    (c.folder / "out/report.html").unlink()
    c.run("report", "out").expect(0)
    assert "<svg" in (c.folder / "out/report.html").read_text()
    c.run("report").expect(2, "[rlalgo.cli.3]")
    assert "LibTorch" in c.run("version").expect(0).out
    c.run("dance").expect(2, "[rlalgo.cli.1]")
    c.run().expect(2, "usage")


if __name__ == "__main__":
    main(CASES)
