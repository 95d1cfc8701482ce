"""Asynchronous generation with a fault at a moment that is drawn: the part `asynchronous` of scripts/reliability.py.

A trial trains on 30 prompts, two a step and each once in an epoch, for an epoch and a half. Something fails once, or from then on; a run that
ends with an error must do so by number, within five seconds of the deadline of what it waited for. With everything
whole again it is resumed until it ends, and must have trained on the prompts of an undisturbed run, step by step, none
twice and none left out, on no completion of older weights than its settings allow.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reliability import GRPO, QUICKSTART, write_inputs  # noqa: E402
from reliability_faults import CODES, clean, serve  # noqa: E402

STEPS, EPOCH = 22, 15
MODEL = QUICKSTART / "model"
REQUEST, UP, REWARD = 3, 3, 2  # seconds: request_timeout, vllm_server_timeout, reward_timeout
GRACE = 5.0  # seconds after a deadline
PATIENCE = 240  # seconds for what has no deadline of its own, on a machine with much other work

# A reward that counts its calls over restarts of its process, and fails from a call on, or at that call alone.
REWARDS = r'''
import os, time

def f(prompts, completions, completion_ids, **kwargs):
    time.sleep(0.03)
    calls = int(open("calls").read() or 0) + 1 if os.path.exists("calls") else 1
    open("calls", "w").write(str(calls))
    at, once, what = open("fault").read().split(" ", 2) if os.path.exists("fault") else (0, "0", "")
    if what and (calls == int(at) or calls > int(at) and once == "0"):
        open("onset", "a").write("%r\n" % time.monotonic())
        if what == "raises": raise ValueError("no idea")
        if what == "hangs": time.sleep(1000)
        if what == "dies": os._exit(3)
        if what == "returns too few": return [1.0]
        if what == "is slow": time.sleep(1.0)
    with open("lengths", "a") as lengths:
        lengths.writelines("%d\n" % len(ids) for ids in completion_ids)
    return [float(sum(ids) % 7) for ids in completion_ids]
'''


def where(port, up):
    return {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": port,
            "vllm_server_timeout": up, "request_timeout": REQUEST}


# --- servers of completions


class Protocol:
    """A server of TRL's protocol that fails at a call of a route. Its completions have three or four tokens, and nine while it
    has no weights."""

    def __init__(self, folder):
        self.server = serve("", "")
        self.port = self.server.server_address[1]
        self.kind = self.server.RequestHandlerClass
        kind, self.onset = self.kind, None
        state = {"weights": False, "calls": 0, "dead until": 0.0, "fault": None}
        self.state, trial = state, self

        def fails(handler, good):
            if time.monotonic() < state["dead until"]:
                return handler.raw(then="reset")
            at, path, name, once = state["fault"] or (0, "", "", True)
            if handler.path == path:
                state["calls"] += 1
                if state["calls"] == at or (state["calls"] > at and not once):
                    trial.onset = trial.onset or time.monotonic()
                    if name == "is slow":
                        time.sleep(1.0)
                    elif name == "is started anew":
                        state.update({"weights": False, "dead until": time.monotonic() + random.Random(at).uniform(0, 1.5)})
                        return handler.raw(then="reset")
                    else:
                        kind.fault = name
                        return handler.misbehave(good)
            if handler.path == "/http_update_weights/":
                state["weights"] = True
            if handler.path == "/generate/" and not state["weights"]:
                good = {name: [row[:1] * 9 for row in rows] for name, rows in good.items()}
            return handler.answer(200, good)

        kind.respond = fails

    def fault(self, at, path, name, once):
        self.state.update({"calls": 0, "fault": (at, path, name, once)})

    def mend(self):
        self.state.update({"fault": None, "dead until": 0.0})

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Ours:
    """rlalgo vllm-serve, which can be killed, stopped and started anew on its port."""

    def __init__(self, program, folder):
        self.program, self.folder, self.process = program, folder, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        folder.mkdir()
        self.start()

    def start(self):
        self.process = self.program.start(self.folder, "vllm-serve", MODEL, "--port", self.port)
        for _ in range(20 * PATIENCE):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.process.poll() is not None:
                    break
                asks = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                asks.request("GET", "/health/")
                if asks.getresponse().status == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"the server does not start: {(self.folder / 'stderr').read_text()[-300:]}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()


# --- one trial


class Trial:
    def __init__(self, program, folder, dice, expected):
        self.program, self.folder, self.dice, self.expected = program, folder, dice, expected
        self.server, self.started, self.up = None, [], UP
        adapter = dice.random() < 0.3
        streams = dice.random() < 0.3
        depth = dice.choice([0, 1, 2]) if streams else dice.choice([1, 1, 2, 3])
        interval = dice.choice([1, 1, 2])
        self.bound = depth + interval - 1
        self.trl = {"async_prefetch": True, "prefetch_depth": depth, "vllm_sync_interval": interval, "max_staleness": self.bound,
                    "streaming_partial_batch": streams, "reward_funcs": ["rewards.f"], "reward_timeout": REWARD}
        self.settings = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True} if adapter else {}
        self.says = f"depth {depth}, interval {interval}{', streaming' * streams}{', adapter' * adapter}"
        self.write()

    def write(self):
        rows = "".join(json.dumps({"question": f"What is {i} + {i % 3}?", "answer": f"#### {i + i % 3}"}) + "\n" for i in range(2 * EPOCH))
        trl = {"num_generations": 2, "max_completion_length": 12, **self.trl, **(where(self.server.port, self.up) if self.server else {})}
        write_inputs(self.folder, {**GRPO, **self.settings, "max_steps": STEPS, "logging_steps": 1, "save_steps": 2, "micro_batch_size": 4,
                                   "gradient_accumulation_steps": 1, "trl": trl, "use_tensorboard": False,
                                   "datasets": [{"path": "own.jsonl", "type": "rewards.oai_gsm8k_transform"}]})
        (self.folder / "own.jsonl").write_text(rows)
        (self.folder / "rewards.py").write_text(REWARDS)

    def use(self, server):
        self.server = server
        self.write()

    def start(self):
        self.started.append(self.program.start(self.folder, "train", "config.yaml"))
        return self.started[-1]

    def stop(self):
        """What a trial that failed has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.server is not None:
            self.server.stop()

    def lines(self, name="metrics.jsonl"):
        path = self.folder / "out" / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def steps(self):
        path = self.folder / "out/metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_for_step(self, process, step):
        end = time.monotonic() + PATIENCE
        while process.poll() is None and self.steps() < step:
            assert time.monotonic() < end, "no progress"
            time.sleep(0.002)

    def ends(self, process, onset, deadline):
        """By a numbered error, `deadline` + GRACE seconds after the onset at the latest. → seconds beyond the onset."""
        result = self.program.finish(process, self.folder, 90)
        took = time.monotonic() - onset()
        assert result.code == 1, f"exit status {result.code}: {result.err[-400:]}"
        clean(result)
        assert re.search(r"\[rlalgo\.[a-z_]+\.\d+\]", result.err), f"no number: {result.err[-300:]}"
        assert took < deadline + GRACE, f"it ended {took:.1f} s after the fault, whose deadline is {deadline} s: {result.err[-200:]}"
        return took

    def goes_on(self, process):
        result = self.program.finish(process, self.folder, PATIENCE)
        for _ in range(8):  # a server of ours gives up an update that its trainer began and left, after a minute
            if "[rlalgo.serve.20]" not in result.err:
                break
            time.sleep(10)
            result = self.program.finish(self.start(), self.folder, PATIENCE)
        assert result.code == 0, f"exit status {result.code}: {result.err[-400:]}"
        clean(result)

    def check(self):
        """The whole of the run that has ended."""
        records = [line for line in self.lines() if "loss" in line]
        assert [line["step"] for line in records] == list(range(1, STEPS + 1)), [line["step"] for line in records]
        oldest = max(line.get("async/staleness/max", 0) for line in records)
        assert oldest <= self.bound, f"staleness {oldest}, bound {self.bound}"
        found = trained_on(self.lines("samples.jsonl"))
        assert found == self.expected, "other prompts than those of an undisturbed run"

    def reward_fault(self, what, once):
        (self.folder / "fault").write_text(f"{self.dice.randint(2, 14)} {int(once)} {what}")

    def onset(self):
        """When the reward failed; now, where it did not."""
        path = self.folder / "onset"
        return float(path.read_text().split()[0]) if path.exists() else time.monotonic()

    def mend(self):
        (self.folder / "fault").unlink(missing_ok=True)
        if isinstance(self.server, Protocol):
            self.server.mend()


