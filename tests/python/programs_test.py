"""The Python programs of python/: linted, tested function by function, and served over descriptor 3 as the library does."""

import importlib.util
import json
import os
import pathlib
import py_compile
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import typing

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "scripts"))
import dataset_transform  # noqa: E402
import embed_python  # noqa: E402
import environment_host  # noqa: E402
import host  # noqa: E402
import reward_worker  # noqa: E402
import rollout_host  # noqa: E402

CASES = {}


class NotRun(Exception):
    """What a case needs is not here."""



def case(function):
    CASES[function.__name__] = function
    return function


def refusal(function, *arguments):
    try:
        function(*arguments)
    except host.Refusal as refused:
        return refused.answer
    raise AssertionError("it did not refuse")


def python_files():
    return [p for top in ("python", "scripts", "tests", "examples", "benchmarks") for p in sorted((ROOT / top).rglob("*.py"))]


@case
def every_python_file_compiles():
    files = python_files()
    assert len(files) > 20
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            py_compile.compile(str(path), cfile=str(pathlib.Path(folder, "x.pyc")), doraise=True)


@case
def every_python_file_is_clean():
    if not importlib.util.find_spec("pyflakes"):
        raise NotRun("no package pyflakes")
    done = subprocess.run([sys.executable, "-m", "pyflakes", *map(str, python_files())], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@case
def the_embedded_headers_are_those_of_the_files():
    assert len(embed_python.headers(ROOT)) == 6
    assert not embed_python.stale(ROOT), "run scripts/embed_python.py"
    assert embed_python.embedded('"""A\nB."""\n\nimport re\n\nfrom host import a, b\n\nx = 1\n') == "import re\n\nx = 1\n"


@case
def functions_get_what_they_name():
    def two(completions, answer):
        return completions, answer

    def rest(completions, **others):
        return completions, others

    given = {"completions": ["a"], "answer": ["b"], "seed": 3}
    assert host.accepted(two, given) == {"completions": ["a"], "answer": ["b"]}
    assert host.accepted(rest, given) == given
    assert host.accepted(len, {"obj": 1, "x": 2}) == {"obj": 1}


@case
def dates_are_those_of_the_start():
    program = """
import host, sys
host.fix_dates()
import copy, datetime, pickle, platform, socket, time
from datetime import date
moment = datetime.datetime.now()
print(date.today(), moment, datetime.datetime.now(datetime.timezone.utc), datetime.datetime.utcnow(), datetime.datetime.today() == moment)
print(time.strftime("%Y-%m-%d"), time.ctime(), time.asctime(), time.localtime().tm_hour, time.gmtime().tm_hour, time.gmtime(0).tm_year, time.strftime("%Y", time.gmtime(0)))
print(socket.gethostname(), platform.node(), time.time() > 1.7e9, time.monotonic() > 0)
assert isinstance(moment, datetime.datetime) and isinstance(moment, date) and issubclass(datetime.datetime, date) and not isinstance(3, date)
assert pickle.loads(pickle.dumps(moment)) == moment == copy.deepcopy(moment)
assert moment + datetime.timedelta(days=1) > moment and datetime.datetime(2020, 1, 2).year == 2020
assert datetime.datetime.strptime("2020-03-04", "%Y-%m-%d").day == 4 and date.fromisoformat("2020-03-04").month == 3
"""
    fixed = {"RLALGO_START_TIME": "1000000000", "RLALGO_START_HOST": "there", "TZ": "Asia/Tokyo"}
    told = subprocess.run([sys.executable, "-c", program], env={**os.environ, **fixed, "PYTHONPATH": str(ROOT / "python")},
                          capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0] == "2001-09-09 2001-09-09 10:46:40 2001-09-09 01:46:40+00:00 2001-09-09 01:46:40 True", told[0]
    assert told[1] == "2001-09-09 Sun Sep  9 10:46:40 2001 Sun Sep  9 10:46:40 2001 10 1 1970 1970", told[1]
    assert told[2] == "there there True True", told[2]
    free = subprocess.run([sys.executable, "-c", "import host, datetime; host.fix_dates(); print(datetime.date.today().year)"],
                          env={**{k: v for k, v in os.environ.items() if k != "RLALGO_START_TIME"}, "PYTHONPATH": str(ROOT / "python")},
                          capture_output=True, text=True, check=True).stdout
    assert int(free) > 2024


@case
def missing_modules_and_functions_are_refused_by_name():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "mine_of_the_test.py").write_text("def f(): pass\nclass G: pass\n")
        pathlib.Path(folder, "broken_of_the_test.py").write_text("1 / 0\n")
        assert host.imported("mine_of_the_test.f", [folder]).__name__ == "f"
        absent = refusal(host.imported, "absent_of_the_test.f", [folder])
        assert absent["kind"] == "load" and "no module named 'absent_of_the_test'" in absent["message"] and folder in absent["message"]
        assert "it has: G, f" in refusal(host.imported, "mine_of_the_test.g", [folder])["message"]
        broken = refusal(host.imported, "broken_of_the_test.f", [folder])
        assert "ZeroDivisionError" in broken["traceback"] and "importing 'broken_of_the_test' failed" in broken["message"]


