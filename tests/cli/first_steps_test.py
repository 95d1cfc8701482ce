"""What a new user meets: init, a dry run, what is said before and inside a step, preprocess --debug, doctor."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"
TRAIN = QUICKSTART / "data" / "train.jsonl"


def case(function):
    CASES[function.__name__] = function
    return function


def pairs(c, **more):
    rows = [{"prompt": f"{i % 7} + {i % 5} =", "chosen": f" {i % 7 + i % 5} #", "rejected": f" {i % 7 + i % 5 + 1} #"} for i in range(24)]
    (c.folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"base_model": str(MODEL), "rl": "dpo", "datasets": [{"path": "pairs.jsonl"}], "sequence_len": 64, "micro_batch_size": 2,
              "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "max_steps": 3, "logging_steps": 1, "save_strategy": "no", "output_dir": "out", **more}
    return c.config(text=json.dumps(config), name="pairs.yaml")


def texts(c, **more):
    (c.folder / "texts.jsonl").write_text("".join(json.dumps({"text": f"{i} + {i} = {2 * i} and {i} + 1 = {i + 1} and so on"}) + "\n" for i in range(8)))
    config = {"base_model": str(MODEL), "rl": "ebft", "ebft": {"mode": "strided", "ce_coef": 0.1}, "sequence_len": 64, "learning_rate": 1e-4,
              "datasets": [{"path": "texts.jsonl", "type": "ebft_pretrain.transform"}], "micro_batch_size": 2, "max_steps": 2, "output_dir": "out", **more}
    return c.config(text=json.dumps(config), name="texts.yaml")


class Terminal:
    """A run of the program on a pseudo-terminal of 100 columns."""

    def __init__(self, c, *words, env=None):
        self.master, slave = pty.openpty()
        subprocess.run(["stty", "cols", "100"], stdin=slave, check=False)
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | (env or {})
        def own_terminal():  # so that Ctrl-C typed there is SIGINT
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([c.program, *map(str, words)], cwd=c.folder, stdin=slave, stdout=slave, stderr=slave, env=environment,
                                        preexec_fn=own_terminal)
        os.close(slave)
        self.text = ""

    def read(self, seconds):
        """One piece of what the program writes; False: its end is closed."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)

    def wait_for(self, part, seconds=60, begin=0):
        deadline = time.monotonic() + seconds
        while part not in self.text[begin:]:
            assert time.monotonic() < deadline, f"{part!r} did not come: {self.text[-2000:]!r}"
            if not self.read(0.05):
                assert part in self.text[begin:], f"it ended without {part!r}: {self.text[-2000:]!r}"
        return self.text.index(part, begin) + len(part)  # behind it

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self, seconds=60):
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            assert time.monotonic() < deadline, self.text[-2000:]
        code = self.process.wait(timeout=seconds)
        os.close(self.master)
        return code


