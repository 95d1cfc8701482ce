#!/usr/bin/env python3
"""Repeats the trial that docs/reliability.md counts: kills of training runs, and faults of every input and server.

    reliability.py [--rlalgo PROGRAM] [--kills N] [--inputs N] [--trials N] [--seed S] [--only TEXT] [--list]
                   [kills] [faults] [inputs] [asynchronous] [ranks]

kills    N runs of seven kinds are ended by SIGKILL, at random times and while they save, log and evaluate; each is resumed
         until it ends, and every file of it is compared with those of a run that was never disturbed. Then it is run again
         although it is finished, and compared again.
faults   the list of scripts/reliability_faults.py: signals, limits, servers, rewards, outputs. One line each.
inputs   N configurations, rows and model files that are wrong in a way drawn from --seed: each must be refused by a numbered
         error, or train; no crash, no endless wait, no output that is half a run.
asynchronous  N runs with asynchronous generation, each with one fault of scripts/reliability_asynchronous.py: a server, a
         reward or the trainer itself dies, hangs, is slow, is interrupted. Each goes on, or ends by number in time and is
         resumed, and has trained on every prompt as often as an undisturbed run.

ranks    N runs of two ranks, each with one fault of scripts/reliability_ranks.py: a rank is killed, stopped, raises, its disk is full,
         its link is cut. All processes end in time with nothing half-written, and the run is resumed.

Without a word all five are done. PROGRAM is by default build/release/bin/rlalgo. Only the standard library of Python is
needed. Prints `ok NAME`, `FAIL NAME: why` and counts; exit status 1 if anything failed. What may differ between a run and
a resumed one is in one place, `comparable`.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "examples/quickstart"
sys.path.insert(0, str(ROOT / "scripts"))

# One thread: the runs are tiny, and a sum over another number of threads is another sum.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}

# --- event files of TensorBoard, read without TensorBoard


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def masked_crc(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def protobuf(message):
    """(number, value) of every field: an int of a varint, the bytes of anything else."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        wire = key & 7
        if wire == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}[wire] if wire != 2 else varint()
        assert at + size <= len(message), "a field beyond the end of its message"
        yield key >> 3, message[at:at + size]
        at += size


def events(data):
    """The events of a file without their wall times: ["version", text], ["start"] or [tag, step, value]."""
    at, out = 0, []
    while at < len(data):
        size, check = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + size]
        assert check == masked_crc(data[at:at + 8]) and len(body) == size, f"a damaged record at byte {at}"
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked_crc(body), f"a damaged event at byte {at}"
        at += size + 16
        step = 0
        for number, value in protobuf(body):
            if number == 2:
                step = value
            elif number == 3:
                out.append(["version", value.decode()])
            elif number == 7:
                out.append(["start"])
            elif number == 5:
                for _, entry in protobuf(value):
                    fields = dict(protobuf(entry))
                    out.append([fields[1].decode(), step, struct.unpack("<f", fields[2])[0]])
    return out


# --- what two runs must agree on

# Metrics that a clock gives, or what a device's memory held, which depends on what the process did before.
MEASURED = r"time/[^\"]*|memory/[^\"]*|train/mfu"
BLANKED = re.compile(rf'"({MEASURED}|train_runtime|train_steps_per_second)": [^,}}\n]*')


def is_measured(metric):
    return re.fullmatch(MEASURED, metric) is not None


def without_times(text):
    """Text of JSON whose measured values are blanked; every other byte stays."""
    return BLANKED.sub(r'"\1": 0', text)


def of_state(state):
    """rlalgo_state.json without what a clock, or the drawing of an id, put there: the digest of its text, too."""
    state = dict(state, run="", xxh64="")
    state["settings"] = {key: value for key, value in state.get("settings", {}).items() if key != "outside"}
    state["files"] = {name: entry for name, entry in state["files"].items() if name != "trainer_state.json"}
    state["window"] = dict(state["window"], entries=[e for e in state["window"]["entries"] if not is_measured(e[0])])
    return state


def comparable(folder):
    """File → content of an output_dir, of everything that does not depend on when the run was made."""
    out, event_files = {}, []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if name.startswith("runs/"):
            event_files += [path] if path.stat().st_size else []  # the file before the newest is emptied, see run/tensorboard.hpp
        elif name == "report.html":
            out[name] = "</html>" in path.read_text()
        elif name == "run.json":
            info = json.loads(path.read_text())
            info.get("settings", {}).pop("outside", None)  # the time at which the run began
            out[name] = {key: value for key, value in info.items() if key not in ("id", "started")}
        elif path.name == "rlalgo_state.json":
            out[name] = of_state(json.loads(path.read_text()))
        elif path.name in ("metrics.jsonl", "trainer_state.json"):
            out[name] = without_times(path.read_text())
        else:
            out[name] = path.read_bytes()
    out["folders and files of events"] = len({p.parent for p in event_files}), len(event_files)
    for path in event_files:
        out["events"] = [event for event in events(path.read_bytes()) if not is_measured(event[0].removeprefix("train/"))]
    return out


