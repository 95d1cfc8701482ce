"""The faults of scripts/reliability.py: each is a function whose first line says what is promised.

A fault gets a scratch folder, breaks something in it and runs the program. `refuse` is what every refusal has in common: an
error with a number, in a few lines, in good time, in bounded memory, and nothing half-written.
"""

import contextlib
import gzip
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reliability import GRPO, QUICKSTART, comparable, differences, write_inputs  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"
SHORT = {**{key: value for key, value in GRPO.items() if key != "save_steps"}, "auto_resume_from_checkpoints": False,
         "max_steps": 2, "logging_steps": 1, "save_strategy": "no", "micro_batch_size": 8, "gradient_accumulation_steps": 1}
MEMORY = 2 << 30  # bytes that no refusal needs


def case(function):
    CASES[function.__name__] = function
    return function


class Fault:
    """One scratch folder with a program to run in it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        folder.mkdir(parents=True)

    def config(self, changes=None, trl=None, drop=(), text=None):
        config = json.loads(json.dumps(SHORT))
        config["trl"].update(trl or {})
        config.update(changes or {})
        for key in drop:
            config.pop(key)
        write_inputs(self.folder, config)
        if text is not None:
            (self.folder / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())

    def run(self, *arguments, **more):
        return self.program.run(self.folder, *arguments, **more)

    def train(self, changes=None, *overrides, trl=None, drop=(), text=None, **more):
        self.config(changes, trl, drop, text)
        return self.run("train", "config.yaml", *overrides, **more)

    def start(self, changes=None, trl=None, **more):
        self.config(changes, trl)
        return self.program.start(self.folder, "train", "config.yaml", **more)

    def model(self):
        """A copy of the quickstart's model to break."""
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        return pathlib.Path(shutil.copytree(MODEL, self.folder / "model"))

    def rows(self, text):
        """A dataset of the quickstart's form with this text."""
        (self.folder / "own.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"datasets": [{"path": "own.jsonl", "type": "rewards.oai_gsm8k_transform"}]}

    def python(self, body):
        (self.folder / "rewards.py").write_text(body)
        return {"reward_funcs": ["rewards.f"]}

    def metrics(self):
        return [json.loads(line) for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]

    def info(self):
        return json.loads((self.folder / "out/run.json").read_text())

    def wait(self, condition, seconds=60.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.005)
        raise AssertionError(f"it did not happen in {seconds} s: {(self.folder / 'stderr').read_text(errors='replace')[-300:]}")

    def lines(self, name="metrics.jsonl"):
        path = self.folder / "out" / name
        return path.read_text().count("\n") if path.exists() else 0


def clean(result):
    """What is said is short and shows no control characters, and no trace of a library."""
    text = result.out[-50000:] + result.err
    assert len(text) < 40000, f"{len(text)} bytes are printed"
    for trace in ("Exception raised from", "frame #", "terminate called", "Segmentation fault", "std::bad_alloc"):
        assert trace not in text, text[:300]
    control = [c for c in text if ord(c) < 32 and c not in "\n\t\r" or ord(c) == 127]
    assert not control, f"control characters: {ascii(text[:300])}"
    return result


def refuse(fault, result, *parts, codes=(1, 2), seconds=30.0, output="out"):
    assert result.code in codes, f"exit status {result.code}: {result.err[-300:]}"
    clean(result)
    assert re.search(r"\[rlalgo\.[a-z_]+\.\d+\]", result.err), f"no number: {result.err[-300:]}"
    for part in parts:
        assert part in result.err, f"{part!r} is not in: {result.err[-400:]}"
    assert result.seconds < seconds, f"{result.seconds:.0f} s"
    assert result.bytes < MEMORY, f"{result.bytes >> 20} MiB of memory"
    left = [p.name for p in (fault.folder / output).rglob("*") if p.name.endswith(".safetensors") or ".tmp" in p.name]
    assert not left, f"left behind: {left}"
    return result


def finish(result, *parts):
    assert result.code == 0, f"exit status {result.code}: {result.err[-400:]}"
    for part in parts:
        assert part in result.err + result.out, f"{part!r} is not in: {result.err[-400:]}"
    return clean(result)


# --- resume

SAVING = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "logging_steps": 3, "auto_resume_from_checkpoints": True}


@case
def another_runs_checkpoints(f):
    """A fresh run over an old output_dir never goes on from the old run's checkpoints."""
    finish(f.train({**SAVING, "max_steps": 6}))
    finish(f.train({**SAVING, "auto_resume_from_checkpoints": False, "seed": 7, "max_steps": 2}))
    finish(f.train({**SAVING, "seed": 7}), "is of another run", "resumed from out/checkpoint-2")


