// python/reward_worker.py as text; written by scripts/embed_python.py, edit that file.
#pragma once

namespace rlalgo::remote::detail {

inline constexpr const char* reward_worker_source = R"PYTHON(
import inspect
import math
import random
import sys
import types
import zlib

def plain(value):
    # What JSON can hold: numbers of array libraries as numbers, NaN and infinities as null, the rest as text.
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and value.bit_length() > 1023:
        return None  # no double holds it
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return plain(value.item())
    return str(value)


functions = {}
loop = None


def load(question):
    path = question["function"]
    if not path.rpartition(".")[0]:
        raise Refusal("load", "a reward function is named module.function")
    function = imported(path, question["paths"])
    functions[path] = function
    plain = function
    while hasattr(plain, "func"):
        plain = plain.func
    runs = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(type(plain), "__call__", None))
    return {"name": getattr(plain, "__name__", type(plain).__name__), "async": runs}


def shown(value):
    try:
        text = repr(value)
    except Exception as problem:  # also of a whole number with thousands of digits
        text = "what has no text, %s" % problem
    return text if len(text) <= 200 else text[:200] + "…"


def number(value, index):
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        value = float(value)
    except Exception:
        raise Refusal("value", "value %d is %s (%s), not a number or None" % (index, shown(value), type(value).__name__))
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def metric(name, value):
    try:
        return [str(name), number(value, 0)]
    except Refusal:
        raise TypeError("log_metric(%r, …): %s (%s) is not a number or None" % (name, shown(value), type(value).__name__)) from None


class Call:
    """One function with its arguments, and what it logs."""

    def __init__(self, path, keywords, arguments, step):
        self.function = functions[path]
        self.count = len(arguments["completions"])
        self.metrics, self.extras = [], []
        self.arguments = dict(arguments)
        self.arguments.update(keywords)
        self.arguments["trainer_state"] = types.SimpleNamespace(global_step=step)
        self.arguments["log_metric"] = lambda name, value: self.metrics.append(metric(name, value))
        self.arguments["log_extra"] = lambda column, values: self.extras.append([str(column), plain(list(values))])

    def begin(self):
        # A parameter that nothing gives and that is the plural of a column gets the column: axolotl's pages write `answers`
        # for the column `answer`.
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            parameters = ()
        for p in parameters:
            if p.default is p.empty and p.name not in self.arguments and p.name.endswith("s") and p.name[:-1] in self.arguments:
                self.arguments[p.name] = self.arguments[p.name[:-1]]
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


def work(question, line):
    return call(question, zlib.crc32(line))


if __name__ == "__main__":
    serve(load, work)
)PYTHON";

}  // namespace rlalgo::remote::detail