LOGS = ["metrics.jsonl", "samples.jsonl", "ebft_rollouts.jsonl", "pairs.json", "events", "folders and files of events", "model.safetensors",
        "adapter_model.safetensors"]


def differences(expected, found, only=None):
    """The names whose content differs; `only`: of these names."""
    names = sorted(set(expected) | set(found))
    return [name for name in names if (only is None or name in only) and expected.get(name) != found.get(name)]


# --- running the program


@dataclasses.dataclass
class Result:
    code: int  # as of subprocess: negative for a signal
    out: str
    err: str
    seconds: float
    bytes: int  # the most memory it had


class Program:
    def __init__(self, path):
        self.path = str(path)

    def start(self, folder, *arguments, stdin=subprocess.DEVNULL, stdout=None, environment=None, limit_memory=True):
        """A process whose output goes to the files `stdout` and `stderr` of the folder, away from the terminal's signals."""
        def prepare():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)  # of nohup and of a shell's background
            if limit_memory:  # address space: what a bomb may take of this machine
                import resource
                resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))

        with open(folder / "stderr", "wb") as err:
            out = stdout if stdout is not None else open(folder / "stdout", "wb")
            try:
                return subprocess.Popen([self.path, *map(str, arguments)], cwd=folder, stdin=stdin, stdout=out, stderr=err,
                                        env={**os.environ, **ENVIRONMENT, **(environment or {})}, preexec_fn=prepare, start_new_session=True)
            finally:
                if stdout is None:
                    out.close()

    def finish(self, process, folder, timeout):
        """Waits for a process of start(); one that takes longer than `timeout` seconds is killed and is an AssertionError."""
        begin, memory = time.monotonic(), 0  # not known of a process that poll() has seen the end of
        while process.returncode is None:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode, memory = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
                break
            if time.monotonic() - begin > timeout:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise AssertionError(f"still running after {timeout} s: {tail(folder)}")
            time.sleep(0.002)
        out = folder / "stdout"
        return Result(process.returncode, out.read_text(errors="replace") if out.exists() else "",
                      (folder / "stderr").read_text(errors="replace"), time.monotonic() - begin, memory)

    def run(self, folder, *arguments, timeout=120.0, **more):
        return self.finish(self.start(folder, *arguments, **more), folder, timeout)


def tail(folder):
    return (folder / "stderr").read_text(errors="replace")[-300:]


# --- seven kinds of run

GSM8K = [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}]
COMMON = {"base_model": str(QUICKSTART / "model"), "learning_rate": 1e-3, "lr_scheduler": "constant", "warmup_steps": 0,
          "max_steps": 14, "logging_steps": 4, "save_strategy": "steps", "save_steps": 3, "save_total_limit": 3,
          "auto_resume_from_checkpoints": True, "output_dir": "out"}
GRPO = {**COMMON, "rl": "grpo", "datasets": GSM8K, "micro_batch_size": 4, "gradient_accumulation_steps": 2,
        "trl": {"num_generations": 4, "max_completion_length": 12, "num_iterations": 2, "beta": 0.02,
                "reward_funcs": ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]}}
