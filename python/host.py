"""What every Python process of ours has in common: the way it answers questions.

A program is this module and one of those beside it, joined by scripts/embed_python.py, which defines load(question), the
answer to {"op": "load", …}, and work(question, line), the answer to anything else; either may raise Refusal(kind, message,
trace, …), which becomes {"error": true, "kind": …, "message": …, "traceback": …, …}. While it works on a question a program
may ask(question) in turn. Descriptor 3 carries one JSON object per line each way, strictly question and answer; 1 is the
trainer's stderr, 0 is /dev/null. Standard library only, Python 3.8 or later.

Two processes: the worker runs the user's code; the guard, its parent, waits for the worker to end or the trainer to go
(descriptor 3 is closed), and then ends everything that the worker started. It is a subreaper (Linux): whatever loses its
parent becomes the guard's child, so that neither setsid nor a double fork leads out of its tree.
"""

import sys

if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p]  # the directories to search come with the questions

import datetime
import importlib
import importlib.util
import inspect
import json
import os
import platform
import select
import signal
import socket
import threading
import time
import traceback
import types

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def process_control(option, value):
    # prctl(2) where there is one.
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def descendants(root):
    # The processes below `root`, by the tree of this moment.
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def end_descendants(seconds):
    # Again and again, because what is killed may have left children behind, until none is left.
    deadline = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0] > 0:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            return
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.002)


def watch(worker, woken):
    # The status that the worker ended with, or None: the trainer has gone, or somebody asks the guard to end. (A trainer
    # that finishes in order closes one direction only: then the worker ends by itself, and exit handlers run.)
    poller = select.poll()
    poller.register(3, 0)
    poller.register(woken, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if woken in ready and set(os.read(woken, 64)) - {signal.SIGCHLD}:
            return None
        try:
            pid = -1
            while pid != 0:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == worker:
                    return status
        except ChildProcessError:
            return None
        if 3 in ready:
            return None


def guard(worker, woken):
    # Ends as the worker did, or as one that is killed.
    status = watch(worker, woken)
    end_descendants(5.0)
    if status is None:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker has left its own
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def become_the_worker():
    # Returns in a child; this process stays as its guard.
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    handled = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: None) for number in handled]
    signal.set_wakeup_fd(wake)
    guarding = os.getpid()
    worker = os.fork()
    if worker:
        guard(worker, woken)
    signal.set_wakeup_fd(-1)
    for number, handler in zip(handled, before):
        signal.signal(number, handler)
    os.close(woken)
    os.close(wake)
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guarding:
        os._exit(1)


class Refusal(Exception):
    def __init__(self, kind, message, trace="", **place):
        self.answer = {"error": True, "kind": kind, "message": message, "traceback": trace, **place}


def fix_dates():
    # Functions that tell the date say the moment at which the run began, and the host's name is the one that it began on:
    # what is made of them is the same when the run goes on. time.time and the clocks that measure go on.
    began, host = os.environ.get("RLALGO_START_TIME", ""), os.environ.get("RLALGO_START_HOST", "")
    if host:
        socket.gethostname = platform.node = lambda: host
    if not began.isdigit() or type(datetime.date) is not type:  # a class of ours is there already
        return
    began = int(began)
    date, moment = datetime.date, datetime.datetime

    def kind(base, **methods):
        # A class that stands for `base` in isinstance and when it is pickled.
        class Meta(type):
            def __instancecheck__(cls, value):
                return isinstance(value, base)

            def __subclasscheck__(cls, other):
                return issubclass(other, base)

        return Meta(base.__name__, (base,), {"__module__": "datetime", "__qualname__": base.__name__, **methods})

    def today(cls):
        then = date.fromtimestamp(began)
        return cls(then.year, then.month, then.day)

    def now(cls, tz=None):
        return cls.fromtimestamp(began, tz)

    def utcnow(cls):
        return cls.fromtimestamp(began, datetime.timezone.utc).replace(tzinfo=None)

    datetime.date = kind(date, today=classmethod(today))
    datetime.datetime = kind(moment, now=classmethod(now), today=classmethod(now), utcnow=classmethod(utcnow))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, at_start(getattr(time, name), began))
    format_time, spell_time, local = time.strftime, time.asctime, time.localtime
    time.strftime = lambda form, when=None: format_time(form, local() if when is None else when)
    time.asctime = lambda when=None: spell_time(local() if when is None else when)