@case
def reward_values():
    assert [reward_worker.number(v, 0) for v in (1, 0.5, True, None, float("nan"), float("inf"), -float("inf"))] == \
        [1.0, 0.5, 1.0, None, None, "inf", "-inf"]
    for bad in ("1", b"1", [1], object()):
        assert refusal(reward_worker.number, bad, 7)["kind"] == "value"
    assert "value 7 is '1' (str)" in refusal(reward_worker.number, "1", 7)["message"]
    huge = refusal(reward_worker.number, 10**5000, 7)["message"]
    assert huge.startswith("value 7 is ") and "(int)" in huge and len(huge) < 400, huge
    assert reward_worker.plain({1: (float("nan"), None, 2, "x", object)})["1"][:4] == [None, None, 2, "x"]
    assert reward_worker.plain([2**62, 10**300, 10**400, -(10**5000)]) == [2**62, 10**300, None, None]
    assert reward_worker.metric("m", 2) == ["m", 2.0] and reward_worker.metric("m", float("inf")) == ["m", "inf"]
    for bad in ("1", [1, 2], {}, 10**400):
        try:
            reward_worker.metric("m", bad)
            raise AssertionError(bad)
        except TypeError as problem:
            assert "log_metric('m', …)" in str(problem), problem


@case
def reward_calls_count_and_log():
    def reward(completions, log_metric, log_extra, trainer_state):
        log_metric("step", trainer_state.global_step)
        log_extra("length", [len(c) for c in completions])
        return [float(len(c)) for c in completions]

    async def later(completions):
        return [2.0] * len(completions)

    def short(completions):
        return [1.0]

    reward_worker.functions.update(reward=reward, later=later, short=short)
    question = {"arguments": {"completions": ["a", "bb"]}, "step": 4, "functions": [["reward", {}], ["later", {}], ["short", {}]]}
    first, second, third = reward_worker.call(question, 1)["answers"]
    assert first == {"values": [1.0, 2.0], "metrics": [["step", 4.0]], "extras": [["length", [1, 2]]]}, first
    assert second["values"] == [2.0, 2.0]
    assert third["kind"] == "count" and "1 values for 2 completions" in third["message"]


@case
def schemas_of_tools():
    def search(query: str, limit: int = 3, kind: typing.Optional[str] = None) -> typing.List[str]:
        """Finds pages.

        Args:
            query: what to look for,
                in words
            limit: how many
            kind: of which kind (choices: ["web", "book"])

        Returns:
            titles
        """

    schema = environment_host.schema_of("search", search)["function"]
    assert schema["description"] == "Finds pages." and schema["parameters"]["required"] == ["query"]
    properties = schema["parameters"]["properties"]
    assert properties["query"] == {"type": "string", "description": "what to look for, in words"}
    assert properties["limit"]["type"] == "integer" and properties["kind"]["nullable"] and properties["kind"]["enum"] == ["web", "book"]
    assert schema["return"] == {"type": "array", "items": {"type": "string"}, "description": "titles"}

    def bare(x):
        """Does.

        Args:
            x: a thing
        """

    try:
        environment_host.schema_of("bare", bare)
        raise AssertionError("no type hint, yet a schema")
    except TypeError as error:
        assert "'x' has no type hint" in str(error)
    assert environment_host.schema_of_type(typing.Union[int, str]) == {"type": ["integer", "string"]}
    assert environment_host.schema_of_type(typing.Literal["a", 1])["enum"] == ["a", 1]
    assert environment_host.schema_of_type(typing.Tuple[int, str])["prefixItems"] == [{"type": "integer"}, {"type": "string"}]


