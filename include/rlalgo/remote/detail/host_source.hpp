// python/host.py as text; written by scripts/embed_python.py, edit that file.
#pragma once

namespace rlalgo::remote::detail {

inline constexpr const char* host_source = R"PYTHON(
import sys

if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p]  # the directories to search come with the questions

import importlib
import inspect
import json
import os
import select
import signal
import socket
import threading
import traceback


def die_with_the_trainer(channel):
    # Ends this process group when the trainer is gone, even in the middle of a call. (A trainer that finishes in order
    # closes one direction only: then the loop below ends, and exit handlers run.)
    poller = select.poll()
    poller.register(channel.fileno(), 0)
    poller.poll()
    os.killpg(os.getpgid(0), signal.SIGKILL)


class Refusal(Exception):
    def __init__(self, kind, message, trace="", **place):
        self.answer = {"error": True, "kind": kind, "message": message, "traceback": trace, **place}


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


def imported(path, directories):
    # The function `module.name`.
    for directory in reversed(directories):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    module_name, _, name = path.rpartition(".")
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


def serve(load, work):
    # Answers questions until there are none.
    channel = socket.socket(fileno=3)
    os.set_inheritable(3, False)
    threading.Thread(target=die_with_the_trainer, args=(channel,), daemon=True).start()
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
)PYTHON";

}  // namespace rlalgo::remote::detail
