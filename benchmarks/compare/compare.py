"""What the scripts of this folder share: both sides in turns, ratios with their spread, checks that both did the same work,
and the table of benchmarks/measurements.md.

A script compares rlalgo with one peer. It installs nothing: `--python` names an interpreter that has the peer, and the script
starts itself there with `--worker`. The worker loads the peer once and then does what it is asked, a JSON line at a time, so
that loading is in no timing and one side works while the other waits. This file and what runs on our side need Python's
standard library only. Worker and our processes have `threads` in OMP_NUM_THREADS, and sleep while they wait.
"""
import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import queue
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from serving import cpu_seconds  # noqa: E402



@dataclasses.dataclass(frozen=True)
class Table:
    """A place of the document: what stands between two markers, a table for each machine."""
    name: str
    columns: tuple
    key: int  # that many first columns name a row

    @property
    def begin(self):
        return f"<!-- benchmarks/compare, {self.name}: begin -->"

    @property
    def end(self):
        return f"<!-- benchmarks/compare, {self.name}: end -->"


PEERS = Table("peers", ("script", "what", "dtype", "threads", "ours", "peer", "times as fast", "by processor time", "goal", "checked", "others", "peer versions", "date"), 4)


class Different(AssertionError):
    """The two sides did not do the same work: a ratio of them would mean nothing."""


class PeerFailed(RuntimeError):
    """The peer cannot be run here; says why."""


def same(what, ours, theirs):
    if ours != theirs:
        raise Different(f"{what} differ: ours {ours}, the peer's {theirs}")


def close(what, ours, theirs, relative=0.0, absolute=0.0):
    """|ours − theirs| ≤ absolute + relative·|theirs|, and both finite; → the difference."""
    gap = abs(ours - theirs)
    if not (math.isfinite(ours) and math.isfinite(theirs) and gap <= absolute + relative * abs(theirs)):
        raise Different(f"{what} differ: ours {ours:.8g}, the peer's {theirs:.8g}, tolerance {absolute:g} + {relative:g} of it")
    return gap


def figure(x):
    """Three digits that mean something: 0.0123, 4.57, 123, 4,570."""
    if x == 0 or not math.isfinite(x):
        return f"{x:.0f}"
    return f"{x:,.{max(0, 2 - math.floor(math.log10(abs(x))))}f}"


@dataclasses.dataclass(frozen=True)
class Spread:
    least: float
    median: float
    most: float
    count: int

    @staticmethod
    def of(values):
        values = list(values)
        if not values:
            raise ValueError("no repeats, no spread")
        return Spread(min(values), statistics.median(values), max(values), len(values))

    def __str__(self):
        low, middle, high = map(figure, (self.least, self.median, self.most))
        return middle if self.count == 1 else f"{middle} ({low}–{high})"


REST_SECONDS = 0.5


def interleaved(ours, theirs, repeats):
    """Both sides `repeats` times in turns, ours first in the even ones: a drift of the machine's speed favours neither. A turn
    begins when the other side's threads rest: those of OpenMP spin for 0.2 s after their last work.
    → what each returned, by repeat."""
    found = ([], [])
    for number in range(repeats):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            time.sleep(REST_SECONDS)
            found[side].append((ours, theirs)[side]())
    return found