def trained_on(samples):
    """Step → its two prompts; each has two completions."""
    out = {}
    for line in samples:
        out.setdefault(line["step"], []).append(line["prompt"])
    return {step: sorted(prompts) for step, prompts in out.items()}


FAULTS = {}


def fault(name):
    def add(function):
        FAULTS[name] = function
        return function
    return add


def protocol_fault(name, once, path):
    def run(trial):
        trial.settings = {}  # an adapter goes another way than this route
        trial.use(Protocol(trial.folder))
        server = trial.server
        server.fault(trial.dice.randint(1, 12), path, name, once)
        process = trial.start()
        if once:
            trial.goes_on(process)
            assert server.onset is not None, "the fault did not happen"
        else:
            trial.ends(process, lambda: server.onset, REQUEST + UP)
            server.mend()
            server.state["weights"] = False
            trial.goes_on(trial.start())
        assert set((trial.folder / "lengths").read_text().split()) == {"3", "4"}, "completions of a server without weights were used"
    return run


for NAME in ("is slow", "is started anew", "always 500", "closes"):
    FAULTS[f"/generate/ {NAME}, once"] = protocol_fault(NAME, True, "/generate/")
for NAME in ("says nothing", "drips a body", "resets", "always 500", "half an answer", "no JSON", "endless body", "too few completions"):
    FAULTS[f"/generate/ {NAME}"] = protocol_fault(NAME, False, "/generate/")
