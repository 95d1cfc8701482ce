"""Signals to the program at every stage of its life, and what becomes of the processes that it started."""
import json
import pathlib
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def ends(process, code, *parts, seconds=20):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, f"exit status {process.returncode} instead of {code}\n{err[-1500:]}"
    for part in parts:
        assert part in err + out, f"{part!r} is not in\n{err[-1500:]}"
    return err


def gone(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def asleep_in_read(process):
    """It waits for its standard input, in read or poll."""
    try:
        where = pathlib.Path(f"/proc/{process.pid}/wchan").read_text()
        call = pathlib.Path(f"/proc/{process.pid}/syscall").read_text().split()
        return "pipe_read" in where or "poll" in where or call[:2] == ["0", "0x0"] or call[0] in ("7", "271")
    except OSError:
        return False


def handles(process, number):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return caught >> (number - 1) & 1


# A job in the background of a shell ignores SIGINT and SIGQUIT, one of nohup SIGHUP; the programs started here must not.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@case
def while_it_starts(c):
    """Python that imports for ever: a line, 128 + the signal, no file, no process."""
    (c.folder / "slow.py").write_text(
        "import os, subprocess, time\n"
        "open('pid-%s' % os.environ['NAME'], 'w').write('%d %d' % (os.getpid(), subprocess.Popen(['sleep', '1000'], start_new_session=True).pid))\n"
        "time.sleep(1000)\n")
    name = c.config({"trl": {"reward_funcs": ["slow.f"]}})
    started = {number: c.start("train", name, "--output-dir", f"out{number}", env={"NAME": str(int(number))})
               for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)}
    for number, process in started.items():
        file = c.folder / f"pid-{int(number)}"
        python = wait_for(lambda: file.exists() and len(file.read_text().split()) == 2 and file.read_text().split())
        begun = time.monotonic()
        process.send_signal(number)
        ends(process, 128 + number, "stopping; interrupt again", "interrupted")
        assert time.monotonic() - begun < 10
        for pid in python:
            wait_for(lambda: gone(pid), 10)
        assert not (c.folder / f"out{number}").exists()


@case
def while_it_waits_for_a_server(c):
    """A server that is not up, and one that says nothing: the first Ctrl-C ends the wait."""
    silent = socket.create_server(("127.0.0.1", 0))
    down = socket.create_server(("127.0.0.1", 0))
    port = down.getsockname()[1]
    down.close()
    for where in (silent.getsockname()[1], port):
        process = c.start("train", c.config({"trl": {
            "use_vllm": True, "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": where,
            "vllm_server_timeout": 600}}))
        info = c.folder / "out" / "run.json"
        wait_for(lambda: info.exists() and json.loads(info.read_text())["status"] == "running")
        time.sleep(0.3)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        ends(process, 130, "given up: [rlalgo.http.7]", "interrupted at step 0")
        assert time.monotonic() - begun < 5, "it waited on"
        assert json.loads(info.read_text())["status"] == "interrupted"
        info.unlink()


@case
def while_it_trains(c):
    """A hangup and a quit save like SIGTERM; under nohup there is no hangup."""
    name = c.config({"max_steps": 100000, "save_strategy": "epoch", "logging_steps": 1})
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        process = c.start("train", name, "--output-dir", f"out{number}")
        while "step 2/" not in process.stdout.readline():
            pass
        process.send_signal(number)
        ends(process, 128 + number, "stopping after this step")
        folder = c.folder / f"out{number}"
        assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
        assert len(list(folder.glob("checkpoint-*"))) == 1
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup: the program starts with it ignored
    try:
        process = c.start("train", name, "--max-steps", "3", "--output-dir", "nohup")
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    ends(process, 0, "done: step 3", seconds=60)


@case
def other_verbs(c):
    """A filter that waits for its input ends at once, with a line."""
    started = [(verb, number, c.start(verb, *arguments, stdin=-1)) for verb, arguments in
               (("tokenize", ["--model", MODEL]), ("generate", ["--model", MODEL]), ("inference", [MODEL]))
               for number in (signal.SIGINT, signal.SIGTERM)]
    for verb, number, process in started:
        wait_for(lambda: handles(process, number))
        wait_for(lambda: asleep_in_read(process), 30)
        begun = time.monotonic()
        process.send_signal(number)
        err = ends(process, 128 + number)
        assert err.count("\n") <= 3 and ("interrupted" in err or "stopping" in err), (verb, err)
        assert time.monotonic() - begun < 8, verb


LEAVES = """
import os, subprocess, sys, time
begun = [sys.executable, "-c", "import os, time; open('FILE', 'a').write('%d ' % os.getpid()); time.sleep(1000)"]

def leave(name):
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(begun[0], [a.replace("FILE", name) for a in begun])
        os._exit(0)
    os.waitpid(first, 0)
    subprocess.Popen([a.replace("FILE", name) for a in begun], start_new_session=True)
    while not os.path.exists(name) or len(open(name).read().split()) < 2:
        time.sleep(0.01)

def f(completions, trainer_state, **kwargs):
    name = os.environ["NAME"]
    if trainer_state.global_step == 0:
        leave(name)
    if trainer_state.global_step == 1 and name == "killed":
        open("reached", "w").close()
        time.sleep(1000)
    return [float(len(c)) for c in completions]
"""


@case
def no_orphans(c):
    """Children of a reward in sessions of their own: at the end of a run, and after kill -9 of the trainer."""
    (c.folder / "leaving.py").write_text(LEAVES)
    name = c.config({"trl": {"reward_funcs": ["leaving.f"], "reward_timeout": 600}})
    c.run("train", name, env={"NAME": "finished"}).expect(0)
    process = c.start("train", name, "--output-dir", "killed-out", env={"NAME": "killed"})
    wait_for(lambda: (c.folder / "reached").exists())
    process.kill()
    process.communicate()
    for file in ("finished", "killed"):
        pids = (c.folder / file).read_text().split()
        assert len(pids) == 2, pids
        for pid in pids:
            wait_for(lambda: gone(pid), 20)


if __name__ == "__main__":
    main(CASES)