def times_as_fast(ours, theirs, more_is_better):
    """The ratio of every repeat, > 1 where we are ahead."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} repeats of ours and {len(theirs)} of theirs")
    return Spread.of(o / t if more_is_better else t / o for o, t in zip(ours, theirs))


class Others:
    """Processors that programs other than ours and the workers kept busy while the block ran: a figure from a busy machine is
    one of that machine."""

    def __init__(self, sessions=()):
        self.sessions = set(sessions)

    def now(self):
        busy, mine = cpu_seconds(self.sessions)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic(), busy, mine + ended.ru_utime + ended.ru_stime

    def __enter__(self):
        self.before = self.now()
        return self

    def __exit__(self, *_):
        after = self.now()
        wall, busy, mine = (a - b for a, b in zip(after, self.before))
        self.processors = max(0.0, busy - mine) / max(wall, 1e-9)


def processor_seconds(pid):
    """What a process has computed, all threads together, to the clock tick."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """This script in the peer's interpreter. `ask` sends one JSON line and waits for one, `timeout` seconds at most."""

    def __init__(self, script, python, threads, options=(), environment=None, timeout=1200):
        self.timeout, self.errors = timeout, tempfile.TemporaryFile()
        variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                     "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": "",
                     **(environment or {})}
        self.process = subprocess.Popen([python, str(script), "--worker", *map(str, options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=variables, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        try:
            self.hello = self.answer()
        except BaseException:
            self.close()
            raise

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self):
        try:
            line = self.lines.get(timeout=self.timeout)
        except queue.Empty:
            raise PeerFailed(f"no answer within {self.timeout} s") from None
        if line is None:
            self.process.wait(60)
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip().splitlines()
            raise PeerFailed(f"ended with status {self.process.returncode}: {' / '.join(said[-8:])}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerFailed(reply["error"])
        return reply

    def ask(self, **request):
        """The answer, and with it `processor`: seconds of processor time that it took."""
        before = processor_seconds(self.process.pid)
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        reply = self.answer()
        return {**reply, "processor": processor_seconds(self.process.pid) - before}

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            self.process.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Wire:
    """The worker's end. What the peer prints goes to standard error."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, **reply):
        self.out.write(json.dumps(reply) + "\n")
        self.out.flush()

    def requests(self):
        for line in iter(sys.stdin.readline, ""):
            yield json.loads(line)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def installed(*packages):
    """"TRL 1.16.0, torch 2.11.0": in a worker."""
    from importlib import metadata
    out = []
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            out.append(f"{package} {metadata.version(package)}")
    return ", ".join(out)


# Our side.


class Ran(typing.NamedTuple):
    seconds: float
    peak: int  # bytes
    out: str
    processor: float  # seconds


def run_ours(program, arguments, threads, timeout=3600, environment=None, **more):
    """One process, from start to end. A failure shows what it said."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), **(environment or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen([str(program), *map(str, arguments)], stdout=out, stderr=errors, stdin=more.pop("stdin", subprocess.DEVNULL),
                                   env=variables, **more)
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        if process.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"{program} {' '.join(map(str, arguments))}: status {process.returncode}\n{errors.read().decode()[-3000:]}")
        out.seek(0)
        return Ran(seconds, usage.ru_maxrss * 1024, out.read().decode(), usage.ru_utime + usage.ru_stime)


def train(program, config, folder, threads, steps):
    """→ the records of `steps` steps, and how the process ran. `config` is an axolotl configuration as a dictionary."""
    output = pathlib.Path(folder) / "out"
    settings = {"save_strategy": "no", "logging_steps": 1, "warmup_steps": 0, "lr_scheduler": "constant", "use_tensorboard": False, **config,
                "output_dir": str(output), "max_steps": steps}
    path = pathlib.Path(folder) / "config.yaml"
    path.write_text(json.dumps(settings))  # JSON is YAML
    subprocess.run(["rm", "-rf", output], check=True)
    ran = run_ours(program, ["train", path], threads, cwd=folder)
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [r for r in records if "time/step" in r], ran


class Lines:
    """A verb of ours that answers JSON lines, kept running: one process for all repeats, as the worker is."""

    def __init__(self, program, arguments, threads):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(program), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, "OMP_NUM_THREADS": str(threads)}, start_new_session=True)

    def ask(self, rows, answers=None):
        """`rows` → as many answers (or `answers`); written by a thread, for the other end may answer before all is read."""
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        return [json.loads(line) for line in self.ask_bytes(text, answers or len(rows))]

    def ask_bytes(self, text, answers):
        def write():
            with contextlib.suppress(BrokenPipeError):  # the answers that are missing say it
                self.process.stdin.write(text)
                self.process.stdin.flush()
        writer = threading.Thread(target=write)
        writer.start()
        out = [line for line in (self.process.stdout.readline() for _ in range(answers)) if line]
        writer.join()
        if len(out) != answers:
            self.process.wait(60)
            self.errors.seek(0)
            raise RuntimeError(f"{len(out)} answers of {answers}: {self.errors.read().decode()[-2000:]}")
        return out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def without_end(model, folder):
    """A copy of a checkpoint directory (weights linked) whose end id is a special token that hardly any text holds, so that every
    completion gets its full length on both sides. → the directory"""
    model, folder = pathlib.Path(model).resolve(), pathlib.Path(folder)
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    settings = json.loads((model / "tokenizer_config.json").read_text())
    text = lambda key: t["content"] if isinstance(t := settings.get(key), dict) else t
    used = {text(key) for key in ("bos_token", "eos_token", "unk_token")}
    special = [t for t in tokenizer["added_tokens"] if t.get("special")]
    chosen = next((t for t in reversed(special) if t["content"] not in used | {text("pad_token")}), None) or next(
        (t for t in special if t["content"] not in used), None)
    if chosen is None:
        raise ValueError(f"{model} has no special token to spare")
    for name, changes in {"config.json": {"eos_token_id": chosen["id"]}, "generation_config.json": {"eos_token_id": chosen["id"]},
                          "tokenizer_config.json": {"eos_token": chosen["content"]},
                          "special_tokens_map.json": {"eos_token": chosen["content"]}}.items():
        if (model / name).exists():
            content = {**json.loads((model / name).read_text()), **changes}
            (folder / name).unlink()
            (folder / name).write_text(json.dumps(content))
    return str(folder)


# The machine, the options and the table.


def processor_flags(cpuinfo=None):
    text = cpuinfo if cpuinfo is not None else pathlib.Path("/proc/cpuinfo").read_text()
    return set(next((line.split(":", 1)[1] for line in text.splitlines() if line.startswith("flags")), "").split())


def has_bf16(flags=None):
    flags = processor_flags() if flags is None else flags
    return bool(flags & {"avx512_bf16", "amx_bf16"})


