"""What the command-line tests share: a scratch folder, a small configuration, running the program, counting results."""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from reliability import comparable, differences, is_measured  # noqa: E402
QUICKSTART = ROOT / "examples" / "quickstart"
BASE = {
    "base_model": str(QUICKSTART / "model"),
    "rl": "grpo",
    "datasets": [{"path": str(QUICKSTART / "data" / "train.jsonl"), "type": "rewards.oai_gsm8k_transform"}],
    "trl": {"loss_type": "grpo", "num_generations": 4, "max_completion_length": 12,
            "reward_funcs": ["builtin.gsm8k_accuracy"]},
    "micro_batch_size": 8,
    "learning_rate": 1e-3,
    "max_steps": 2,
    "save_strategy": "no",
    "output_dir": "out",
    "float32": True,  # what is compared has all its bits
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class NotRun(Exception):
    """Raised by a case whose program is not installed here; its text says which."""


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def expect(self, code, *parts):
        assert self.code == code, f"exit status {self.code} instead of {code}\n{self.out[-500:]}{self.err[-1500:]}"
        for part in parts:
            assert part in self.err + self.out, f"{part!r} is not in\n{self.err[-1500:]}"
        return self


class Case:
    """One scratch folder with a program to run in it."""

    def __init__(self, program, folder, runs=None):
        self.program, self.folder, self.started = program, pathlib.Path(folder), {program: runs}

    def config(self, changes=None, drop=(), text=None, name="config.yaml"):
        """Writes a configuration (JSON is YAML): BASE, changed; `trl` is merged."""
        merged = json.loads(json.dumps(BASE))
        for key, value in (changes or {}).items():
            if key == "trl":
                merged["trl"].update(value)
            else:
                merged[key] = value
        for key in drop:
            del merged[key]
        (self.folder / name).write_text(text if text is not None else json.dumps(merged, indent=1))
        return name

    def start(self, *arguments, stdin=subprocess.DEVNULL, env=None, once=False):
        """A process with pipes. once: of the program that was started once; it takes signals and kill(), but its pid is another's."""
        # What libraries read before main() is to be this run's own.
        own = any(name.startswith(("OMP_", "GOMP_", "MKL_", "LD_", "GLIBC_", "RLALGO_")) for name in env or {})
        program = self.started.get(self.program) if once and not own else None
        return subprocess.Popen([*(program or [self.program]), *map(str, arguments)], cwd=self.folder, stdin=stdin, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})

    def run(self, *arguments, stdin=None, timeout=120, env=None):
        process = self.start(*arguments, stdin=subprocess.PIPE, env=env, once=True)
        out, err = process.communicate(stdin or "", timeout=timeout)
        return Result(process.returncode, out, err)

    def train(self, changes=None, *overrides, **more):
        return self.run("train", self.config(changes), *overrides, **more)

    def metrics(self, folder="out"):
        return [json.loads(line) for line in (self.folder / folder / "metrics.jsonl").read_text().splitlines()]

    def model_copy(self):
        target = self.folder / "model"
        shutil.copytree(QUICKSTART / "model", target)
        return target

    def no_output(self, folder="out"):
        left = [p.name for p in (self.folder / folder).glob("*")] if (self.folder / folder).exists() else []
        assert not [n for n in left if n.endswith(".safetensors") or ".tmp" in n], f"left behind: {left}"


def same_files(one, other, only=None):
    """Every file of two output directories, but for what a clock put there; `only`: of these names."""
    wrong = differences(comparable(one), comparable(other), only)
    assert not wrong, f"{', '.join(wrong)} differ"


def without_times(records):
    return [{k: v for k, v in r.items() if not is_measured(k)} for r in records]


def main(cases):
    """Runs the functions of `cases` (name → function of a Case); prints ok, not run or FAIL lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rlalgo", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.rlalgo)
    with started_once(program) as runs:
        sys.exit(run_cases(cases, arguments.only, program, runs))


@contextlib.contextmanager
def started_once(program):
    """What stands for `program` in Case.run: runs are forks of one process (tests/support/start_once.cpp). None where that was not built."""
    client, module = (pathlib.Path(program).with_name(name) for name in ("start_once", "start_once.so"))
    if not (client.exists() and module.exists()):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rlalgo-once-") as folder:
        door = os.path.join(folder, "door")
        server = subprocess.Popen([program], env={**os.environ, "LD_PRELOAD": str(module), "SOCKET": door, "START_ONCE": str(client), "OMP_WAIT_POLICY": "passive"})
        try:
            deadline = time.monotonic() + 60
            while not os.path.exists(door):
                assert server.poll() is None and time.monotonic() < deadline, "start_once does not start"
                time.sleep(0.01)
            yield [str(client), door]
        finally:
            server.kill()
            server.wait()


def run_cases(cases, only, program, runs):
    failed = 0
    for name, function in cases.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="rlalgo-cli-") as folder:
            try:
                function(Case(program, folder, runs))
                print(f"ok {name}", flush=True)
            except NotRun as why:
                print(f"not run {name}: {why}", flush=True)
            except Exception as error:  # one failed case must not hide the others
                failed += 1
                text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                print(f"FAIL {name} {' | '.join(text.splitlines())[:1500]}", flush=True)
    return 1 if failed else 0