PREFERENCE = {**COMMON, "datasets": [{"path": "rows.jsonl"}], "sequence_len": 64, "micro_batch_size": 2,
              "gradient_accumulation_steps": 2}
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% for t in tools %}{{ t.function.name }} {% endfor %}<|im_start|>assistant\n")
REWARD = '''
def length(completions, completion_ids, log_extra, log_metric, **kwargs):
    log_extra("tokens", [len(ids) for ids in completion_ids])
    log_metric("longest", float(max(len(ids) for ids in completion_ids)))
    return [None if len(ids) % 5 == 0 else -0.1 * len(ids) for ids in completion_ids]
'''
KINDS = {
    "grpo": GRPO,
    "grpo with lora": {**GRPO, "adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "lora_dropout": 0.1},
    "dpo": {**PREFERENCE, "rl": "dpo"},
    "kto": {**PREFERENCE, "rl": "kto", "val_set_size": 0.25, "eval_strategy": "steps", "eval_steps": 5},
    "grpo with evaluation, tools and a Python reward": {
        **GRPO, "val_set_size": 0.004, "eval_strategy": "steps", "eval_steps": 5, "chat_template": "jinja",
        "chat_template_jinja": TEMPLATE,
        "trl": {**GRPO["trl"], "num_iterations": 1, "tools": ["calculator"],
                "reward_funcs": ["lengths.length", "builtin.gsm8k_accuracy"]}},
    "ebft": {**GRPO, "rl": "ebft", "datasets": [{"path": "solved.jsonl", "type": "ebft_opencode.transform"}],
             "chat_template": "tokenizer_default",
             "ebft": {"mode": "structured", "embed_method": "completion_mean", "ce_coef": 0.1, "save_rollouts": True},
             "trl": {"num_generations": 4, "max_completion_length": 12, "num_iterations": 2}},
    "strided ebft": {**COMMON, "rl": "ebft", "datasets": [{"path": GSM8K[0]["path"], "type": "ebft_strided_structured.transform"}],
                     "sequence_len": 96, "micro_batch_size": 2, "gradient_accumulation_steps": 2,
                     "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3,
                              "use_whitening": True, "ce_coef": 0.1, "save_rollouts": True}},
}


def write_inputs(folder, config):
    """The files that a configuration of KINDS names, and config.yaml itself (JSON is YAML)."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [{"prompt": f"{i % 7} + {i % 5} =", "chosen": f" {i % 7 + i % 5} #{i}", "rejected": f" {i % 7 + i % 5 + 1} #"}
             for i in range(24)]
    labelled = [{"prompt": row["prompt"], "completion": row["chosen" if i % 3 else "rejected"], "label": bool(i % 3)}
                for i, row in enumerate(pairs)]
    rows = labelled if config.get("rl") == "kto" else pairs
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    solved = [{"input": row["prompt"], "output": row["chosen"].split()[0] + " apples" * (i % 3)} for i, row in enumerate(pairs)]
    (folder / "solved.jsonl").write_text("".join(json.dumps(row) + "\n" for row in solved))
    (folder / "lengths.py").write_text(REWARD)
    (folder / "config.yaml").write_text(json.dumps(config, indent=1))


# --- when to kill

WATCHED = ["metrics.jsonl", "samples.jsonl", "ebft_rollouts.jsonl", "pairs.json", "run.json", "report.html", "events", "building", "checkpoints", "final"]


def state_of(output, what):
    """Something that changes when the run writes `what`."""
    try:
        if what == "events":
            return max((entry.stat().st_size, entry.name) for folder in os.scandir(output / "runs") for entry in os.scandir(folder.path))
        if what in ("building", "checkpoints", "final"):
            names = [entry.name for entry in os.scandir(output) if "checkpoint-" in entry.name]
            if what == "final":
                return ".checkpoint-final.tmp" in names
            return sorted(name for name in names if name.startswith(".") == (what == "building"))
        status = os.stat(output / what)
        return status.st_size, status.st_ino
    except (OSError, ValueError):
        return None


@dataclasses.dataclass
class Moment:
    what: str  # "time", or one of WATCHED
    changes: int = 0  # kill after so many changes of it
    seconds: float = 0.0  # after the start, or after the change

    @staticmethod
    def draw(dice, duration):
        if dice.random() < 0.35:
            return Moment("time", 0, dice.uniform(0.0, 1.05 * duration))
        return Moment(dice.choice(WATCHED), dice.randint(1, 6), dice.choice([0.0, 0.0, dice.uniform(0.0, 0.004)]))


def kill_at(process, output, moment):
    """Kills the process at the moment; False where it ended before. Its status is collected."""
    begin, last, changes = time.monotonic(), None if moment.what == "time" else state_of(output, moment.what), 0
    while process.poll() is None:
        if moment.what == "time":
            due = time.monotonic() - begin >= moment.seconds
        else:
            now = state_of(output, moment.what)
            changes, last = changes + (now != last), now
            due = changes >= moment.changes
            if due:
                time.sleep(moment.seconds)
        if due:
            process.kill()
            process.wait()
            return process.returncode == -signal.SIGKILL
        time.sleep(0.0002)
    return False


# --- the kill test


class Report:
    """Prints ok and FAIL lines and counts them."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, problem=""):
        self.passed += not problem
        self.failed += bool(problem)
        print(f"FAIL {name}: {' | '.join(str(problem).splitlines())[:1200]}" if problem else f"ok {name}", flush=True)


def must_finish(program, folder, what):
    result = program.run(folder, "train", "config.yaml", timeout=300)
    assert result.code == 0, f"{what} ended with {result.code}: {result.err[-400:]}"
    return result


