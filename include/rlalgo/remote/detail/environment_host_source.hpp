// python/environment_host.py as text; written by scripts/embed_python.py, edit that file.
#pragma once

namespace rlalgo::remote::detail {

inline constexpr const char* environment_host_source = R"PYTHON(
import asyncio
import enum
import inspect
import json
import math
import random
import re
import sys
import types
import typing
import zlib

functions, environments = {}, []
event_loop = None
kinds = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", list: "array",
         tuple: "array", dict: "object"}


def enumeration(values):
    if not values or any(type(v) not in (int, float, str, bool, type(None)) for v in values):
        raise TypeError("an enumeration of %r" % (values,))
    names = list(dict.fromkeys(kinds[type(v)] for v in values))
    return {"type": names[0] if len(names) == 1 else names, "enum": values}


def schema_of_type(hint):
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return enumeration([member.value for member in hint])
        if hint is typing.Any:
            return {}
        if hint not in kinds:
            raise TypeError("the type hint %r" % (hint,))
        return {"type": kinds[hint]}
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        parts = [schema_of_type(part) for part in inside if part is not type(None)]
        if len(parts) == 1:
            out = parts[0]
        elif all(list(part) == ["type"] and isinstance(part["type"], str) for part in parts):
            names = sorted({part["type"] for part in parts})
            out = {"type": names[0] if len(names) == 1 else names}
        else:
            out = {"anyOf": parts}
        if type(None) in inside:
            out["nullable"] = True
        return out
    if origin is typing.Literal:
        return enumeration(list(inside))
    if origin is list:
        return {"type": "array", "items": schema_of_type(inside[0])} if inside else {"type": "array"}
    if origin is tuple and len(inside) != 1 and ... not in inside:
        return {"type": "array", "prefixItems": [schema_of_type(part) for part in inside]}
    if origin is dict:
        values = {"additionalProperties": schema_of_type(inside[1])} if len(inside) == 2 else {}
        return {"type": "object", **values}
    raise TypeError("the type hint %r" % (hint,))


def sections_of(docstring):
    # Description, {argument: description}, description of the return value.
    parts, current = {"": []}, ""
    for line in docstring.expandtabs().split("\n"):
        if line.strip() in ("Args:", "Returns:", "Raises:"):
            current = line.strip()
            parts.setdefault(current, [])
        else:
            parts[current].append(line)
    arguments, name, column = {}, None, None
    for line in parts.get("Args:", []):
        text = line.strip()
        if not text:
            continue
        indent = len(line) - len(line.lstrip())
        begins = re.match(r"(\w+):\s*(.*)", text)
        if begins and (column is None or indent <= column):
            name, column = begins[1], indent
            arguments[name] = begins[2]
        elif name is not None:
            arguments[name] = (arguments[name] + " " + text).strip()
    returns = "\n".join(parts["Returns:"]).strip() if "Returns:" in parts else None
    return "\n".join(parts[""]).strip(), arguments, returns


def schema_of(name, function):
    docstring = inspect.getdoc(function)
    if not (docstring or "").strip():
        raise TypeError("it has no docstring")
    description, arguments, returned = sections_of(docstring)
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in hints:
            raise TypeError("the argument '%s' has no type hint" % parameter.name)
        if parameter.name not in arguments:
            raise TypeError("the docstring does not describe the argument '%s' under Args:" % parameter.name)
        entry = schema_of_type(hints[parameter.name])
        text = arguments[parameter.name]
        choices = re.search(r"\(choices:\s*(.*?)\)\s*$", text, re.IGNORECASE)
        if choices:
            entry["enum"] = [choice.strip() for choice in json.loads(choices[1])]
            text = text[: choices.start()].strip()
        entry["description"] = text
        properties[parameter.name] = entry
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    out = {"name": name, "description": description, "parameters": parameters}
    if "return" in hints:
        try:
            out["return"] = schema_of_type(hints["return"])
            if returned is not None:
                out["return"]["description"] = returned
        except TypeError:
            pass
    return {"type": "function", "function": out}


def described(name, function, path):
    try:
        return schema_of(name, function)
    except Exception as error:
        raise Refusal("load", "'%s' cannot be offered as a tool: %s" % (path, error))


class Environment:
    # One class, and the instances of it that play: made once, reset for each episode.
    def __init__(self, path, factory):
        self.factory, self.instances = factory, []
        try:
            self.instances.append(factory())
        except BaseException as error:
            raise Refusal("load", "'%s' cannot be made without arguments" % path, trace_of(error))
        one = self.instances[0]
        if not callable(getattr(one, "reset", None)):
            raise Refusal("load", "'%s' has no method reset" % path)
        methods = public_methods(one)
        self.steps = [name for name in methods if name != "close"] == ["step"]
        self.rewards = callable(getattr(one, "get_reward", None))
        self.schemas = []
        if not self.steps:
            self.schemas = [described(name, getattr(one, name), path + "." + name) for name in methods]

    def described(self):
        kind = type(self.instances[0])
        return {"steps": self.steps, "reward": kind.__name__ if self.steps or self.rewards else "",
                "kind": "%s.%s" % (kind.__module__, kind.__qualname__), "schemas": self.schemas}