@case
def before_the_first_step(c):
    """Six lines, the same in a pipe; how many, of what, where, and what it takes."""
    out = c.train({"logging_steps": 1, "eval_steps": 2, "val_set_size": 0.1}).expect(0).out
    for part in (r"^data    [\d,]+ prompts, [\d,]+ tokens, the longest \d+; \d+ more held out$", r"^step    2 prompts × 4 completions of up to 12 tokens, micro-batches of 8$",
                 r"^run     2 steps, [\d.]+ an epoch; evaluation before the first step and every 2 steps; no checkpoints$",
                 r"^model   [\d,.a-z ]+ parameters, all trained, in float32 \(bf16 is not set\)$",
                 r"^device  cpu, \d+ threads; at most about [\d.]+ MB of [\d.]+ GB: weights [\d.]+ MB, gradients [\d.]+ MB, optimizer [\d.]+ MB, (backward pass|keys and values) [\d.]+ MB, program 160 MB$",
                 r"^output  out$"):
        assert re.search(part, out, re.M), (part, out)
    assert out.index("output  out") < out.index("step 1/2")
    lora = c.train({"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "bf16": True, "output_dir": "lora"}).expect(0).out
    assert re.search(r"of them trained \(lora, r 4\), in bfloat16 \(bf16: true\)$", lora, re.M), lora
    out = c.run("train", pairs(c)).expect(0).out
    assert re.search(r"^data    24 pairs, [\d,]+ tokens, the longest \d+$", out, re.M) and re.search(r"^step    4 pairs, micro-batches of 2$", out, re.M), out
    assert re.search(r"reference [\d.]+ MB", out), out
    steps = [line for line in out.splitlines() if line.startswith("step ") and "/3" in line]
    assert len(steps) == 3 and all(re.search(r"accuracy [\d.]+  margin -?[\d.e-]+  loss", line) for line in steps), steps


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@case
def a_dry_run_shows_everything_and_leaves_nothing(c):
    name = c.config({"val_set_size": 0.1, "trl": {"async_prefetch": True, "use_data_producer": True, "async_schedule": "record"}})
    before = files(c.folder)
    out = c.run("train", name, "--dry-run").expect(0, "nothing was trained or written").out
    assert re.search(r"^time    a step takes about [\d.e-]+ s at most \([\d.e-]+ s of them generation", out, re.M), out
    shown = re.findall(r"^prompt \d+, \d+ tokens, 0 with loss$", out, re.M)
    assert len(shown) == 3 and out.count("up to 12 tokens are drawn, 4 times") == 3 and "⟦" not in out, out
    assert "step 1/" not in out and files(c.folder) == before, set(files(c.folder)) - set(before)
    name = pairs(c, dataset_prepared_path="prepared", precompute_ref_log_probs=True)
    before = files(c.folder)
    out = c.run("train", name, "--dry-run", "--max-steps", "7").expect(0, "run     7 steps").out
    assert len(re.findall(r"^pair \d+, chosen, ", out, re.M)) == len(re.findall(r"^pair \d+, rejected, ", out, re.M)) == 3, out
    assert len(re.findall(r"⟦ \d+ #[^⟧]*⟧", out)) == 6, out  # answers carry loss, prompts do not
    assert files(c.folder) == before, set(files(c.folder)) - set(before)
    out = c.run("train", texts(c), "--dry-run").expect(0, "data    8 documents", "blocks of 8 tokens are drawn").out
    assert "⟦" in out
    assert files(c.folder) == sorted(before + ["texts.jsonl", "texts.yaml"])
    # What a run would refuse, a dry run refuses, too.
    refused = c.run("train", c.config({"trl": {"reward_funcs": ["rewards.none"]}}), "--dry-run")
    assert refused.code in (1, 2) and "[rlalgo.remote." in refused.err, refused.err
    whole = c.run("train", name, "--dry-run", "--nproc-per-node", "2").expect(0, "pairs", "dealt to 2 ranks").out
    parts = c.run("train", name, "--dry-run", "--nproc-per-node", "2", "--fsdp-config.reshard-after-forward", "true").expect(0).out
    sizes = [re.search(r"optimizer (\d+) (k|M)B", out) for out in (whole, parts)]
    one, half = (int(size[1]) * {"k": 1, "M": 1000}[size[2]] for size in sizes)
    assert 0.4 * one <= half <= 0.6 * one and re.search(r"at most about \d+ MB a rank, \d+ MB for 2 of ", parts), (whole, parts)
    on = Terminal(c, "train", pairs(c), "--dry-run")
    assert on.end() == 0 and "\x1b[32;4m" in on.text and "\x1b[31;4m" in on.text and "⟦" not in on.text, on.text[-2000:]


@case
def rows_of_every_method_token_by_token(c):
    c.config({})
    before = files(c.folder)
    out = c.run("preprocess", "config.yaml", "--debug").expect(0, "prompts").out
    assert len(re.findall(r"^prompt \d+, ", out, re.M)) == 5 and re.search(r"\w\(\d+\) ", out), out
    c.run("preprocess", "config.yaml").expect(2, "[rlalgo.cli.10]", "--debug shows them")
    assert files(c.folder) == before
    out = c.run("preprocess", texts(c), "--debug").expect(0, "8 documents").out
    assert len(re.findall(r"^document \d+, \d+ tokens, \d+ with loss$", out, re.M)) == 5, out
    out = c.run("preprocess", pairs(c), "--debug").expect(0, "prepared in").out
    assert len(re.findall(r"^pair \d+, ", out, re.M)) == 10 and "⟦" in out, out


SLOW = """
import time

def slow(completions, **kwargs):
    time.sleep(1.5)
    return [float(len(str(c))) for c in completions]
"""


@case
def inside_a_step_a_terminal_shows_what_is_done(c):
    (c.folder / "slow.py").write_text(SLOW)
    name = c.config({"max_steps": 2, "logging_steps": 1, "val_set_size": 0.01, "eval_steps": 2, "trl": {"reward_funcs": ["slow.slow"]}})
    on = Terminal(c, "train", name, env={"NO_COLOR": "1"})
    code = on.end(120)
    assert code == 0, on.text[-1500:]
    assert re.search(r"\r\x1b\[Kstep 1/2  evaluating: rewards", on.text), on.text
    assert re.search(r"\r\x1b\[Kstep 2/2  rewards", on.text) and re.search(r"\r\x1b\[Kstep 1/2  (training|rewards)", on.text), on.text
    assert on.text.rstrip().endswith("in out"), on.text[-300:]
    piped = c.run("train", name, "--output-dir", "piped").expect(0)
    assert "rewards" not in piped.out and "generating" not in piped.out and "\x1b" not in piped.out, piped.out


@case
def a_short_run_that_learns_nothing_says_so(c):
    (c.folder / "zero.py").write_text("def zero(completions, **kwargs):\n    return [0.0] * len(completions)\n")
    c.train({"max_steps": 4, "logging_steps": 1, "trl": {"reward_funcs": ["zero.zero"]}}).expect(
        0, "warning: rewards/zero/mean is 0.0 on average over the last 4 records", "call the function on a few completions by hand")


@case
def the_last_checkpoint_by_its_name(c):
    name = c.config({"max_steps": 4, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2})
    c.run("train", name, "--resume-from-checkpoint", "last").expect(2, "[rlalgo.config.30]", "auto_resume_from_checkpoints")
    c.run("train", name, "--output-dir", "whole").expect(0)
    c.run("train", name, "--max-steps", "2").expect(0)
    out = c.run("train", name, "--resume-from-checkpoint", "last").expect(0)
    assert "resumed from out/checkpoint-2" in out.out + out.err, out.out
    assert (c.folder / "out" / "model.safetensors").read_bytes() == (c.folder / "whole" / "model.safetensors").read_bytes()


FAKE = """
import json, os
def put(what):
    with open("told", "a") as file:
        file.write(json.dumps(what) + "\\n")
class Run:
    url, dir = "https://tracker/run", "d"
    def define_metric(self, name, **how): pass
    def log(self, values): put(values)
    def finish(self, exit_code=0): put({"end": exit_code})
def init(**how):
    put({"init": how})
    return Run()
"""


@case
def a_tracker_gets_what_metrics_jsonl_has_and_can_end_nothing(c):
    (c.folder / "wandb.py").write_text(FAKE)
    where = {"PYTHONPATH": str(c.folder), "RLALGO_PYTHON": sys.executable}
    done = c.train({"max_steps": 3, "logging_steps": 1, "val_set_size": 0.02, "eval_steps": 3, "wandb_project": "p", "wandb_mode": "offline"}, env=where).expect(
        0, "wandb: https://tracker/run")
    assert "no effect" not in done.err, done.err
    told = [json.loads(line) for line in (c.folder / "told").read_text().splitlines()]
    assert told[0]["init"]["project"] == "p" and told[0]["init"]["name"] == "out" and told[0]["init"]["config"]["learning_rate"] == 1e-3, told[0]
    records = c.metrics()
    assert len(told) == len(records) + 2 and told[-1] == {"end": 0}, (len(told), len(records))
    for record, logged in zip(records, told[1:-1]):
        for name, value in record.items():
            if name in ("step", "epoch") or value is None:
                continue
            key = "eval/" + name[5:] if name.startswith("eval_") else "train/" + name
            assert logged[key] == value and logged["train/global_step"] == record["step"], (key, value, logged)
    (c.folder / "wandb.py").write_text("raise ImportError('broken')")
    c.train({"output_dir": "second", "wandb_project": "p"}, env=where).expect(0, "wandb: warning: it gets nothing more", "broken", "done: step 2")


@case
def an_evaluation_before_the_first_step_has_a_switch(c):
    more = {"val_set_size": 0.02, "logging_steps": 1, "eval_steps": 2}
    c.train({**more, "output_dir": "with"}).expect(0, "evaluation before the first step and every 2 steps")
    c.train({**more, "output_dir": "without"}, "--eval-on-start", "false").expect(0, "evaluation every 2 steps")
    assert [r["step"] for r in c.metrics("with") if "eval_reward" in r] == [0, 2] and [r["step"] for r in c.metrics("without") if "eval_reward" in r] == [2]


def shaped(c, name, row, count=40):
    (c.folder / name).write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)))
    return name