@case
def other_data_rewards_and_code(f):
    """A resume with other rows, reward weights or reward code is refused by name; force_resume goes on."""
    code = "def f(completions, **kwargs):\n    return [1.0] * len(completions)\n"
    rows = f.rows("".join(json.dumps({"question": f"{i} + 1", "answer": f"#### {i + 1}"}) + "\n" for i in range(12)))
    f.config({**SAVING, **rows}, f.python(code))
    finish(f.run("train", "config.yaml"))
    resume = ["--resume-from-checkpoint", "out/checkpoint-2", "--output-dir", "half"]
    refuse(f, f.run("train", "config.yaml", *resume, "--trl.reward-weights", "[2.0]"), "[rlalgo.run.12]", "reward_weights", output="half")
    f.python(code.replace("1.0", "2.0"))
    refuse(f, f.run("train", "config.yaml", *resume), "[rlalgo.run.12]", "rewards.f", output="half")
    f.python(code)
    f.rows((f.folder / "own.jsonl").read_text().replace("11", "12"))
    refuse(f, f.run("train", "config.yaml", *resume), "[rlalgo.run.12]", "rows of datasets", output="half")
    finish(f.run("train", "config.yaml", *resume, "--force-resume"), "changed setting")


@case
def damaged_checkpoints(f):
    """A flipped bit in any file of the newest checkpoint is named; the one before is taken, and the result is the same."""
    finish(f.train(SAVING))
    expected = comparable(f.folder / "out")
    shutil.copytree(f.folder / "out", f.folder / "kept")
    files = [p.name for p in (f.folder / "out/checkpoint-4").iterdir()]
    assert {"model.safetensors", "optimizer.safetensors", "samples.jsonl", "trainer_state.json", "rlalgo_state.json"} <= set(files), files
    for name in files:
        shutil.rmtree(f.folder / "out")
        shutil.copytree(f.folder / "kept", f.folder / "out")
        file = f.folder / "out/checkpoint-4" / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        finish(f.run("train", "config.yaml"), "is damaged", name, "resumed from out/checkpoint-2")
        wrong = differences(expected, comparable(f.folder / "out"))
        assert not wrong, f"{name}: {wrong} differ"


@case
def half_a_checkpoint(f):
    """A checkpoint with a file cut short or missing is passed over, whatever is left of its state file."""
    finish(f.train(SAVING))
    shutil.copytree(f.folder / "out", f.folder / "kept")
    expected = comparable(f.folder / "out")

    def cut(path):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    for name in ("model.safetensors", "optimizer.safetensors", "rlalgo_state.json", "trainer_state.json"):
        for harm in (cut, pathlib.Path.unlink):
            shutil.rmtree(f.folder / "out")
            shutil.copytree(f.folder / "kept", f.folder / "out")
            harm(f.folder / "out/checkpoint-4" / name)
            finish(f.run("train", "config.yaml"), "resumed from out/checkpoint-2")
            wrong = differences(expected, comparable(f.folder / "out"))
            assert not wrong, f"{name}: {wrong} differ"


@case
def two_runs_in_one_directory(f):
    """A second run in the same output_dir is refused; the first is not disturbed."""
    process = f.start({"max_steps": 100000})
    try:
        f.wait(lambda: f.lines() >= 1)
        other = f.folder / "other"
        other.mkdir()
        result = f.program.run(other, "train", "../config.yaml", "--output-dir", "../out")
        assert result.code == 1 and "[rlalgo.run.3]" in result.err, result.err[-300:]
        before = f.lines()
        f.wait(lambda: f.lines() > before)
    finally:
        process.kill()
        process.wait()


# --- signals

CODES = {signal.SIGINT: 130, signal.SIGTERM: (130, 143), signal.SIGHUP: (129, 130), signal.SIGQUIT: (130, 131)}


def is_code(result, number):
    expected = CODES[number] if isinstance(CODES[number], tuple) else (CODES[number],)
    assert result.code in expected, f"{number.name}: exit status {result.code}, not one of {expected}"


def catches(process, number):
    """Whether the process has begun to handle the signal, or is over: before, it is still being loaded."""
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":\t" in line)
    return status["State"].startswith("Z") or int(status["SigCgt"], 16) >> (number - 1) & 1


@case
def signals_save(f):
    """INT, TERM, HUP and QUIT end the step, save a checkpoint, leave run.json "interrupted" and a status above 128."""
    for number in CODES:
        shutil.rmtree(f.folder / "out", ignore_errors=True)
        process = f.start({"max_steps": 100000, "save_strategy": "epoch"})
        f.wait(lambda: f.lines() >= 2)
        os.kill(process.pid, number)  # send_signal would collect a process that is over
        is_code(f.program.finish(process, f.folder, 30), number)
        assert f.info()["status"] == "interrupted", f"{number.name}: run.json says {f.info()['status']}"
        assert len(list((f.folder / "out").glob("checkpoint-*"))) == 1, number.name