@case
def a_parameter_in_the_plural_gets_the_column():
    def right(completions, answers, topics=("none",)):
        return [float(a == c) for a, c in zip(answers, completions)] if topics == ("none",) else []

    reward_worker.functions.update(right=right)
    question = {"arguments": {"completions": ["1", "2"], "answer": ["1", "3"], "topic": ["x", "y"]}, "step": 0, "functions": [["right", {}]]}
    assert reward_worker.call(question, 1)["answers"][0]["values"] == [1.0, 0.0]


@case
def rows_of_token_ids():
    ids = rollout_host.Ids([[1, 2, 3], [4, 5, 6]])
    assert ids.shape == (2, 3) and ids.size(1) == 3 and len(ids) == 2 and ids[0][1:].tolist() == [2, 3]
    assert ids[:, 1:].tolist() == [[2, 3], [5, 6]] and ids[1, 2] == 6 and ids[0].unsqueeze(0).shape == (1, 3)
    assert [row.tolist() for row in ids.to("cuda")] == [[1, 2, 3], [4, 5, 6]] and ids[0].shape == (3,)


@case
def sampling_that_is_asked_for():
    run = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "max_new_tokens": 7, "stop_ids": [2]}
    sampling_of = rollout_host.sampling_of
    assert sampling_of(run, None, {})[0] == {**{k: run[k] for k in rollout_host.spelled}, "count": 1, "max_new_tokens": 7, "stop_ids": [2]}
    said, longest = sampling_of(run, {"max_new_tokens": 3, "temperature": 0.5, "transformers_version": None}, {"top_k": 4, "eos_token_id": 9})
    assert (said["max_new_tokens"], said["temperature"], said["top_k"], said["stop_ids"], longest) == (3, 0.5, 4, [9], None)
    assert sampling_of(run, None, {"do_sample": False, "use_cache": True, "num_beams": 1})[0]["temperature"] == 0.0
    assert sampling_of(run, rollout_host.Settings({"max_new_tokens": 3}), {"max_length": 12}) == (sampling_of(run, None, {"max_length": 12})[0], 12)
    for bad in ({"num_beams": 4}, {"stop_strings": ["x"]}, {"penalty_alpha": 0.6}):
        try:
            sampling_of(run, None, bad)
            raise AssertionError(f"it took {bad}")
        except TypeError as error:
            assert list(bad)[0] in str(error)


@case
def rows_that_a_rollout_function_returns():
    rows = rollout_host.rows_of({"prompt_ids": [(1, 2)], "completion_ids": [rollout_host.Ids([3, 4])], "logprobs": [None],
                                 "env_mask": [[1, 0]], "env_reward": [float("nan")], "kind": "x"}, 1)
    assert rows == {"completions": [{"prompt_ids": [1, 2], "ids": [3, 4], "mask": [1, 0]}], "columns": [{"env_reward": None, "kind": "x"}]}
    one = {"prompt_ids": [[1]], "completion_ids": [[3]]}
    for wrong, word in (({"completion_ids": [[3], [4]]}, "2 entries for 1"), ({"completion_ids": [["x"]]}, "holds 'x'"),
                        ({"logprobs": [[-0.1, -0.2]]}, "2 entries for 1 tokens"), ({"prompt_ids": None}, "no prompt_ids")):
        assert word in refusal(rollout_host.rows_of, {**one, **wrong}, 1)["message"]


