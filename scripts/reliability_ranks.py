"""Runs of two ranks with a fault of one of them at a moment that is drawn: the part `ranks` of scripts/reliability.py.

A trial trains for a dozen steps, with ddp_timeout of four seconds, in turns with generation or beside it. After the fault every
process must have ended in time, with an error by number or as the signal asks, and must have left nothing half-written. Then the run
is resumed until it ends; where generation and training take turns its files are those of an undisturbed run, byte for byte. The
table of times is in docs/distributed.md.
"""

import ctypes
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reliability import GRPO, Program, comparable, differences, write_inputs  # noqa: E402
from reliability_faults import CODES, clean  # noqa: E402

STEPS = 12
SILENT, REWARD = 4, 2  # seconds: ddp_timeout, reward_timeout
GRACE = 6.0  # seconds after a deadline, on a machine with much other work
PATIENCE = 240

# Fails at a call of one rank, once.
REWARDS = r'''
import os, time

calls = 0

def f(prompts, completions, completion_ids, **kwargs):
    global calls
    calls += 1
    time.sleep(0.02)
    if os.path.exists("fault"):
        rank, at, what = open("fault").read().split(" ", 2)
        if rank == os.environ["RANK"] and calls >= int(at):
            open("onset", "a").write("%r\n" % time.monotonic())
            if what == "raises": raise ValueError("no idea")
            if what == "hangs": time.sleep(1000)
            if what == "dies": os._exit(3)
            if what == "is infinite": return [float("inf")] * len(completion_ids)
    return [float(sum(ids) % 7) for ids in completion_ids]
'''