@case
def signals_and_resume(f):
    """A run that is interrupted by signals again and again ends in the bytes of one that was not."""
    settings = {"max_steps": 12, "save_strategy": "steps", "save_steps": 5, "logging_steps": 4, "auto_resume_from_checkpoints": True,
                "val_set_size": 0.004, "eval_strategy": "steps", "eval_steps": 3}
    finish(f.train(settings))
    expected = comparable(f.folder / "out")
    shutil.rmtree(f.folder / "out")
    dice = random.Random(5)
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT] * 2:
        process = f.start(settings)
        f.wait(lambda: catches(process, number))
        time.sleep(dice.uniform(0.0, 1.0))
        os.kill(process.pid, number)  # send_signal would collect a process that is over
        result = f.program.finish(process, f.folder, 60)
        over = result.code == -number and f.info()["status"] != "running"  # on its way out, all written
        if result.code != 0 and not over:
            is_code(result, number)
    finish(f.train(settings))
    wrong = differences(expected, comparable(f.folder / "out"), ["metrics.jsonl", "samples.jsonl", "events", "model.safetensors"])
    assert not wrong, f"{wrong} differ"


@case
def signals_while_starting(f):
    """INT, TERM, HUP and QUIT during start-up end the program within seconds, with a line and no half output."""
    slow = f.python("import time\nopen('importing', 'w').close()\ntime.sleep(1000)\n")
    for number in CODES:
        (f.folder / "importing").unlink(missing_ok=True)
        process = f.start(trl=slow)
        f.wait((f.folder / "importing").exists)
        os.kill(process.pid, number)  # send_signal would collect a process that is over
        result = f.program.finish(process, f.folder, 20)
        is_code(result, number)
        assert result.err.strip(), f"{number.name}: nothing is said"
        assert not list(f.folder.glob("out/*.safetensors")), number.name


@case
def readers_that_go_away(f):
    """`rlalgo train c.yaml | head -1` trains to its end and exits with 0."""
    read, write = os.pipe()
    process = f.start({"max_steps": 5}, stdout=write)
    os.close(write)
    os.read(read, 10)
    os.close(read)
    result = f.program.finish(process, f.folder, 60)
    assert result.code == 0, f"exit status {result.code}"
    assert len(f.metrics()) == 5 and f.info()["status"] == "finished"


@case
def full_outputs_of_verbs(f):
    """A verb whose result cannot be written fails with a number instead of losing it."""
    lines = {"generate": '{"prompt": "2 + 2 =", "max_tokens": 2}', "tokenize": '{"text": "a"}',
             "score": '{"prompt": "a", "completion": "b"}', "inference": "2 + 2 ="}
    for verb, line in lines.items():
        (f.folder / "input").write_text(line + "\n")
        with open("/dev/full", "wb") as full, open(f.folder / "input", "rb") as given:
            arguments = [verb, MODEL] if verb == "inference" else [verb, "--model", MODEL]
            result = f.run(*arguments, stdin=given, stdout=full)
        assert result.code not in (0,) and "[rlalgo." in result.err, f"{verb}: exit status {result.code}: {result.err[-200:]}"


