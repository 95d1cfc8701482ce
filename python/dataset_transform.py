"""The Python side of dataset transforms, on host.py (and of Python's transformers, where a row
function wants a tokenizer). Questions:
  {"op": "load", "function": …, "paths": […], "cfg": {…}, "dataset_idx": k, "tokenizer": directory}   → {}
  {"op": "rows", "rows": [{…}, …]}                                                                  → {"rows": […]}
  {"op": "has", "function": …, "paths": […]}             → {"has": whether the module can be imported and has that name}
An answer with "error" instead carries "kind" (load | raised | shape), "message", "traceback" and "row".
"""

import datetime
import decimal
import importlib
import importlib.util
import inspect
import math
import sys

from host import Refusal, fix_dates, imported, look_in, serve, trace_of


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise Refusal("shape", "it returned %d, a whole number that 64 bits do not hold: make it a text" % value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):
        return str(value)
    raise Refusal("shape", "it returned a value of type %s, which a column cannot hold" % type(value).__name__)


class Cfg(dict):
    # The run's keys as items and as attributes; a key that is not set is None.
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


def attributes(value):
    if isinstance(value, dict):
        return Cfg({k: attributes(v) for k, v in value.items()})
    if isinstance(value, list):
        return [attributes(v) for v in value]
    return value


def named(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


row_function, options, extra = None, {}, {}


def load(question):
    global row_function, options, extra
    path = question["function"]
    fix_dates()
    function = imported(path, question["paths"])
    parameters = named(function)
    keywords = {}
    if "dataset_idx" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        keywords["dataset_idx"] = question["dataset_idx"]
    try:
        result = function(attributes(question["cfg"]), **keywords)
    except BaseException as error:
        raise Refusal("load", "calling '%s' with the configuration failed" % path, trace_of(error))
    row_function, options = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    options = dict(options or {})
    if not callable(row_function):
        raise Refusal("load", "'%s' returned %s, not a function" % (path, type(row_function).__name__))
    offer_tokenizer(named(row_function).get("tokenizer"), question["tokenizer"])
    return {}


def offer_tokenizer(parameter, directory):
    # A parameter with a default keeps it where there are no transformers.
    if parameter is None:
        return
    if parameter.default is not parameter.empty and importlib.util.find_spec("transformers") is None:
        print("the row function's tokenizer is %r: Python's transformers are not installed" % (parameter.default,), file=sys.stderr)
        return
    try:
        from transformers import AutoTokenizer

        extra["tokenizer"] = AutoTokenizer.from_pretrained(directory)
    except BaseException as error:
        raise Refusal("load", "the row function wants a tokenizer, which needs Python's transformers", trace_of(error))


def offers(path, directories):
    fix_dates()
    look_in(directories)
    module_name, _, name = path.rpartition(".")
    try:
        return hasattr(importlib.import_module(module_name), name)
    except BaseException as error:
        raise Refusal("load", "importing '%s' failed" % module_name, trace_of(error))


def kept(row):
    removed = options.get("remove_columns") or []
    if removed == "__all__":
        return {}
    return {k: v for k, v in row.items() if k not in removed}


def transformed(rows):
    if options.get("batched"):
        columns = {k: [row[k] for row in rows] for k in (rows[0] if rows else {})}
        try:
            made = row_function(dict(columns), **extra)
        except BaseException as error:
            raise Refusal("raised", "%s: %s" % (type(error).__name__, error), trace_of(error))
        if not isinstance(made, dict):
            raise Refusal("shape", "it returned %s" % type(made).__name__)
        out = {**kept(columns), **made}
        lengths = {k: len(v) for k, v in out.items()}
        if len(set(lengths.values())) > 1:
            raise Refusal("shape", "columns of different lengths: %s" % lengths)
        return [dict(zip(out, values)) for values in zip(*out.values())]
    result = []
    for index, row in enumerate(rows):
        try:
            made = row_function(dict(row), **extra)
        except BaseException as error:
            raise Refusal("raised", "%s: %s" % (type(error).__name__, error), trace_of(error), row=index)
        if not isinstance(made, dict):
            raise Refusal("shape", "it returned %s" % type(made).__name__, row=index)
        result.append({**kept(row), **made})
    return result


def work(question, line):
    if question["op"] == "has":
        return {"has": offers(question["function"], question["paths"])}
    return {"rows": plain(transformed(question["rows"]))}


if __name__ == "__main__":
    serve(load, work)