def at_start(function, began):
    return lambda seconds=None: function(began if seconds is None else seconds)


def trace_of(error):
    # The user's frames only: those of this program, of importlib and of asyncio come first and are left out.
    importing = os.path.dirname(importlib.__file__)
    library = {importing, os.path.join(os.path.dirname(importing), "asyncio")}
    frames = error.__traceback__
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if name != "<string>" and not name.startswith("<frozen importlib") and os.path.dirname(name) not in library:
            break
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def has(name):
    return name in sys.modules or importlib.util.find_spec(name) is not None


def only_in_rollouts(*_, **__):
    raise RuntimeError("generate_rollout_completions works within trl.rollout_func only")


def offer_trl(generate, always):
    # trl.experimental.openenv.generate_rollout_completions is ours: in place of a trl that is not there, or of the user's.
    if not always and has("trl"):
        return
    ours = types.ModuleType("trl.experimental.openenv")
    ours.generate_rollout_completions = generate
    above = [] if has("trl") else ["trl", "trl.experimental"]
    for name in above:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules[ours.__name__] = ours
    if above:
        sys.modules["trl"].experimental = sys.modules["trl.experimental"]
        sys.modules["trl.experimental"].openenv = ours


def look_in(directories):
    # Modules are found there first.
    for directory in reversed(directories):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    offer_trl(only_in_rollouts, False)


def imported(path, directories):
    # The function `module.name`.
    look_in(directories)
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise Refusal("load", "'%s' names no module: write module.%s" % (path, path or "name"))
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise Refusal("load", "no module named '%s' in %s" % (error.name, ", ".join(directories)))
        raise Refusal("load", "importing '%s' failed" % module_name, trace_of(error))
    function = getattr(module, name, None)
    if not callable(function):
        own = [k for k, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module_name]
        known = sorted(own + [k for k, v in vars(module).items() if inspect.isfunction(v) and not k.startswith("_")])
        raise Refusal("load", "'%s' has no function '%s'; it has: %s" % (module.__file__, name, ", ".join(known)))
    return function


def accepted(function, arguments):
    # A function without **kwargs gets what it names.
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return arguments
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return arguments
    names = {p.name for p in parameters}
    return {k: v for k, v in arguments.items() if k in names}


def line_of(answer):
    # JSON in UTF-8, which has no half characters: a lone surrogate becomes U+FFFD.
    try:
        text = json.dumps(answer, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        text = json.dumps(Refusal("value", "the answer cannot be JSON: %s" % error).answer, ensure_ascii=False)
    try:
        line = text.encode("utf-8")
    except UnicodeEncodeError:
        line = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
    return line + b"\n"


channel = questions = None
asking = threading.Lock()


def ask(question):
    # A question to the trainer while one of its own is worked on: its answer. An answer with "refused" is a ValueError.
    with asking:
        channel.sendall(line_of(question))
        line = questions.readline()
    if not line:
        os._exit(1)  # the trainer has gone
    answer = json.loads(line)
    if "refused" in answer:
        raise ValueError(answer["refused"])
    return answer


def serve(load, work):
    # Answers questions until there are none.
    global channel, questions
    become_the_worker()
    channel = socket.socket(fileno=3)
    os.set_inheritable(3, False)
    with channel.makefile("rb") as questions:
        for line in questions:
            try:
                question = json.loads(line)
                answer = load(question) if question["op"] == "load" else work(question, line)
            except Refusal as refusal:
                answer = refusal.answer
            except RecursionError as error:
                answer = Refusal("value", "the answer is nested too deeply: %s" % error).answer
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            channel.sendall(line_of(answer))