@case
def streams_that_are_closed(f):
    """A standard stream that is closed is not given to the next file: a result that cannot be written fails, and a run's files are whole."""
    f.config({"max_steps": 1})
    seen = []
    for closed in (">&-", "2>&-", "<&-"):
        shutil.rmtree(f.folder / "out", ignore_errors=True)
        command = ["sh", "-c", f'exec "$0" train config.yaml {closed}', f.program.path]
        done = subprocess.run(command, cwd=f.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0 and len(f.metrics()) == 1, f"{closed}: exit status {done.returncode}"
        seen.append((f.folder / "out/model.safetensors").read_bytes())
    assert seen[0] == seen[1] == seen[2], "the weights differ"
    for closed, verb, number in (("<&-", ["tokenize", "--model", MODEL], "cli.21"), (">&-", ["version"], "cli.17"), ("<&-", ["inference", MODEL], "cli.21")):
        done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', f.program.path, *map(str, verb)], cwd=f.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and f"[rlalgo.{number}]" in done.stderr, f"{verb} {closed}: exit status {done.returncode}: {done.stderr[-200:]}"


@case
def names_that_are_taken(f):
    """A directory, a pipe or a device with the name of a file that a run writes at its end is found out at its start."""
    for name in ("config.json", "trainer_state.json", "metrics.jsonl", "report.html"):
        for kind in ("a directory", "a pipe", "a device"):
            place = f.folder / "out" / name
            place.parent.mkdir(exist_ok=True)
            place.mkdir() if kind == "a directory" else os.mkfifo(place) if kind == "a pipe" else place.symlink_to("/dev/null")
            refuse(f, f.train(), "[rlalgo.os.1]", f"out/{name}", codes=[1])
            assert [p.name for p in place.parent.iterdir()] == [name], kind
            shutil.rmtree(place.parent)


CHILD = """
import os, subprocess, sys, time
def f(completions, **kwargs):
    if not os.path.exists("child"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        open("child.tmp", "w").write(str(child.pid))
        os.rename("child.tmp", "child")
    return [1.0] * len(completions)
"""


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@case
def children_of_rewards(f):
    """A process that a reward started in a session of its own ends with the run, also when the trainer is killed."""
    for end in ("finished", "killed"):
        (f.folder / "child").unlink(missing_ok=True)
        process = f.start({"max_steps": 3 if end == "finished" else 100000}, f.python(CHILD))
        f.wait((f.folder / "child").exists)
        child = int((f.folder / "child").read_text())
        try:
            if end == "killed":
                process.kill()
                process.wait()
            else:
                finish(f.program.finish(process, f.folder, 60))
            f.wait(lambda: not alive(child), 15)
        except AssertionError as problem:
            raise AssertionError(f"the child of a run that was {end} lives on") from problem
        finally:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)


# --- places

@case
def output_over_input(f):
    """An output_dir that is the base model's or a dataset's directory is refused; no byte of it changes."""
    model = f.model()
    (f.folder / "link").symlink_to(model)
    before = {p.name: p.read_bytes() for p in model.iterdir()}
    for output in ("model", "./model/", "out/../model", "link", str(model)):
        result = f.train({"base_model": "model", "output_dir": output})
        assert result.code == 2 and "[rlalgo.config." in result.err, f"{output}: exit status {result.code}: {result.err[-200:]}"
        assert {p.name: p.read_bytes() for p in model.iterdir()} == before, f"{output}: the model was touched"


@case
def home_directory(f):
    """~ is the home directory; no directory of that name is made."""
    finish(f.train({"output_dir": "~/run", "max_steps": 1}, environment={"HOME": str(f.folder / "home")}))
    assert (f.folder / "home/run/model.safetensors").is_file() and not (f.folder / "~").exists()


@case
def useless_outputs(f):
    """An output_dir that cannot be used is refused before the model is loaded: the model here is garbage."""
    (f.model() / "model.safetensors").write_text("garbage")
    (f.folder / "file").write_text("x")
    os.symlink("nowhere", f.folder / "dangling")
    for output in ("file", "file/out", "dangling", "n" * 300, "/proc/out"):
        refuse(f, f.train({"base_model": "model", "output_dir": output}), "[rlalgo.os.")


@case
def disk_limits(f):
    """A file system that takes no more: a numbered error, nothing half-written, the checkpoint before is whole."""
    limited = ("import os, resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
               "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))\nos.execv(sys.argv[1], sys.argv[1:])\n")
    (f.folder / "limited.py").write_text(limited)
    f.config({"save_strategy": "steps", "save_steps": 1})
    with open(f.folder / "stderr", "wb") as err:
        done = subprocess.run([sys.executable, "limited.py", f.program.path, "train", "config.yaml"], cwd=f.folder, stderr=err,
                              stdout=subprocess.DEVNULL, timeout=60)
    text = (f.folder / "stderr").read_text()
    assert done.returncode == 1 and "[rlalgo." in text and "File too large" in text, text[-300:]
    assert not list((f.folder / "out").rglob("*.safetensors*")) and not list((f.folder / "out").rglob("*.tmp*"))


# --- what never ends, or is larger than anything

@case
def special_files(f):
    """A FIFO, a device, a directory or a loop of links instead of a file is refused at once."""
    os.mkfifo(f.folder / "fifo")
    (f.folder / "loop").symlink_to("loop")
    (f.folder / "folder").mkdir()
    for name in ("fifo", "/dev/zero", "loop", "folder"):
        refuse(f, f.run("train", name, timeout=30))
        refuse(f, f.train({"datasets": [{"path": name}]}, timeout=30), name)
        refuse(f, f.train({"base_model": name}, timeout=30))
    for name in ("config.json", "tokenizer.json", "generation_config.json", "model.safetensors"):
        for special in ("fifo", "/dev/zero"):
            model = f.model()
            (model / name).unlink()
            if special == "fifo":
                os.mkfifo(model / name)
            else:
                (model / name).symlink_to(special)
            refuse(f, f.train({"base_model": "model"}, timeout=30), name)


DEEP = "[" * 100000 + "]" * 100000