FAULTS["/http_update_weights/ closes, once"] = protocol_fault("closes", True, "/http_update_weights/")
for NAME in ("says nothing", "always 500", "closes"):
    FAULTS[f"/http_update_weights/ {NAME}"] = protocol_fault(NAME, False, "/http_update_weights/")


def reward_fault(what, once):
    def run(trial):
        trial.reward_fault(what, once)
        process = trial.start()
        if once:
            trial.goes_on(process)
            assert (trial.folder / "onset").exists(), "the fault did not happen"
        else:
            trial.ends(process, trial.onset, 2 * REWARD if what in ("hangs", "dies") else 0)  # one more attempt
            trial.mend()
            trial.goes_on(trial.start())
    return run


for NAME in ("dies", "is slow", "hangs"):
    FAULTS[f"a reward {NAME}, once"] = reward_fault(NAME, True)
for NAME in ("raises", "hangs", "dies", "returns too few"):
    FAULTS[f"a reward {NAME}"] = reward_fault(NAME, False)


@fault("the server is killed and started anew")
def killed_server(trial):
    trial.up = PATIENCE  # as long as it takes to start
    trial.use(Ours(trial.program, trial.folder / "server"))
    process = trial.start()
    trial.wait_for_step(process, trial.dice.randint(1, 12))
    time.sleep(trial.dice.uniform(0, 0.1))
    trial.server.kill()
    time.sleep(trial.dice.uniform(0, 0.5))
    trial.server.start()
    trial.goes_on(process)


@fault("the server is killed")
def lost_server(trial):
    trial.use(Ours(trial.program, trial.folder / "server"))
    process = trial.start()
    trial.wait_for_step(process, trial.dice.randint(1, 12))
    time.sleep(trial.dice.uniform(0, 0.1))
    trial.server.kill()
    killed = time.monotonic()
    trial.ends(process, lambda: killed, REQUEST + UP)
    trial.server.start()
    trial.goes_on(trial.start())