@case
def init_writes_what_runs(c):
    plain = shaped(c, "plain.jsonl", lambda i: {"prompt": f"{i} + 1 =", "answer": str(i + 1)})
    marked = shaped(c, "marked.jsonl", lambda i: {"question": f"{i} + 1?", "answer": f"so it is\n#### {i + 1}"})
    two = shaped(c, "two.jsonl", lambda i: {"prompt": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": f" {i + 2}"})
    asked = shaped(c, "asked.jsonl", lambda i: {"question": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": f" {i + 2}"})
    one = shaped(c, "one.jsonl", lambda i: {"prompt": f"{i} + 1 =", "completion": f" {i + 1}", "label": i % 2 == 0})
    small = ["--max-steps", "1", "--micro-batch-size", "2", "--gradient-accumulation-steps", "4"]
    for method, data in (("grpo", plain), ("dapo", marked), ("rloo", plain), ("gdpo", marked), ("dpo", two), ("ipo", asked), ("orpo", two), ("simpo", two),
                         ("cpo", two), ("kto", one)):
        file = f"{method}.yaml"
        out = c.run("init", file, "--model", MODEL, "--data", data, "--method", method, "--output-dir", f"out-{method}").expect(0, f"wrote {file}", "--dry-run").out
        assert ("rewards.py" in out) == (method == "grpo"), out  # written once, for all that generate
        text = (c.folder / file).read_text()
        assert text.count("#") > 6 and str(MODEL) in text, text
        options = small + (["--trl.max-completion-length", "6"] if method in ("grpo", "dapo", "rloo", "gdpo") else [])
        c.run("train", file, *options).expect(0, "done: step 1")
    rewards = (c.folder / "rewards.py").read_text()
    assert "def correct(completions, answer, **kwargs)" in rewards and rewards.startswith('"""'), rewards


@case
def init_replaces_nothing_and_says_what_it_lacks(c):
    data = shaped(c, "rows.jsonl", lambda i: {"prompt": "1", "answer": "2"})
    (c.folder / "config.yaml").write_text("mine")
    (c.folder / "rewards.py").write_text("def correct(completions, **kwargs):\n    return [1.0 for _ in completions]\n")
    c.run("init", "--model", MODEL, "--data", data, "--method", "grpo").expect(2, "[rlalgo.cli.31]", "config.yaml")
    c.run("init", "new.yaml", "--model", MODEL, "--data", data, "--method", "grpo").expect(0, "rewards.py is there already and stays")
    assert (c.folder / "config.yaml").read_text() == "mine" and "return [1.0" in (c.folder / "rewards.py").read_text()
    c.run("init", "x.yaml", "--model", MODEL).expect(2, "[rlalgo.cli.27]", "no --data, --method")
    c.run("init", "x.yaml", "--model", MODEL, "--data", data, "--method", "grop").expect(2, "[rlalgo.cli.29]", "did you mean grpo?")
    c.run("init", "x.yaml", "--model", MODEL, "--data", data, "--method", "dpo").expect(2, "[rlalgo.cli.30]", "prompt, answer", "chosen")
    c.run("init", "x.yaml", "--model", "none", "--data", data, "--method", "grpo").expect(2, "[rlalgo.config.20]")
    odd = shaped(c, "odd.jsonl", lambda i: {"thing": i})
    c.run("init", "x.yaml", "--model", MODEL, "--data", odd, "--method", "grpo").expect(2, "[rlalgo.cli.30]", "found thing")
    assert not (c.folder / "x.yaml").exists()


@case
def init_asks_on_a_terminal(c):
    data = shaped(c, "rows.jsonl", lambda i: {"prompt": f"{i} =", "answer": str(i)})
    on = Terminal(c, "init", "asked.yaml")
    at = on.wait_for("model (a directory")
    on.type(f"{MODEL}\n")
    at = on.wait_for("data (a file", begin=at)
    on.type(f"{data}\n")
    on.wait_for("method [grpo]", begin=at)
    on.type("\n")
    assert on.end() == 0 and "wrote asked.yaml and ./rewards.py" in on.text, on.text
    assert "rl: grpo" in (c.folder / "asked.yaml").read_text()


@case
def doctor_says_what_a_report_needs_and_nothing_secret(c):
    secret = {"HF_TOKEN": "hf_abcdef", "WANDB_API_KEY": "0123456789", "VLLM_API_KEY": "sesame", "RLALGO_PYTHON": sys.executable, "OMP_NUM_THREADS": "2"}
    out = c.run("doctor", env=secret).expect(0).out
    for part in ("rlalgo ", "compiler ", "kernels of generation", "devices", "machine", "processor", "memory", "libraries", "Gloo", "Python", sys.executable,
                 "disk", "hub cache", "working directory", "environment", "HF_TOKEN", "is set", "OMP_NUM_THREADS"):
        assert part in out, (part, out)
    for value in ("hf_abcdef", "0123456789", "sesame"):
        assert value not in out, out
    c.run("doctor", env={"RLALGO_PYTHON": "/no/such/python"}).expect(0, "/no/such/python does not run")


if __name__ == "__main__":
    main(CASES)