@case
def deep_json(f):
    """JSON of 100,000 levels in rows, model files, requests and answers is refused by number, not by a crash."""
    good = json.dumps({"question": "q", "answer": "#### 1"}) + "\n"
    row = '{"question": "q", "answer": "#### 1", "x": ' + DEEP + "}\n"
    refuse(f, f.train(f.rows(good + row)), "own.jsonl:2")
    (f.folder / "rows.json").write_text("[" + row + "]")
    refuse(f, f.train({"datasets": [{"path": "rows.json"}]}))
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        file = f.model() / name
        file.write_text(file.read_text().rstrip()[:-1] + ', "x": ' + DEEP + "}")
        refuse(f, f.train({"base_model": "model"}), name)
    refuse(f, f.train(text="base_model: " + "[" * 100000))
    for verb, key in (("tokenize", "text"), ("generate", "prompt")):
        (f.folder / "input").write_text('{"%s": %s}\n' % (key, DEEP))
        with open(f.folder / "input", "rb") as given:
            refuse(f, f.run(verb, "--model", MODEL, stdin=given))


@case
def yaml_bombs(f):
    """Aliases and merge keys that expand to gigabytes, and lines of megabytes, are refused in little memory."""
    aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    merges = "m0: &m0 {k: 1}\n"
    for i in range(1, 30):
        aliases += f"a{i}: &a{i} [" + ", ".join(f"*a{i - 1}" for _ in range(10)) + "]\n"
        merges += f"m{i}: &m{i}\n" + "".join(f"  k{k}: {{<<: *m{i - 1}}}\n" for k in range(10))
    for text in (aliases, merges, "a: " + "x" * 5000000, "a: &a [*a]\n", "? " * 5000, "- " * 50000, "&a " * 1000):
        refuse(f, f.train(text=text, timeout=40))


@case
def compressed_bombs(f):
    """8 GiB of newlines in a small .gz, rows without end and a sparse file of a terabyte are refused in little memory."""
    (f.folder / "own.jsonl.gz").write_bytes(gzip.compress(b"\n" * (1 << 26)) * 128)
    refuse(f, f.train({"datasets": [{"path": "own.jsonl.gz"}]}, timeout=60))
    (f.folder / "own.jsonl.gz").write_bytes(gzip.compress(b'{"question": "q", "answer": "#### 1"}\n' * (1 << 20)) * 64)
    refuse(f, f.train({"datasets": [{"path": "own.jsonl.gz"}]}, timeout=100), seconds=90)
    (f.folder / "own.jsonl").write_text("{}\n")
    os.truncate(f.folder / "own.jsonl", 1 << 40)
    refuse(f, f.train({"datasets": [{"path": "own.jsonl"}]}, timeout=60))


@case
def enormous_numbers(f):
    """Ranks, counts and numbers beyond what is possible are refused by key."""
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    refuse(f, f.train({**lora, "lora_r": 1000000000}), "lora_r", codes=[2])
    for key in ("micro_batch_size", "max_steps", "trl.num_generations", "trl.max_completion_length", "lora_r"):
        for value in ("9223372036854775807", "99999999999999999999999", "1e400", "-1", ".nan"):
            refuse(f, f.train(lora, f"--{key}={value}"), key, codes=[2])
    refuse(f, f.train(f.rows('{"question": "q", "answer": "#### 1", "x": 1e999}\n')), "own.jsonl:1")


@case
def control_characters(f):
    """Control characters in names, keys and exceptions are shown, not obeyed."""
    escape = '"\\e[31m\\x07\\r"'
    refuse(f, f.train(text=f"rl: grpo\n{escape}: 1\n"), codes=[2])
    refuse(f, f.train(text=f"rl: {escape}\n"), codes=[2])
    refuse(f, f.run("train", "none\x1b[31m.yaml"), codes=[2])
    refuse(f, f.train({"base_model": "model\x1b[31m"}), codes=[2])
    refuse(f, f.train(f.rows("\x1b[31m\n")))
    refuse(f, f.train(trl=f.python("def f(completions, **kwargs):\n    raise ValueError('\\x1b[31mred\\x07')\n")), codes=[1])


@case
def exceptions_of_any_size(f):
    """An exception of 5 MB is cut; one with half a surrogate pair is shown with a replacement."""
    refuse(f, f.train(trl=f.python("def f(completions, **kwargs):\n    raise ValueError('x' * 5000000 + 'the end')\n")), "Traceback", codes=[1])
    refuse(f, f.train(trl=f.python("def f(completions, **kwargs):\n    raise ValueError('half \\ud83d')\n")), "half", codes=[1])


# --- rewards