def public_methods(instance):
    # Of the class: those of the instance would evaluate its properties.
    members = inspect.getmembers(type(instance), predicate=inspect.isfunction)
    return [name for name, method in members if not name.startswith("_") and name not in ("reset", "get_reward") and
            (name != "close" or (inspect.getdoc(method) or "").strip())]


def load(question):
    schemas = []
    fix_dates()
    for path in question["tools"]:
        function = imported(path, question["paths"])
        name = getattr(function, "__name__", path.rpartition(".")[2])
        functions[name] = function
        schemas.append(described(name, function, path))
    for path in question["environments"]:
        environments.append(Environment(path, imported(path, question["paths"])))
    return {"environments": [one.described() for one in environments], "schemas": schemas}


def finished(awaitables):
    global event_loop
    if event_loop is None:
        event_loop = asyncio.new_event_loop()
        asyncio.set_event_loop(event_loop)

    async def together():
        return await asyncio.gather(*awaitables, return_exceptions=True)

    return event_loop.run_until_complete(together())


def each(work, episodes):
    # work(i) for each episode; coroutines among the results run at once.
    results = []
    for at, episode in enumerate(episodes):
        try:
            results.append(work(at))
        except Exception as error:
            results.append(error)
    waiting = [i for i, result in enumerate(results) if inspect.isawaitable(result)]
    if waiting:
        for i, result in zip(waiting, finished([results[i] for i in waiting])):
            results[i] = result
    return results


def raised(error, episode, during):
    if isinstance(error, BaseException):
        message = "%s: %s in %s" % (type(error).__name__, error, during)
        raise Refusal("raised", message, trace_of(error), episode=episode)


def number(value, episode, during):
    try:
        if value is None:
            return None
        if isinstance(value, (str, bytes)):
            raise TypeError
        value = float(value)
    except Exception:
        raise Refusal("value", "%s gave the reward %r, not a number" % (during, value), episode=episode)
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def shown(value, episode, during):
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in value):
        return value
    raise Refusal("value", "%s gave the observation %r, not a text, None or a list of messages" % (during, value),
                  episode=episode)


def opening(value, episode):
    # What is appended to the last user message: a text, or parts that are texts.
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str)
                                       for p in value):
        return value
    raise Refusal("value", "reset returned %r, not a text, None or a list of text parts" % (value,), episode=episode)


def begin(question, environment):
    rows = question["rows"]
    if environment is None:
        return {"observations": [None] * len(rows)}
    instances = environment.instances
    while len(instances) < len(rows):
        try:
            instances.append(environment.factory())
        except Exception as error:
            raised(error, len(instances), "making another one")

    def reset(i):
        row = {"seed": question["seeds"][i], **rows[i]}
        return instances[i].reset(**accepted(instances[i].reset, row))

    observations = each(reset, range(len(rows)))
    for i, observation in enumerate(observations):
        raised(observation, i, "reset")
    return {"observations": [opening(observation, i) for i, observation in enumerate(observations)]}


def step(question, environment):
    said = question["said"]
    results = each(lambda at: environment.instances[said[at][0]].step(said[at][1]), said)
    turns = []
    for (episode, _), result in zip(said, results):
        raised(result, episode, "step")
        if isinstance(result, tuple) and len(result) == 5:  # as Gymnasium's
            result = (result[0], result[1], result[2] or result[3])
        if not (isinstance(result, tuple) and len(result) == 3):
            raise Refusal("value", "step returned %r, not (observation, reward, done)" % (result,), episode=episode)
        observation, reward, done = result
        turns.append([shown(observation, episode, "step"), number(reward, episode, "step") or 0.0, bool(done)])
    return {"turns": turns}


def call(question, environment):
    calls = question["calls"]

    def one(at):
        episode, name, arguments = calls[at]
        function = functions[name] if name in functions else getattr(environment.instances[episode], name)
        return function(**arguments)

    results = each(one, calls)
    return {"results": [[str({"error": str(r)}), True] if isinstance(r, BaseException) else [str(r), False]
                        for r in results]}


def finish(question, environment):
    count = question["episodes"]
    if environment is None or not environment.rewards:
        return {"rewards": [0.0] * count}
    rewards = each(lambda i: environment.instances[i].get_reward(), range(count))
    for i, reward in enumerate(rewards):
        raised(reward, i, "get_reward")
    return {"rewards": [number(reward, i, "get_reward") for i, reward in enumerate(rewards)]}


def work(question, line):
    seed = zlib.crc32(line)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    environment = environments[question.get("of", 0)] if environments else None
    return {"begin": begin, "step": step, "call": call, "finish": finish}[question["op"]](question, environment)


if __name__ == "__main__":
    serve(load, work)
)PYTHON";

}  // namespace rlalgo::remote::detail
