// The Python side of the reward worker: standard library only, Python 3.8 or later.
//
// Protocol on file descriptor 3, one JSON object per line each way, strictly question and answer. Questions:
//   {"op": "load", "function": "module.name", "paths": [directory, …]}     → {"name": …, "async": true | false}
//   {"op": "call", "functions": [[function, {keyword: value}], …], "arguments": {…}, "step": k}
//                                                → {"answers": [{"values": […], "metrics": …, "extras": …}, …]}
// An answer with "error" instead carries "kind" (load | raised | count | value), "message" and "traceback". Functions
// of one call run one after another, except that all coroutines among them run at once, as asyncio.gather does. Values:
// a finite number, null (None or NaN), "inf" or "-inf". Descriptor 1 is the trainer's stderr, 0 is /dev/null. Before
// each call `random` (and numpy, when the module loaded it) is seeded by the call itself, so that a reward that draws
// random numbers is the same function of its arguments in a resumed run.
#pragma once

namespace rlalgo::remote::detail {

inline constexpr const char* worker_source = R"PYTHON(
import sys

sys.path[:] = [p for p in sys.path if p]  # the directories to search come with the questions
import importlib, inspect, json, math, os, random, select, signal, socket, threading, traceback, types, zlib

channel = socket.socket(fileno=3)
os.set_inheritable(3, False)


def die_with_the_trainer():
    # Ends this process group when the trainer is gone, even in the middle of a call. (A trainer that finishes in order
    # closes one direction only: then the loop below ends, and exit handlers run.)
    poller = select.poll()
    poller.register(channel.fileno(), 0)
    poller.poll()
    os.killpg(os.getpgid(0), signal.SIGKILL)


class Refusal(Exception):
    def __init__(self, kind, message, trace=""):
        self.answer = {"error": True, "kind": kind, "message": message, "traceback": trace}


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


def plain(value):
    # What JSON can hold: numbers of array libraries as numbers, NaN and infinities as null, the rest as text.
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return plain(value.item())
    return str(value)


functions = {}
loop = None


def load(question):
    path = question["function"]
    for directory in reversed(question["paths"]):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise Refusal("load", "a reward function is named module.function")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise Refusal("load", "no module named '%s' in %s" % (error.name, ", ".join(question["paths"])))
        raise Refusal("load", "importing '%s' failed" % module_name, trace_of(error))
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(k for k, v in vars(module).items() if inspect.isfunction(v) and not k.startswith("_"))
        raise Refusal("load", "'%s' has no function '%s'; it has: %s" % (module.__file__, name, ", ".join(known)))
    functions[path] = function
    plain = function
    while hasattr(plain, "func"):
        plain = plain.func
    runs = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(type(plain), "__call__", None))
    return {"name": getattr(plain, "__name__", type(plain).__name__), "async": runs}


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


def number(value, index):
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        value = float(value)
    except Exception:
        raise Refusal("value", "value %d is %r (%s), not a number or None" % (index, value, type(value).__name__))
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


class Call:
    """One function with its arguments, and what it logs."""

    def __init__(self, path, keywords, arguments, step):
        self.function = functions[path]
        self.count = len(arguments["completions"])
        self.metrics, self.extras = [], []
        self.arguments = dict(arguments)
        self.arguments.update(keywords)
        self.arguments["trainer_state"] = types.SimpleNamespace(global_step=step)
        self.arguments["log_metric"] = lambda name, value: self.metrics.append([str(name), number(value, 0)])
        self.arguments["log_extra"] = lambda column, values: self.extras.append([str(column), plain(list(values))])

    def begin(self):
        return self.function(**accepted(self.function, self.arguments))

    def refused(self, error):
        if isinstance(error, Refusal):
            return error.answer
        return Refusal("raised", "%s: %s" % (type(error).__name__, error), trace_of(error)).answer

    def answer(self, values):
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
            kind = type(values).__name__
            raise Refusal("value", "it returned %s, not a list with one number or None per completion" % kind)
        values = [number(v, i) for i, v in enumerate(values)]
        if len(values) != self.count:
            raise Refusal("count", "%d values for %d completions" % (len(values), self.count))
        return {"values": values, "metrics": self.metrics, "extras": self.extras}


def together(awaitables):
    # The results of all, an exception where one was raised.
    global loop
    import asyncio

    if loop is None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)

    async def wait(awaitable):
        try:
            return await awaitable
        except BaseException as error:
            return Raised(error)

    async def all_of_them():
        return await asyncio.gather(*[wait(a) for a in awaitables])

    return loop.run_until_complete(all_of_them())


class Raised:
    def __init__(self, error):
        self.error = error


def call(question, seed):
    calls = [Call(path, keywords, question["arguments"], question["step"]) for path, keywords in question["functions"]]
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    results = []
    for one in calls:
        try:
            results.append(one.begin())
        except BaseException as error:
            results.append(Raised(error))
    waiting = [i for i, result in enumerate(results) if inspect.isawaitable(result)]
    if waiting:
        for i, result in zip(waiting, together([results[i] for i in waiting])):
            results[i] = result
    answers = []
    for one, result in zip(calls, results):
        try:
            if isinstance(result, Raised):
                answers.append(one.refused(result.error))
            else:
                answers.append(one.answer(result))
        except BaseException as error:
            answers.append(one.refused(error))
    return {"answers": answers}


threading.Thread(target=die_with_the_trainer, daemon=True).start()
with channel.makefile("rb") as questions:
    for line in questions:
        try:
            question = json.loads(line)
            answer = load(question) if question["op"] == "load" else call(question, zlib.crc32(line))
        except Refusal as refusal:
            answer = refusal.answer
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        channel.sendall(json.dumps(answer, allow_nan=False).encode("ascii") + b"\n")
)PYTHON";

}  // namespace rlalgo::remote::detail