@case
def rewards_that_are_not_finite(f):
    """inf, -inf and 1e308 are failures of the reward: raised by number, or counted and warned of under reward_on_failure."""
    for value in ("float('inf')", "-float('inf')", "1e308"):
        body = f"def f(completions, **kwargs):\n    return [{value} if i % 4 == 0 else float(i) for i in range(len(completions))]\n"
        shutil.rmtree(f.folder / "out", ignore_errors=True)
        refuse(f, f.train(trl=f.python(body)), "[rlalgo.", "f", codes=[1])
        result = f.train(trl={**f.python(body), "reward_on_failure": "zero"})
        finish(result, "warning")
        record = f.metrics()[0]
        assert record["rewards/f/failed"] == 0.25 and record["frac_reward_zero_std"] < 1, record


@case
def rewards_that_fail(f):
    """A reward that throws, hangs, dies, prints, or returns nonsense: a numbered error that names it, in good time."""
    bodies = {
        "throws": "raise ValueError('no idea')", "hangs": "import time; time.sleep(600)", "dies": "import os; os._exit(3)",
        "too few": "return [1.0]", "too many": "return [1.0] * (len(completions) + 1)", "text": "return ['1'] * len(completions)",
        "nothing": "return None", "a number": "return 1.0", "nested": "return [[1.0]] * len(completions)",
        "exits": "import sys; sys.exit(0)", "closes": "import os\n    [os.close(i) for i in range(3, 10)]\n    return [1.0]"}
    for name, body in bodies.items():
        trl = {**f.python(f"def f(completions, **kwargs):\n    {body}\n"), "reward_timeout": 2}
        try:
            refuse(f, f.train(trl=trl), "rewards.f", codes=[1])
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from problem
    result = f.train(trl=f.python("import sys\ndef f(completions, **kwargs):\n    print('noise' * 10000); print('noise', file=sys.stderr)\n"
                                  "    return [1.0] * len(completions)\n"))
    assert result.code == 0, result.err[-300:]


# --- servers of completions