@fault("the server is stopped for a second")
def paused_server(trial):
    trial.use(Ours(trial.program, trial.folder / "server"))
    process = trial.start()
    trial.wait_for_step(process, trial.dice.randint(1, 12))
    os.kill(trial.server.process.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(trial.server.process.pid, signal.SIGCONT)
    trial.goes_on(process)


@fault("the server is stopped")
def stopped_server(trial):
    trial.use(Ours(trial.program, trial.folder / "server"))
    process = trial.start()
    trial.wait_for_step(process, trial.dice.randint(1, 12))
    time.sleep(trial.dice.uniform(0, 0.1))
    os.kill(trial.server.process.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        trial.ends(process, lambda: stopped, REQUEST + UP)
    finally:
        os.kill(trial.server.process.pid, signal.SIGCONT)
    trial.goes_on(trial.start())


@fault("the trainer is killed")
def killed_trainer(trial):
    if trial.dice.random() < 0.5:
        trial.use(Ours(trial.program, trial.folder / "server"))
    for _ in range(trial.dice.randint(1, 3)):
        process, seen = trial.start(), trial.steps()
        trial.wait_for_step(process, trial.dice.choice([0, seen + trial.dice.randint(1, 8)]))
        time.sleep(trial.dice.uniform(0, 0.1))
        process.kill()
        process.wait()
    trial.goes_on(trial.start())


def interrupted(trial, process, number, onset=None):
    onset = onset or time.monotonic()
    os.kill(process.pid, number)
    result = trial.program.finish(process, trial.folder, 60)
    took = time.monotonic() - onset
    codes = CODES[number] if isinstance(CODES[number], tuple) else (CODES[number],)
    assert result.code in codes, f"exit status {result.code}: {result.err[-300:]}"
    assert took < GRACE, f"it took {took:.1f} s to end: {result.err[-200:]}"


@fault("the trainer is interrupted")
def interrupted_trainer(trial):
    if trial.dice.random() < 0.5:
        trial.use(Ours(trial.program, trial.folder / "server"))
    for number in trial.dice.sample([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], 2):
        process, seen = trial.start(), trial.steps()
        trial.wait_for_step(process, seen + trial.dice.randint(1, 6))
        if process.poll() is None:
            time.sleep(trial.dice.uniform(0, 0.05))
            if trial.steps() < STEPS - 2:
                interrupted(trial, process, number)
                continue
        trial.goes_on(process)
    trial.goes_on(trial.start())


@fault("the trainer is interrupted while a server hangs")
def interrupted_waiting_for_a_server(trial):
    trial.settings = {}
    trial.use(Protocol(trial.folder))
    path = trial.dice.choice(["/generate/", "/http_update_weights/"])
    trial.server.fault(trial.dice.randint(2, 12), path, "says nothing", False)
    process = trial.start()
    while trial.server.onset is None and process.poll() is None:
        time.sleep(0.01)
    time.sleep(trial.dice.uniform(0, 1))
    interrupted(trial, process, signal.SIGINT)
    trial.mend()
    trial.goes_on(trial.start())


@fault("the trainer is interrupted while a reward hangs")
def interrupted_waiting_for_a_reward(trial):
    trial.trl["reward_timeout"] = 60
    if trial.dice.random() < 0.4:  # generation and training take turns: the step that waits is given up
        trial.trl.update({"prefetch_depth": 0, "streaming_partial_batch": False})
    trial.write()
    trial.reward_fault("hangs", False)
    process = trial.start()
    while not (trial.folder / "onset").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(trial.dice.uniform(0, 1))
    interrupted(trial, process, signal.SIGINT)
    trial.mend()
    trial.goes_on(trial.start())


def asynchronous_test(program, work, count, seed, report, only=""):
    names = [name for name in FAULTS if only in name]
    whole = Trial(program, work / "undisturbed", random.Random(0), None)
    whole.goes_on(whole.start())
    expected = trained_on(whole.lines("samples.jsonl"))
    prompts = [prompt for step in range(1, EPOCH + 1) for prompt in set(expected[step])]
    assert len(prompts) == len(set(prompts)) == 2 * EPOCH, "an epoch does not have every prompt once"
    passed = {name: [0, 0] for name in names}
    for index in range(count):
        name = names[index % len(names)]
        folder = work / f"trial{index}"
        trial = Trial(program, folder, random.Random(f"{seed} asynchronous {index}"), expected)
        passed[name][1] += 1
        try:
            FAULTS[name](trial)
            trial.check()
            passed[name][0] += 1
            shutil.rmtree(folder)
        except Exception as problem:  # one trial must not hide the others
            text = str(problem) if isinstance(problem, AssertionError) else f"{type(problem).__name__}: {problem}"
            report(f"trial {index} of seed {seed}, {name} ({trial.says})", f"{text}; kept in {folder}")
        finally:
            trial.stop()
    for name, (good, made) in passed.items():
        if made and good == made:
            report(f"asynchronous: {name}: {made} runs")
    print(f"{sum(made for _, made in passed.values())} asynchronous runs with a fault", flush=True)