def kill_kind(program, work, name, config, kills, dice, report):
    """Returns kills made, runs compared, and kills by what was waited for."""
    whole = work / "whole"
    write_inputs(whole, config)
    duration = must_finish(program, whole, "the undisturbed run").seconds
    expected = comparable(whole / "out")
    assert expected["folders and files of events"] == (1, 1), expected["folders and files of events"]
    made, runs, moments = 0, 0, {}
    while made < kills:
        folder = work / f"run{runs}"
        write_inputs(folder, config)
        trail = []
        for _ in range(min(dice.choice([1, 1, 2, 3]), kills - made)):
            moment = Moment.draw(dice, duration)
            process = program.start(folder, "train", "config.yaml")
            if kill_at(process, folder / "out", moment):
                made += 1
                trail.append(moment)
                moments[moment.what] = moments.get(moment.what, 0) + 1
        runs += 1
        try:
            for again in range(2):
                must_finish(program, folder, "the resumed run" if again == 0 else "the finished run, run again")
                wrong = differences(expected, comparable(folder / "out"))
                assert not wrong, f"{'resumed' if again == 0 else 'run again'}: {', '.join(wrong)} differ"
            shutil.rmtree(folder)
        except AssertionError as problem:
            report(f"{name}, run {runs}", f"{problem} after kills at {trail}; kept in {folder}")
    # A finished run of fewer steps that goes on has the logs of the longer one.
    folder = work / "extended"
    write_inputs(folder, {**config, "max_steps": config["max_steps"] - 4})
    must_finish(program, folder, "the shorter run")
    write_inputs(folder, config)
    must_finish(program, folder, "the extended run")
    wrong = differences(expected, comparable(folder / "out"), LOGS)
    report(f"{name}: a finished run that is extended", f"{', '.join(wrong)} differ" if wrong else "")
    return made, runs, moments


def kill_test(program, work, kills, seed, report, only=""):
    kinds = {name: config for name, config in KINDS.items() if only in name}
    total_kills = total_runs = 0
    for index, (name, config) in enumerate(kinds.items()):
        share = kills * (index + 1) // len(kinds) - kills * index // len(kinds)
        before, begin = report.failed, time.monotonic()
        try:
            made, runs, moments = kill_kind(program, work / f"kind{index}", name, config, share, random.Random(f"{seed} {name}"), report)
        except AssertionError as problem:
            report(name, problem)
            continue
        total_kills, total_runs = total_kills + made, total_runs + runs
        if report.failed == before:
            report(f"{name}: {made} kills, {runs} runs resumed and then run again, all equal to the undisturbed one "
                   f"({', '.join(f'{what} {n}' for what, n in sorted(moments.items()))}; {time.monotonic() - begin:.0f} s)")
    print(f"{total_kills} kills, {total_runs} runs compared", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="kills, faults, inputs, asynchronous, ranks; none: all")
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=400)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds of run and faults whose name has this text")
    parser.add_argument("--list", action="store_true", help="names of the kinds of run and of the faults, and what they promise")
    arguments = parser.parse_args()
    import reliability_asynchronous
    import reliability_faults
    import reliability_ranks
    if unknown := set(arguments.parts) - {"kills", "faults", "inputs", "asynchronous", "ranks"}:
        parser.error(f"no part named {', '.join(sorted(unknown))}")
    if arguments.list:
        print("\n".join(f"kills   {name}" for name in KINDS))
        print("\n".join(f"faults  {name}: {case.__doc__}" for name, case in reliability_faults.CASES.items()))
        print("\n".join(f"asynchronous  {name}" for name in reliability_asynchronous.FAULTS))
        print("\n".join(f"ranks   {name}" for name in reliability_ranks.FAULTS))
        return 0
    parts = arguments.parts or ["kills", "faults", "inputs", "asynchronous", "ranks"]
    program = Program(pathlib.Path(arguments.rlalgo).resolve())
    report = Report()
    work = pathlib.Path(tempfile.mkdtemp(prefix="rlalgo-reliability-"))
    if "kills" in parts:
        kill_test(program, work, arguments.kills, arguments.seed, report, arguments.only)
    if "faults" in parts:
        reliability_faults.fault_test(program, work, report, arguments.only)
    if "inputs" in parts:
        reliability_faults.input_test(program, work, arguments.inputs, arguments.seed, report)
    if "asynchronous" in parts:
        reliability_asynchronous.asynchronous_test(program, work, arguments.trials, arguments.seed, report, arguments.only)
    if "ranks" in parts:
        reliability_ranks.ranks_test(program, work, arguments.trials, arguments.seed, report, arguments.only)
    if report.failed == 0:
        shutil.rmtree(work)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