class Server(http.server.BaseHTTPRequestHandler):
    """The protocol of `trl vllm-serve`, with a fault at one path."""

    protocol_version = "HTTP/1.1"
    path_of_fault, fault, eos, left = "", "", 0, 0

    def log_message(self, *unused):
        pass

    def answer(self, status, body, more=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Length", str(len(data))), *more]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def raw(self, *pieces, pause=0.0, then="close"):
        """Bytes as they are, so often as they are taken."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(pause)
            if then == "silence":
                time.sleep(30)
            if then == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    def misbehave(self, good):
        cls, ok = type(self), b"HTTP/1.1 200 OK\r\n"
        name = self.fault
        completions = good if "completion_ids" in good else None
        if name == "drips a body":
            self.raw(ok + b"Content-Length: 100000\r\n\r\n", *[b" "] * 400, pause=0.05)
        elif name == "drips a header":
            self.raw(ok, *[b"x"] * 400, pause=0.05)
        elif name == "endless body":
            self.raw(ok + b"\r\n", *[b" " * (1 << 20)] * 4000)
        elif name == "endless chunks":
            self.raw(ok + b"Transfer-Encoding: chunked\r\n\r\n", *[b"100000\r\n" + b" " * (1 << 20) + b"\r\n"] * 4000)
        elif name == "endless header":
            self.raw(ok, *[b"X-More: " + b"y" * 8000 + b"\r\n"] * 20000)
        elif name == "says nothing":
            self.raw(then="silence")
        elif name == "closes":
            self.raw()
        elif name == "resets":
            self.raw(then="reset")
        elif name == "half an answer":
            data = json.dumps(good).encode()
            self.raw(ok + b"Content-Length: %d\r\n\r\n" % len(data) + data[: len(data) // 2])
        elif name == "half a status line":
            self.raw(b"HTTP/1.1 2")
        elif name == "no HTTP":
            self.raw(b"SSH-2.0-OpenSSH_9.2\r\n")
        elif name == "a length that is no number":
            self.raw(ok + b"Content-Length: -5\r\n\r\n{}")
        elif name == "a length of exabytes":
            self.raw(ok + b"Content-Length: 9000000000000000000\r\n\r\n{}", then="silence")
        elif name == "always 500":
            self.answer(500, {"detail": "engine dead"})
        elif name == "400":
            self.answer(400, {"detail": "bad request"})
        elif name == "redirects":
            self.answer(302, b"", [("Location", self.path)])
        elif name in ("500, then well", "429, then well", "closes, then well"):
            cls.left -= 1
            if cls.left < 0:
                self.answer(200, good)
            elif name.startswith("closes"):
                self.raw()
            else:
                self.answer(int(name[:3]), {"detail": "busy"}, [("Retry-After", "0")])
        elif name == "no JSON":
            self.answer(200, b"<html>welcome</html>")
        elif name == "an empty body":
            self.answer(200, b"")
        elif name == "JSON of 100,000 levels":
            self.answer(200, DEEP.encode())
        elif name == "another kind of JSON":
            self.answer(200, [1, 2, 3])
        elif name == "too few completions":
            self.answer(200, {k: v[:-1] for k, v in completions.items()})
        elif name == "no log-probs":
            self.answer(200, {"completion_ids": completions["completion_ids"]})
        elif name == "log-probs of another length":
            self.answer(200, {**completions, "logprobs": [v[:-1] for v in completions["logprobs"]]})
        elif name == "log-probs that are text":
            self.answer(200, {**completions, "logprobs": [[["x"]] * len(v) for v in completions["logprobs"]]})
        elif name == "log-probs that are null":
            self.answer(200, {**completions, "logprobs": [[[None]] * len(v) for v in completions["logprobs"]]})
        elif name == "log-probs above 0":
            self.answer(200, {**completions, "logprobs": [[[5.0]] * len(v) for v in completions["logprobs"]]})
        elif name == "ids beyond the vocabulary":
            self.answer(200, {**completions, "completion_ids": [[10**9] * len(v) for v in completions["completion_ids"]]})
        elif name == "negative ids":
            self.answer(200, {**completions, "completion_ids": [[-1] * len(v) for v in completions["completion_ids"]]})
        elif name == "ids that are text":
            self.answer(200, {**completions, "completion_ids": [["x"] * len(v) for v in completions["completion_ids"]]})
        elif name == "completions beyond the limit":
            self.answer(200, {k: [v[0][:1] * 100000] * len(v) for k, v in completions.items()})
        else:
            raise ValueError(name)

    def respond(self, good):
        if self.fault and self.path == self.path_of_fault:
            return self.misbehave(good)
        self.answer(200, good)

    def do_GET(self):
        self.respond({"status": "ok"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/generate/":
            return self.respond({})
        ids = [[5 + (len(prompt) + k) % 7] * (2 + k) + [self.eos] for prompt in request["prompts"] for k in range(request["n"])]
        self.respond({"completion_ids": ids, "logprobs": [[[-1.5]] * len(i) for i in ids],
                      "logprob_token_ids": [[[t] for t in i] for i in ids]})


ANYWHERE = ["drips a body", "drips a header", "endless body", "endless chunks", "endless header", "says nothing", "closes", "resets",
            "half a status line", "no HTTP", "a length that is no number", "a length of exabytes", "always 500", "redirects"]
PASSING = ["500, then well", "429, then well", "closes, then well"]
ANSWERS = ["half an answer", "400", "no JSON", "an empty body", "JSON of 100,000 levels", "another kind of JSON", "too few completions",
           "no log-probs", "log-probs of another length", "log-probs that are text", "log-probs that are null", "log-probs above 0",
           "ids beyond the vocabulary", "negative ids", "ids that are text", "completions beyond the limit"]
SERVER_FAULTS = [(path, name) for path in ("/health/", "/http_update_weights/", "/generate/") for name in ANYWHERE + PASSING] + \
    [("/generate/", name) for name in ANSWERS]


def serve(path, name):
    """A server with one fault; end it with shutdown()."""
    class Faulty(Server):
        path_of_fault, fault, left = path, name, 2
        eos = json.loads((MODEL / "config.json").read_text())["eos_token_id"]

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *unused):
            pass  # a client that has heard enough

    server = Quiet(("127.0.0.1", 0), Faulty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def server_fault(path, name):
    def check(f):
        server = serve(path, name)
        trl = {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": server.server_address[1],
               "vllm_server_timeout": 2, "request_timeout": 3, "vllm_importance_sampling_mode": "token_truncate"}
        try:
            result = f.train(trl=trl, timeout=60)
        finally:
            server.shutdown()
            server.server_close()
        if name in PASSING:
            finish(result)
        else:
            # Without log-probs the answer is well, and it is the correction for the server's weights that cannot be.
            refuse(f, result, "log-probs" if name in ("no log-probs", "log-probs that are null") else path, codes=[1], seconds=25)
    check.__doc__ = "ends well after being asked again" if name in PASSING else "a numbered error that names the path, in good time and bounded memory"
    return check


for where, what in SERVER_FAULTS:
    CASES[f"server: {where} {what}"] = server_fault(where, what)


# --- inputs that are wrong in any way

KEYS = ["base_model", "rl", "datasets", "micro_batch_size", "gradient_accumulation_steps", "learning_rate", "lr_scheduler", "warmup_steps",
        "logging_steps", "save_steps", "save_strategy", "save_total_limit", "output_dir", "seed", "val_set_size", "eval_steps", "optimizer",
        "weight_decay", "max_grad_norm", "adapter", "lora_r", "lora_alpha", "lora_dropout", "bf16", "fp16", "sequence_len", "num_epochs",
        "chat_template", "resume_from_checkpoint", "trl", "trl.num_generations", "trl.num_iterations", "trl.beta", "trl.epsilon",
        "trl.loss_type", "trl.reward_funcs", "trl.reward_weights", "trl.scale_rewards", "trl.temperature", "trl.top_p", "trl.top_k",
        "trl.steps_per_generation", "trl.generation_batch_size", "trl.max_completion_length", "trl.importance_sampling_level",
        "trl.delta", "trl.sync_ref_model", "trl.use_vllm", "trl.reward_timeout", "trl.tools"]
VALUES = ["-1", "0", "-0.5", "1e-400", "1e400", ".nan", "-.inf", "3.7", "99999999999999999999", '""', "[]", "{}", "[[]]", "{a: 1}", "null", "true",
          "x y", "é\u202e", "'", '"', "[1, 2", "*a", "!!binary x", "2024-01-01", "0x10", "~", "- a", "a: b", "/", "..", "\t"]


def harm(data, dice):
    """Bytes with one thing wrong."""
    data = bytearray(data)
    if not data:
        return b"x"
    at = dice.randrange(len(data))
    kind = dice.randrange(7)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        data[at] ^= 1 << dice.randrange(8)
    elif kind == 2:
        data[at:at] = dice.choice([b"\0", b"\xff\xfe", b"{", b"]", b'"', b"\n", b"\r", b": ", b"&a *a", b"1e999", b"-", b"\xed\xa0\x80", b"\t"])
    elif kind == 3:
        del data[at:at + dice.randint(1, 40)]
    elif kind == 4:
        data[at:at] = data[at:at + dice.randint(1, 200)]
    elif kind == 5:
        data[at:at + 8] = bytes(dice.randrange(256) for _ in range(8))
    else:
        lines = bytes(data).split(b"\n")
        dice.shuffle(lines)
        return b"\n".join(lines)
    return bytes(data)


ROWS = "".join(json.dumps({"question": f"What is {i} + {i % 3}?", "answer": f"Add. #### {i + i % 3}"}) + "\n" for i in range(16))
FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]


def wrong_input(f, dice):
    """Draws something wrong, writes it and returns its description and the arguments of a run with it."""
    kind = dice.choice(["value", "value", "configuration", "rows", "model", "model"])
    f.config({"base_model": "model", "max_steps": 1, **f.rows(ROWS)}, {"max_completion_length": 4})
    f.model()
    if kind == "value":
        key, value = dice.choice(KEYS), dice.choice(VALUES)
        return f"--{key}={value}", [f"--{key}={value}"]
    path = {"configuration": f.folder / "config.yaml", "rows": f.folder / "own.jsonl",
            "model": f.folder / "model" / dice.choice(FILES)}[kind]
    before = path.read_bytes()
    if path.suffix == ".safetensors" and dice.random() < 0.7:  # in the header: of the weights any value is a number
        size = 8 + struct.unpack("<Q", before[:8])[0]
        path.write_bytes(harm(before[:size], dice) + before[size:])
    else:
        path.write_bytes(harm(before, dice))
    return f"{path.name} harmed", []


def input_test(program, work, count, seed, report):
    refused = trained = 0
    for index in range(count):
        f = Fault(program, work / f"input{index}")
        what, arguments = wrong_input(f, random.Random(f"{seed} {index}"))
        try:
            process = program.start(f.folder, "train", "config.yaml", *arguments)
            try:
                result = program.finish(process, f.folder, 40)
            except AssertionError:
                if f.lines() < 2:  # not a long run of a setting that is possible
                    raise
                trained += 1
                continue
            if result.code == 0:
                clean(result)
                trained += 1
            else:
                refuse(f, result)
                refused += 1
            shutil.rmtree(f.folder)
        except AssertionError as problem:
            report(f"input {index} of seed {seed}, {what}", f"{problem}; kept in {f.folder}")
    report(f"{count} inputs of seed {seed}: {refused} refused by number, {trained} trained")


def fault_test(program, work, report, only=""):
    for index, (name, check) in enumerate(CASES.items()):
        if only not in name:
            continue
        f = Fault(program, work / f"fault{index}")
        try:
            check(f)
            report(name)
            shutil.rmtree(f.folder)
        except Exception as problem:  # one fault must not hide the others
            text = str(problem) if isinstance(problem, AssertionError) else f"{type(problem).__name__}: {problem}"
            report(name, f"{text}; kept in {f.folder}")