class Link:
    """Between one rank and the store of the ranks: passes bytes on, late, or no more."""

    def __init__(self, port):
        self.port, self.delay, self.open = port, 0.0, True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own = self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            other = self.connect()
            self.sockets += [one, other]
            for source, target in ((one, other), (other, one)):
                threading.Thread(target=self.carry, args=(source, target), daemon=True).start()

    def connect(self):
        """To the store, which rank 0 opens in its own time."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.01)

    def carry(self, source, target):
        try:
            while data := source.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        for one in [self.listener, *self.sockets]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()


def connections(pid):
    """The TCP connections of a process: (own port, the other one's) to a descriptor of it."""
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "01":  # established
                ports[words[9]] = tuple(int(words[i].rsplit(":", 1)[1], 16) for i in (1, 2))
    found = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in ports:
            found[ports[target[8:-1]]] = int(entry.name)
    return found


def cut_connections(first, second):
    """Shuts down what two processes are connected by, as they would find it when packets no longer arrive; how many it were."""
    theirs, cut = connections(second), 0
    own = {ports: fd for ports, fd in connections(first).items() if ports[::-1] in theirs}
    for descriptor in own.values():
        handle = os.pidfd_open(first)
        copy = ctypes.CDLL(None, use_errno=True).syscall(438, handle, descriptor, 0)  # pidfd_getfd
        os.close(handle)
        assert copy >= 0, f"pidfd_getfd: {os.strerror(ctypes.get_errno())}"
        with socket.socket(fileno=copy) as one:
            one.shutdown(socket.SHUT_RDWR)
        cut += 1
    return cut


class Trial:
    def __init__(self, program, folder, dice, beside=None):
        self.program, self.folder, self.dice = program, folder, dice
        self.beside = dice.random() < 0.3 if beside is None else beside
        self.who = dice.randint(0, 1)
        self.says = f"rank {self.who}{', asynchronously' * self.beside}"
        self.processes, self.seconds, self.link, self.shared, self.sliced = [], None, None, False, False
        self.started = self.restarts = False  # the run goes on by itself; after a restart
        self.asked = False  # to stop: its checkpoint is one more, and save_total_limit keeps others
        trl = {**GRPO["trl"], "reward_funcs": ["rewards.f"], "reward_timeout": REWARD, "reward_max_retries": 0}
        if self.beside:
            trl.update({"async_prefetch": True, "use_data_producer": True, "prefetch_depth": 2, "num_iterations": 1})
        write_inputs(folder, {**GRPO, "max_steps": STEPS, "logging_steps": 1, "save_steps": 2, "micro_batch_size": 4, "trl": trl,
                              "gradient_accumulation_steps": 1, "ddp_timeout": SILENT})
        (folder / "rewards.py").write_text(REWARDS)

    # --- starting

    def set(self, **keys):
        settings = json.loads((self.folder / "config.yaml").read_text())
        (self.folder / "config.yaml").write_text(json.dumps({**settings, **keys}))

    def share(self):
        """The tokens of the rows, instead of the rows: the same numbers to rounding."""
        self.shared = True
        self.set(context_parallel_size=2, gradient_accumulation_steps=2)

    def shard(self):
        """The weights: the same numbers to rounding."""
        self.sliced = True
        self.set(fsdp_config={"reshard_after_forward": True})

    def start(self, *more, program=None):
        """By the program itself."""
        process = (program or self.program).start(self.folder, "train", "config.yaml", "--nproc-per-node", 2, *more)
        self.processes = [(self.folder, process)]
        return process

    def start_apart(self):
        """As another launcher would, the second rank over a link of ours."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.link = Link(port)
        self.processes = []
        for rank in range(2):
            logs = self.folder / f"log{rank}"
            logs.mkdir(exist_ok=True)
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port if rank == 0 else self.link.own)}
            # It runs in the folder of the trial; `logs` are where its words go.
            settings = json.loads((self.folder / "config.yaml").read_text())
            (logs / "config.yaml").write_text(json.dumps({**settings, "output_dir": str(self.folder / "out")}))
            (logs / "rewards.py").write_text(REWARDS)
            self.processes.append((logs, self.program.start(logs, "train", "config.yaml", environment=place)))

    def ranks(self):
        """Process ids by rank, of those that the program started."""
        out, parent = {}, self.processes[0][1].pid
        try:
            for child in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                for entry in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    if entry.startswith(b"RANK="):
                        out[int(entry[5:])] = int(child)
        except OSError:
            pass
        return out

    def rank(self, number):
        end = time.monotonic() + PATIENCE
        while number not in (found := self.ranks()):
            assert time.monotonic() < end and self.processes[0][1].poll() is None, "the ranks do not start"
            time.sleep(0.002)
        return found[number]

    # --- watching

    def steps(self):
        path = self.folder / "out/metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def running(self):
        return all(process.poll() is None for _, process in self.processes)

    def wait_for(self, what):
        end = time.monotonic() + PATIENCE
        while not what():
            assert self.running(), f"it has ended: {self.words()[-300:]}"
            assert time.monotonic() < end, "no progress"
            time.sleep(0.001)

    def in_a_step(self):
        step = self.steps() + self.dice.randint(1, STEPS - 4)
        self.wait_for(lambda: self.steps() >= step)
        time.sleep(self.dice.uniform(0, 0.1))

    def words(self):
        return "".join((folder / "stderr").read_text(errors="replace") for folder, _ in self.processes)

    # --- what must be true

    def ends(self, onset, deadline, codes=(1, 137), numbered=True):
        """All processes, `deadline` + GRACE seconds after the onset at the latest."""
        ids = list(self.ranks().values())
        results = [self.program.finish(process, folder, 90) for folder, process in self.processes]
        if callable(onset):
            onset = onset()
        took = time.monotonic() - onset
        left = [one for one in ids if pathlib.Path(f"/proc/{one}").exists()]
        assert not left, f"processes were left behind: {left}"
        for result in results:
            clean(result)
            assert result.code in codes, f"exit status {result.code}: {result.err[-300:]}"
        if numbered:
            assert re.search(r"\[rlalgo\.[a-z_]+\.\d+\]", self.words()), f"no number: {self.words()[-300:]}"
        assert took < deadline + GRACE, f"it ended {took:.1f} s after the fault, whose deadline is {deadline} s: {self.words()[-300:]}"
        self.nothing_half()
        self.seconds = took

    def nothing_half(self):
        """A killed rank 0 leaves what it was writing under a temporary name, which the next start removes; all else is whole."""
        for path in (self.folder / "out").rglob("*.json"):
            json.loads(path.read_text())
        for path in (self.folder / "out").glob("checkpoint-*"):
            parts = 2 if self.sliced else 1
            assert len(list(path.glob("optimizer*.safetensors"))) == parts and (path / "rlalgo_state.json").exists(), f"half a checkpoint: {path}"

    def goes_on(self, expected):
        (self.folder / "fault").unlink(missing_ok=True)
        if not self.started:
            self.start()
        result = self.program.finish(self.processes[0][1], self.processes[0][0], PATIENCE)
        assert result.code == 0, f"exit status {result.code}: {result.err[-400:]}"
        clean(result)
        left = [path for path in (self.folder / "out").rglob("*") if ".tmp" in path.name]
        assert not left, f"left behind: {left}"
        steps = [json.loads(line)["step"] for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(1, STEPS + 1)), steps
        if not self.beside and not self.shared and not self.sliced:
            wrong = differences(expected, comparable(self.folder / "out"))
            if self.restarts:  # a restart names its checkpoint, and the settings that are kept say so
                wrong = [name for name in wrong if not name.endswith(("rlalgo_state.json", "run.json"))]
            if self.asked:
                wrong = [name for name in wrong if not name.startswith("checkpoint-")]
            assert not wrong, f"{', '.join(wrong)} differ from an undisturbed run's"

    def stop(self):
        if self.link is not None:
            self.link.close()
        for _, process in self.processes:
            if process.poll() is None:
                for one in self.ranks().values():
                    os.kill(one, signal.SIGKILL)
                process.kill()
                process.wait()


FAULTS = {}


def fault(name):
    def add(function):
        FAULTS[name] = function
        return function
    return add


@fault("killed at start")
def killed_at_start(trial):
    trial.start()
    pid = trial.rank(trial.who)
    time.sleep(trial.dice.uniform(0, 0.6))
    os.kill(pid, signal.SIGKILL)
    trial.ends(time.monotonic(), 0, numbered=False)


@fault("killed in a step")
def killed_in_a_step(trial):
    trial.start()
    trial.in_a_step()
    os.kill(trial.rank(trial.who), signal.SIGKILL)
    trial.ends(time.monotonic(), 0, numbered=trial.who == 1)


@fault("killed in a step, sharded weights")
def killed_with_shards(trial):
    trial.shard()
    killed_in_a_step(trial)


@fault("killed in a step of a context group, sharded weights")
def killed_in_a_ring_with_shards(trial):
    trial.shard()
    killed_in_a_ring(trial)


@fault("stopped in a step, sharded weights")
def stopped_with_shards(trial):
    trial.shard()
    stopped_in_a_step(trial)


@fault("killed in a step of a context group")
def killed_in_a_ring(trial):
    trial.share()
    killed_in_a_step(trial)


@fault("stopped in a step of a context group")
def stopped_in_a_ring(trial):
    trial.share()
    stopped_in_a_step(trial)


@fault("slow in a step of a context group")
def slow_in_a_ring(trial):
    """Stopped for most of two seconds, a little at a time: what it sends comes late."""
    trial.share()
    trial.start()
    trial.in_a_step()
    pid = trial.rank(trial.who)
    end = time.monotonic() + 2.0
    try:
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(trial.dice.uniform(0.02, 0.2))
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
    except ProcessLookupError:
        pass  # the run has ended
    trial.started = True


@fault("killed while rank 0 saves")
def killed_while_saving(trial):
    trial.start()
    out, step = trial.folder / "out", trial.dice.choice([2, 4, 6])
    pid = trial.rank(trial.who)
    trial.wait_for(lambda: any(out.glob(f".checkpoint-{step}*")) or (out / f"checkpoint-{step}").exists())
    time.sleep(trial.dice.uniform(0, 0.01))
    os.kill(pid, signal.SIGKILL)
    trial.ends(time.monotonic(), 0, numbered=trial.who == 1)


@fault("stopped at start")
def stopped_at_start(trial):
    trial.start()
    pid = trial.rank(trial.who)
    time.sleep(trial.dice.uniform(0, 0.3))
    os.kill(pid, signal.SIGSTOP)
    trial.ends(time.monotonic(), 3 * SILENT)  # the rendezvous, then the launcher's patience with the stopped one


@fault("stopped in a step")
def stopped_in_a_step(trial):
    trial.start()
    trial.in_a_step()
    os.kill(trial.rank(trial.who), signal.SIGSTOP)
    trial.ends(time.monotonic(), 2 * SILENT)  # it is silent, then the launcher's patience with it


@fault("stopped for a second")
def paused(trial):
    trial.start()
    trial.in_a_step()
    pid = trial.rank(trial.who)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(pid, signal.SIGCONT)
    trial.started = True


def reward_fault(what, deadline):
    def run(trial):
        (trial.folder / "fault").write_text(f"{trial.who} {trial.dice.randint(1, 6)} {what}")
        trial.start()
        trial.ends(lambda: float((trial.folder / "onset").read_text().split()[0]), deadline)
    return run


for NAME, DEADLINE in (("raises", 0), ("hangs", REWARD), ("dies", 0), ("is infinite", 0)):
    FAULTS[f"a reward {NAME}"] = reward_fault(NAME, DEADLINE)


@fault("the disk of rank 0 is full")
def full_disk(trial):
    wrapper = trial.folder / "limited"  # a write beyond the limit is an error then, as on a full disk, and no signal
    wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(trial.program.path)} \"$@\"\n")
    wrapper.chmod(0o755)
    trial.start(program=Program(wrapper))
    trial.in_a_step()
    resource.prlimit(trial.rank(0), resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    trial.ends(time.monotonic(), 5)  # the next file that is larger


@fault("the disk of rank 1 is full, sharded weights")
def full_disk_of_a_shard(trial):
    trial.shard()
    wrapper = trial.folder / "limited"
    wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(trial.program.path)} \"$@\"\n")
    wrapper.chmod(0o755)
    trial.start(program=Program(wrapper))
    trial.in_a_step()
    resource.prlimit(trial.rank(1), resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
    trial.ends(time.monotonic(), 5)  # the next part of the optimizer's state


@fault("the connections between the ranks are cut")
def cut_between(trial):
    trial.start()
    trial.in_a_step()
    cut = cut_connections(trial.rank(0), trial.rank(1))
    assert cut > 0, "the ranks have no connection"
    trial.ends(time.monotonic(), SILENT)


@fault("the connections between the ranks are cut, sharded weights")
def cut_between_shards(trial):
    trial.shard()
    cut_between(trial)


@fault("the link to the store is cut")
def cut_link(trial):
    trial.start_apart()
    trial.in_a_step()
    trial.link.close()
    trial.ends(time.monotonic(), SILENT)


@fault("the link to the store is slow")
def slow_link(trial):
    trial.start_apart()
    trial.in_a_step()
    trial.link.delay = 0.02
    time.sleep(1.0)
    trial.link.delay = 0.0
    for folder, process in trial.processes:
        result = trial.program.finish(process, folder, PATIENCE)
        assert result.code == 0, f"exit status {result.code}: {result.err[-400:]}"


@fault("Ctrl-C on one rank")
def interrupted(trial):
    trial.start()
    trial.in_a_step()
    number = trial.dice.choice([signal.SIGINT, signal.SIGTERM])
    trial.asked = True
    os.kill(trial.rank(trial.who), number)
    codes = CODES[number] if isinstance(CODES[number], tuple) else (CODES[number],)
    trial.ends(time.monotonic(), 0, (*codes, 0), numbered=False)


@fault("the launcher is killed")
def killed_launcher(trial):
    process = trial.start()
    trial.in_a_step()
    ids = list(trial.ranks().values())
    trial.asked = True
    process.kill()
    process.wait()
    begin = time.monotonic()
    while any(pathlib.Path(f"/proc/{one}").exists() for one in ids):
        assert time.monotonic() - begin < GRACE, "ranks outlived their launcher"
        time.sleep(0.005)
    trial.seconds = time.monotonic() - begin
    trial.nothing_half()


@fault("killed, with --max-restarts")
def restarted(trial):
    process = trial.start("--max-restarts", 2)
    trial.in_a_step()
    pid = trial.rank(trial.who)
    os.kill(pid, signal.SIGKILL)
    trial.wait_for(lambda: pid not in trial.ranks().values() and len(trial.ranks()) == 2)
    trial.started = trial.restarts = True
    assert process.poll() is None, "it has ended"


def ranks_test(program, work, count, seed, report, only=""):
    names = [name for name in FAULTS if only in name]
    whole = Trial(program, work / "undisturbed ranks", random.Random(0), beside=False)
    whole.start()
    result = program.finish(whole.processes[0][1], whole.folder, PATIENCE)
    assert result.code == 0, f"the undisturbed run ended with {result.code}: {result.err[-400:]}"
    expected = comparable(whole.folder / "out")
    seconds, good = {name: [] for name in names}, {name: [0, 0] for name in names}
    for index in range(count):
        name = names[index % len(names)]
        folder = work / f"ranks{index}"
        trial = Trial(program, folder, random.Random(f"{seed} ranks {index}"))
        good[name][1] += 1
        try:
            FAULTS[name](trial)
            if trial.seconds is not None:
                seconds[name].append(trial.seconds)
            if name != "the link to the store is slow":
                trial.goes_on(expected)
            good[name][0] += 1
            shutil.rmtree(folder)
        except Exception as problem:  # one trial must not hide the others
            text = str(problem) if isinstance(problem, AssertionError) else f"{type(problem).__name__}: {problem}"
            report(f"trial {index} of seed {seed}, {name} ({trial.says})", f"{text}; kept in {folder}")
        finally:
            trial.stop()
    for name, (passed, made) in good.items():
        if made and passed == made:
            took = seconds[name]
            times = f", ended after {statistics.median(took):.1f} s, at most {max(took):.1f} s" if took else ", went on"
            report(f"ranks: {name}: {made} runs{times}")
    print(f"{sum(made for _, made in good.values())} runs of two ranks with a fault", flush=True)