def machine(program, cpuinfo=None):
    """"AMD EPYC, 2 processors, 24 GiB, AVX2; kernels of generation: avx2": what a section of the table stands under."""
    text = cpuinfo if cpuinfo is not None else pathlib.Path("/proc/cpuinfo").read_text()
    fields = dict(map(str.strip, line.split(":", 1)) for line in text.splitlines() if ":" in line)
    names = [name for flag, name in (("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_bf16", "AVX-512-BF16"), ("amx_bf16", "AMX-BF16")) if
             flag in processor_flags(text)]
    memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    said = run_ours(program, ["version"], 1).out
    kernels = next((line.split()[-1] for line in said.splitlines() if "kernels of generation" in line), "?")
    return (f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}), "
            f"{os.cpu_count()} processors, {memory} GiB, {', '.join(names) or 'none of AVX2, AVX-512, AMX'}; kernels of `rlalgo version`: {kernels}")


@dataclasses.dataclass
class Row:
    script: str
    what: str
    dtype: str
    threads: int
    ours: Spread
    theirs: Spread
    ratio: Spread
    processor: Spread  # the ratio of processor times, the peer's through ours
    unit: str
    goal: float = 0.0  # 0: none
    checked: str = ""
    others: float = 0.0
    versions: str = ""
    notes: tuple = ("", "")  # behind ours and theirs, such as the peak

    def cells(self, date=None):
        goal = f"≥ {self.goal:g}: {'met' if self.ratio.median >= self.goal else 'missed'}" if self.goal else "–"
        values = [f"{side} {self.unit}" + (f", {note}" if note else "") for side, note in zip((self.ours, self.theirs), self.notes)]
        return [self.script, self.what, self.dtype, str(self.threads), *values, str(self.ratio), str(self.processor), goal, self.checked or "–", f"{self.others:.1f}",
                self.versions, date or datetime.date.today().isoformat()]


def failure_cells(script, what, dtype, threads, why, date=None):
    """A row that says why there is no figure."""
    return [script, what, dtype, str(threads), "–", "–", "–", "–", "–", " ".join(why.replace("|", "/").split())[:400], "–", "–",
            date or datetime.date.today().isoformat()]


def line_of(cells, table=PEERS):
    if len(cells) != len(table.columns) or any("|" in cell or "\n" in cell for cell in cells):
        raise ValueError(f"no row of the table '{table.name}': {cells}")
    return "| " + " | ".join(cells) + " |"


def head_of(table):
    return [line_of(table.columns, table), "|" + "---|" * len(table.columns)]


def with_rows(text, where, rows, table=PEERS):
    """`text` with `rows` in the table of machine `where`: a row of the same first columns is replaced, others stay."""
    if text.count(table.begin) != 1 or text.count(table.end) != 1 or text.index(table.begin) > text.index(table.end):
        raise ValueError(f"the document needs one line '{table.begin}' and after it one '{table.end}'")
    before, rest = text.split(table.begin)
    inside, after = rest.split(table.end)
    sections, current = {}, None
    for line in inside.splitlines():
        if line.startswith("**") and line.endswith("**"):
            current = sections.setdefault(line.strip("*"), {})
        elif line.startswith("| ") and current is not None and line != line_of(table.columns, table):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            current[tuple(cells[:table.key])] = cells
        elif line.strip() and not line.startswith("|"):
            raise ValueError(f"between the markers only tables may stand, found: {line}")
    for cells in rows:
        sections.setdefault(where, {})[tuple(cells[:table.key])] = list(cells)
    out = []
    for name, content in sections.items():
        out += [f"**{name}**", "", *head_of(table), *(line_of(cells, table) for cells in content.values()), ""]
    return before + table.begin + "\n\n" + "\n".join(out) + "\n" + table.end + after


def write_table(path, where, rows, table=PEERS):
    path = pathlib.Path(path)
    text = with_rows(path.read_text(), where, rows, table)
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def options(description, **defaults):
    """The arguments that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if defaults.get("peer", True):
        parser.add_argument("--python", required=True, help="an interpreter that has the peer")
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/rlalgo"))
    parser.add_argument("--threads", type=int, default=defaults.get("threads", os.cpu_count()), help="of either side")
    parser.add_argument("--repeats", type=int, default=defaults.get("repeats", 3), help="of both sides, in turns")
    parser.add_argument("--table", help="write the rows into this document (benchmarks/measurements.md), between its two markers")
    if defaults.get("dtypes", True):
        parser.add_argument("--dtypes", default="auto", help="float32, bfloat16 or both with a comma; auto: bfloat16 only where the processor has it")
    return parser


def dtypes(chosen, flags=None):
    if chosen != "auto":
        return chosen.split(",")
    if has_bf16(flags):
        return ["float32", "bfloat16"]
    print("bfloat16 is left out: this processor has neither AVX-512-BF16 nor AMX (--dtypes float32,bfloat16 insists)", file=sys.stderr)
    return ["float32"]


def finish(arguments, rows, table=PEERS):
    """Prints the rows, and writes them where --table says."""
    cells = [row.cells() if isinstance(row, Row) else row for row in rows]
    where = machine(arguments.program)
    print("", where, "", *head_of(table), *(line_of(row, table) for row in cells), sep="\n", flush=True)
    if arguments.table:
        write_table(arguments.table, where, cells, table)