@case
def configuration_of_a_transform():
    cfg = dataset_transform.attributes({"a": {"b": 1}, "c": [{"d": 2}]})
    assert cfg.a.b == 1 and cfg.c[0].d == 2 and cfg.missing is None
    dataset_transform.options = {"remove_columns": ["x"]}
    dataset_transform.row_function = lambda row: {"prompt": row["x"] + "!"}
    assert dataset_transform.transformed([{"x": "a", "y": 1}]) == [{"y": 1, "prompt": "a!"}]
    dataset_transform.row_function = lambda row: 3
    answer = refusal(dataset_transform.transformed, [{"x": "a"}])
    assert answer["kind"] == "shape" and answer["row"] == 0


@case
def every_answer_becomes_one_line():
    assert json.loads(host.line_of({"a": "größer 😀"})) == {"a": "größer 😀"}
    assert json.loads(host.line_of({"a": "x\ud83d", "b": "\ud83d\ude00", "c": "\udc80"})) == {"a": "x\ufffd", "b": "😀", "c": "\ufffd"}
    assert host.line_of({"a": "b\n"}).count(b"\n") == 1
    for no_json in ({"a": float("nan")}, {"a": object()}, {"a": {1j: 2}}):
        answer = json.loads(host.line_of(no_json))
        assert answer["error"] and answer["kind"] == "value" and "cannot be JSON" in answer["message"], answer
    deep = []
    for _ in range(100000):
        deep = [deep]
    assert "cannot be JSON" in json.loads(host.line_of(deep))["message"]


class Served:
    """A program as the library starts it: host.py and the program as text, a socket as descriptor 3."""

    def __init__(self, name):
        texts = [embed_python.embedded((ROOT / "python" / f"{n}.py").read_text()) for n in ("host", name)]
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-u", "-c", "\n" + "\n\n\n".join(texts)], stdin=subprocess.DEVNULL,
                                        close_fds=False, start_new_session=True, preexec_fn=lambda: os.dup2(theirs.fileno(), 3))
        theirs.close()
        self.socket, self.lines = ours, ours.makefile("rb")

    def ask(self, **question):
        self.socket.sendall(json.dumps(question).encode() + b"\n")
        return json.loads(self.lines.readline())

    def end(self):
        self.socket.shutdown(socket.SHUT_WR)
        status = self.process.wait(timeout=30)
        self.lines.close()
        self.socket.close()
        return status


@case
def programs_answer_on_descriptor_three_and_end_with_their_questions():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "served.py").write_text(
            "import random\n"
            "def reward(completions, answer):\n    print('seen')\n    return [float(c == a) for c, a in zip(completions, answer)]\n"
            "def draw(completions):\n    return [random.random() for _ in completions]\n"
            "def fails(completions):\n    raise ValueError('no')\n"
            "class Game:\n    def reset(self, **row):\n        return 'start'\n    def step(self, text):\n        return 'end', 1.0, True\n"
            "class Counter:\n    @property\n    def broken(self):\n        raise RuntimeError('a property is no tool')\n"
            "    def reset(self, first, **row):\n        self.n = first\n"
            "        return [{'type': 'text', 'text': str(first)} if first else {'type': 'image'}]\n"
            "    def add(self, x: int) -> int:\n        '''Adds.\n\n        Args:\n            x: n\n        '''\n        self.n += x\n        return self.n\n"
            "    @staticmethod\n    def twice(x: int) -> int:\n        '''Doubles.\n\n        Args:\n            x: n\n        '''\n        return 2 * x\n"
            "    @classmethod\n    def made(cls):\n        pass\n"
            "    def close(self):\n        '''Closes.'''\n"
            "    def get_reward(self):\n        return self.n\n"
            "import datetime\n"
            "def transform(cfg):\n    return lambda row: {'prompt': cfg.prefix + row['x'], **({'made': eval(row['code'])} if 'code' in row else {})}\n")
        worker = Served("reward_worker")
        for name in ("reward", "draw", "fails"):
            assert worker.ask(op="load", function=f"served.{name}", paths=[folder])["name"] == name
        assert worker.ask(op="load", function="served.none", paths=[folder])["kind"] == "load"
        call = dict(op="call", arguments={"completions": ["a", "b"], "answer": ["a", "c"]}, step=1)
        assert worker.ask(functions=[["served.reward", {}]], **call)["answers"][0]["values"] == [1.0, 0.0]
        drawn = [worker.ask(functions=[["served.draw", {}]], **call)["answers"][0]["values"] for _ in range(2)]
        assert drawn[0] == drawn[1], "a call does not seed what it draws"
        failed = worker.ask(functions=[["served.fails", {}]], **call)["answers"][0]
        assert failed["kind"] == "raised" and "ValueError: no" in failed["message"] and "served.py" in failed["traceback"]
        assert "<string>" not in failed["traceback"], "frames of the host are the user's no concern"
        assert worker.end() == 0
        game = Served("environment_host")
        loaded = game.ask(op="load", environments=["served.Game", "served.Game", "served.Counter"], tools=[], paths=[folder])
        assert [(e["steps"], e["reward"], e["kind"]) for e in loaded["environments"]] == [
            (True, "Game", "served.Game"), (True, "Game", "served.Game"), (False, "Counter", "served.Counter")], loaded
        names = [tool["function"]["name"] for tool in loaded["environments"][2]["schemas"]]
        assert names == ["add", "close", "twice"] and not loaded["schemas"], names
        parts = game.ask(op="begin", of=2, rows=[{"first": 3}, {"first": 4}], seeds=[1, 2])["observations"]
        assert parts == [[{"type": "text", "text": "3"}], [{"type": "text", "text": "4"}]], parts
        assert game.ask(op="call", of=2, calls=[[1, "add", {"x": 2}], [0, "twice", {"x": 2}]])["results"] == [["6", False], ["4", False]]
        assert game.ask(op="finish", of=2, episodes=2)["rewards"] == [3.0, 6.0]
        odd = game.ask(op="begin", of=2, rows=[{"first": None}], seeds=[1])
        assert odd["kind"] == "value" and "text parts" in odd["message"], odd
        assert game.ask(op="begin", rows=[{"x": 1}], seeds=[1])["observations"] == ["start"]
        assert game.ask(op="step", said=[[0, "go"]])["turns"] == [["end", 1.0, True]]
        assert game.end() == 0
        rows = Served("dataset_transform")
        assert rows.ask(op="load", function="served.transform", paths=[folder], cfg={"prefix": ">"}, dataset_idx=0, tokenizer="") == {}
        assert rows.ask(op="rows", rows=[{"x": "a"}])["rows"] == [{"x": "a", "prompt": ">a"}]
        for text, found in (("10**30", "64 bits"), ("b'a'", "bytes"), ("{1, 2}", "set"), ("[[object()]]", "object")):
            refused = rows.ask(op="rows", rows=[{"x": "a", "code": text}])
            assert refused["kind"] == "shape" and found in refused["message"], refused
        fine = rows.ask(op="rows", rows=[{"x": "a", "code": "[2**64 - 1, -2**63, datetime.date(2001, 2, 3)]"}])["rows"][0]
        assert fine["made"] == [2**64 - 1, -2**63, "2001-02-03"], fine
        assert rows.end() == 0


@case
def a_program_dies_with_the_trainer_in_the_middle_of_a_call():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "slow.py").write_text("import time\ndef reward(completions):\n    time.sleep(600)\n")
        worker = Served("reward_worker")
        worker.ask(op="load", function="slow.reward", paths=[folder])
        worker.socket.sendall(json.dumps({"op": "call", "functions": [["slow.reward", {}]], "arguments": {"completions": ["a"]},
                                          "step": 0}).encode() + b"\n")
        worker.lines.close()
        worker.socket.close()
        assert worker.process.wait(timeout=30) == -signal.SIGKILL


def main():
    failed = 0
    for name, function in CASES.items():
        try:
            function()
            print(f"ok {name}", flush=True)
        except NotRun as why:
            print(f"not run {name}: {why}", flush=True)
        except Exception as error:  # one failed case must not hide the others
            failed += 1
            text = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
            print(f"FAIL {name} {' | '.join(text.splitlines())[:1500]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
