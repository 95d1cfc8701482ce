"""Several environments in one run, chosen by a column: TRL's own numbers, mixed kinds, resume, asynchronous generation, what is refused."""
import http.server
import json
import pathlib
import shutil
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "clients"))
from cases import QUICKSTART, main, same_files  # noqa: E402
from gym_test import open_env  # noqa: E402
from scripted_model import TEMPLATE, Speaker, Words  # noqa: E402
from serve_clients_test import pythons, run  # noqa: E402

CASES = {}
HERE = pathlib.Path(__file__).resolve().parent
BESIDE = {"async_prefetch": True, "use_data_producer": True, "prefetch_depth": 2}
FACTS = json.loads((HERE / "trl_environments.json").read_text())  # trl_environments.py, TRL 1.16, transformers 5.23
NAMES = {"shelf": "games.Shelf", "room": "games.Room", "second": "games.Shelf", "other": "games.Other"}


def case(function):
    CASES[function.__name__] = function
    return function


def rows(c, lines, name="rows.jsonl"):
    (c.folder / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return name


class Scripted(http.server.BaseHTTPRequestHandler):
    """A server in the protocol of `trl vllm-serve` whose model is the scripted one."""

    def log_message(self, *unused):
        pass

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/generate/":
            return self.answer({})
        prompts = [prompt for prompt in request["prompts"] for _ in range(request["n"])]
        ids = [said[:request["max_tokens"]] for said in self.server.speaker.answers(prompts)]
        self.answer({"completion_ids": ids, "logprobs": [[[-1.0]] * len(i) for i in ids], "logprob_token_ids": [[[t] for t in i] for i in ids]})


def scripted(c):
    """The server, and what of `trl` asks it."""
    tokenizer = json.loads((QUICKSTART / "model/tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = {**tokenizer["model"]["vocab"], **special}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.speaker = Speaker(Words(vocabulary, special), special["<|im_end|>"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.copy(HERE / "clients/scripted_games.py", c.folder / "games.py")
    return server, {"use_vllm": True, "vllm_server_host": "127.0.0.1", "vllm_server_port": server.server_address[1], "vllm_server_timeout": 5,
                    "vllm_importance_sampling_correction": False}


def as_trl(c, lines, **trl):
    return {"datasets": [{"path": rows(c, lines)}], "shuffle_merged_datasets": False, "chat_template_jinja": TEMPLATE,
            "learning_rate": 1e-3, "lr_scheduler": "constant", "max_grad_norm": 1.0, "max_steps": 1, "micro_batch_size": 24,
            "trl": {"num_generations": 4, "max_completion_length": 150, "beta": 0.0, "shuffle_dataset": False, "reward_funcs": ["games.length"],
                    "environment_factory": NAMES, **trl}}


def close(a, b, what):
    same = a is b if a is None or b is None else abs(a - b) <= 2e-4 * max(1.0, abs(b))
    assert same, (what, a, b)


@case
def numbers_of_trl(c):
    """Prompts with each environment's tools, completions, rewards and metrics of mixed batches are TRL's, in micro-batches, too."""
    server, trl = scripted(c)
    for fact in FACTS:
        for size in (24, 8, 4):
            del server.speaker.said[:]
            seen = c.folder / "seen.jsonl"
            seen.unlink(missing_ok=True)
            shutil.rmtree(c.folder / "out", ignore_errors=True)
            changes = as_trl(c, fact["data"], **trl, multi_objective_aggregation=fact["aggregation"])
            c.train({**changes, "micro_batch_size": size, "gradient_accumulation_steps": 24 // size}, env={"SCRIPTED_SEEN": str(seen)}).expect(0)
            assert sorted(server.speaker.said) == fact["said"], [s for s in server.speaker.said if s not in fact["said"]][:3]
            ours = [json.loads(line) for line in seen.read_text().splitlines()]
            assert ours == [row["seen"] for row in fact["rows"]], [p for p in zip(ours, fact["rows"]) if p[0] != p[1]["seen"]][:1]
            record = c.metrics()[0]
            for name, value in fact["metrics"].items():
                close(record[name], value, (fact["aggregation"], size, name))


@case
def rewards_and_advantages_of_each_row(c):
    """A group a step: samples.jsonl has all of them."""
    server, trl = scripted(c)
    for number, fact in enumerate(FACTS):
        if fact["aggregation"] != "sum_then_normalize":
            continue
        changes = as_trl(c, fact["data"], **trl)
        c.train({**changes, "learning_rate": 1e-9, "micro_batch_size": 4, "max_steps": 6, "output_dir": f"out{number}"},
                env={"SCRIPTED_SEEN": str(c.folder / "seen.jsonl")}).expect(0)
        samples = [json.loads(line) for line in (c.folder / f"out{number}/samples.jsonl").read_text().splitlines()]
        assert len(samples) == len(fact["rows"]) == 24, len(samples)
        for sample, row in zip(samples, fact["rows"]):
            close(sample["advantage"], row["advantage"], row)
            assert sample["rewards"].keys() == row["rewards"].keys(), (sample, row)
            for name, value in row["rewards"].items():
                close(sample["rewards"][name], value, row)


@case
def facts_are_trl_s(c):
    """The recorded numbers, by TRL itself where it is installed."""
    python = pythons("RLALGO_TRL_PYTHON", "import trl; assert trl.__version__.startswith('1.16')")[0]
    for fact in FACTS:
        (c.folder / "seen.jsonl").unlink(missing_ok=True)
        told = run(c, python, "trl_environments.py", QUICKSTART / "model", rows(c, fact["data"]), fact["aggregation"])
        assert told["said"] == fact["said"] and [row["seen"] for row in told["rows"]] == [row["seen"] for row in fact["rows"]]
        for one, other in zip(told["rows"], fact["rows"]):
            assert one["rewards"].keys() == other["rewards"].keys()
            close(one["advantage"], other["advantage"], other)
        for name, value in fact["metrics"].items():
            close(told["metrics"][name], value, name)


KINDS = """
class Guess:
    def reset(self, answer, **columns):
        assert "environment" not in columns, columns
        self.answer, self.turns = answer, 0
        return " Guess."

    def step(self, text):
        self.turns += 1
        return "No. Again.", 0.25 * (len(text) % 4), self.turns == 2

class Shelf:
    def reset(self, seed, **row):
        assert "prompt" not in row and "environment" not in row, row
        self.row, self.seed = row, seed
        return "Books: " + row["books"]
    def take(self, title: str) -> str:
        '''Takes a book.

        Args:
            title: Which
        '''
        return title
    def get_reward(self):
        return float(len(self.row["books"])) + self.seed % 1000

class Quiet:
    made = 0
    def __init__(self):
        Quiet.made += 1
    def reset(self, prompt, **row):
        pass
    def look(self) -> str:
        '''Looks.'''
        return "dark"

def quiet(prompts, completions, environment, **kwargs):
    return [0.1 * (len(str(c)) % 5) if e == "quiet" else None for e, c in zip(environment, completions)]
"""
MIXED = [row for i in range(6) for row in (
    {"prompt": [{"role": "user", "content": f"{i}?"}], "environment": "guess", "answer": str(i)},
    {"environment": "shelf", "books": "b" * i},
    {"prompt": [{"role": "user", "content": "hm"}], "environment": "quiet"})]


def mixed(c, **changes):
    (c.folder / "kinds.py").write_text(KINDS)
    trl = {"reward_funcs": ["kinds.quiet"], "max_completion_length": 40,
           "environment_factory": {"guess": "kinds.Guess", "shelf": "kinds.Shelf", "quiet": "kinds.Quiet"}, **changes.pop("trl", {})}
    return {"datasets": [{"path": rows(c, MIXED)}], "chat_template_jinja": TEMPLATE, "micro_batch_size": 8, "gradient_accumulation_steps": 3,
            "max_steps": 4, "trl": trl, **changes}


@case
def kinds_of_environments_in_one_run(c):
    """Stepped, with tools, and one whose rows have no prompt; resumed in the middle of a generation, to the byte."""
    run = mixed(c, save_steps=1, save_strategy="steps", trl={"num_iterations": 2})
    c.train({**run, "output_dir": "whole"}).expect(0)
    samples = [json.loads(line) for line in (c.folder / "whole/samples.jsonl").read_text().splitlines()]
    for sample in samples:
        given = {name for name, value in sample["rewards"].items() if value is not None}
        assert len(given) == 1, sample
        assert ("tools\ntake(title)" in sample["prompt"]) == ("Shelf" in given), sample
        assert ("Books: " in sample["prompt"]) == ("Shelf" in given), sample
        assert "turns" not in sample or "Guess" in given, sample
    first = c.metrics("whole")[0]
    assert {"rewards/Guess/mean", "rewards/Shelf/mean", "rewards/quiet/mean", "tools/call_frequency"} <= first.keys(), first
    # Where the environment says what there is to do, the completions of a group have one seed: one task, one reward.
    shelves = {}
    for sample in samples:
        if sample["rewards"]["Shelf"] is not None:
            shelves.setdefault((sample["step"], sample["prompt"]), set()).add(sample["rewards"]["Shelf"])
    assert shelves and all(len(rewards) == 1 for rewards in shelves.values()), shelves
    for step in (1, 2):
        c.train({**run, "output_dir": f"half{step}"}, "--resume-from-checkpoint", f"whole/checkpoint-{step}").expect(0)
        same_files(c.folder / "whole", c.folder / f"half{step}", only=["model.safetensors", "checkpoint-4/optimizer.safetensors"])
    # Another order of the names is another order of rewards; another class another run.
    other = json.loads(json.dumps(run))
    other["trl"]["environment_factory"]["quiet"] = "kinds.Shelf"
    c.train({**other, "output_dir": "other"}, "--resume-from-checkpoint", "whole/checkpoint-1").expect(1, "run.12", "trl.environment_factory")
    (c.folder / "kinds.py").write_text(KINDS + "\n# changed\n")
    c.train({**run, "output_dir": "other"}, "--resume-from-checkpoint", "whole/checkpoint-1").expect(1, "run.12", "code of kinds.")


@case
def a_template_of_the_data_set_s_own(c):
    run = mixed(c)
    own = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<says>{% endif %}"
    guesses = [{**MIXED[0], "answer": "none"} for _ in range(4)]
    run["datasets"] = [{"path": rows(c, guesses)}, {"path": rows(c, guesses, "own.jsonl"), "chat_template_jinja": own}]
    c.train({**run, "max_steps": 2, "micro_batch_size": 12, "gradient_accumulation_steps": 1}).expect(0)
    samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
    frames = {(s["prompt"], turn["environment"]) for s in samples for turn in s.get("turns", []) if "environment" in turn}
    assert frames <= {("user\n0? Guess.\nassistant\n", "\nuser\nNo. Again.\nassistant\n"), ("<user>0? Guess.<says>", "<user>No. Again.<says>")}, frames
    assert len({s["prompt"] for s in samples}) == 2, samples


@case
def a_reward_that_does_not_apply(c):
    """None is no reward, whatever the data call environment_reward."""
    run = mixed(c)
    (c.folder / "kinds.py").write_text(KINDS + "\nclass Never(Quiet):\n    def get_reward(self):\n        return None\n")
    run["datasets"] = [{"path": rows(c, [{**MIXED[2], "environment_reward": 5.0}] * 4)}]
    run["trl"].update(environment_factory={"quiet": "kinds.Never"})
    c.train({**run, "max_steps": 1, "micro_batch_size": 4, "gradient_accumulation_steps": 1}).expect(0)
    samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
    assert samples and all(s["rewards"]["Never"] is None and s["rewards"]["quiet"] is not None for s in samples), samples


@case
def a_server_among_them(c):
    """OpenEnv's sessions are fewer than its episodes: they begin in their order as far as there is room."""
    run = mixed(c)
    lines = [{"environment": ("server", "shelf")[i % 2], "books": "b" * i} for i in range(8)]
    with open_env("--sessions", 3) as (_, url):
        run["datasets"] = [{"path": rows(c, lines)}]
        run["trl"].update(environment_factory={"server": url, "shelf": "kinds.Shelf"}, max_completion_length=60, max_turns=3, reward_funcs=[])
        c.train({**run, "max_steps": 2, "logging_steps": 1, "micro_batch_size": 16, "gradient_accumulation_steps": 1}).expect(0)
        for record in c.metrics():
            assert record["rollout/failed"] == 0 and {"rewards/guess/mean", "rewards/Shelf/mean"} <= record.keys(), record
        samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
        assert all((s["rewards"]["guess"] is None) != (s["rewards"]["Shelf"] is None) for s in samples), samples
        run["trl"]["tools"] = ["calculator"]
        c.train(run).expect(2, "[rlalgo.config.25]", "server")


@case
def asynchronous_and_evaluated(c):
    run = mixed(c, trl={**BESIDE, "replay_buffer_size": 16}, logging_steps=1)
    run["test_datasets"] = [{"path": rows(c, MIXED[:3], "held.jsonl")}]
    c.train({**run, "eval_steps": 2}).expect(0)
    records = c.metrics()
    held = [r for r in records if "eval_rewards/Guess/mean" in r]
    assert held and all({"eval_rewards/Shelf/mean", "eval_rewards/quiet/mean"} <= r.keys() for r in held), records
    assert any(r.get("async/staleness/max", 0) >= 1 for r in records), records
    plain = mixed(c, logging_steps=1)
    c.train({**plain, "output_dir": "plain"}).expect(0)
    plain["trl"].update(async_prefetch=True, prefetch_depth=0)
    c.train({**plain, "output_dir": "depth0"}).expect(0)
    for one, other in zip(c.metrics("plain"), c.metrics("depth0"), strict=True):
        for name in ("reward", "rewards/Guess/mean", "rewards/Shelf/mean", "rewards/quiet/mean", "num_tokens", "loss"):
            if name in one:
                close(other[name], one[name], name)


@case
def rows_that_name_no_environment(c):
    run = mixed(c)

    def error(row, *parts, first=MIXED[0]):
        run["datasets"] = [{"path": rows(c, [first, row] if first else [row])}]
        line = 2 if first else 1
        c.train(run).expect(1, "[rlalgo.environment.3]", "guess, shelf, quiet", f"rows.jsonl:{line}", *parts)
        assert not (c.folder / "out/model.safetensors").exists()
    prompt = MIXED[0]["prompt"]
    error({"prompt": prompt}, "null")
    error({"prompt": prompt, "environment": None}, "null")
    error({"prompt": prompt, "environment": 1}, "environment: 1", first=None)
    error({"prompt": prompt, "environment": ["guess"]}, '["guess"]', first=None)
    error({"prompt": prompt}, 'no column "environment"', first=None)
    error({"prompt": prompt, "environment": "Guess"}, "did you mean guess?")
    error({"prompt": prompt, "environment": "schach"}, '"schach"')
    run["datasets"] = [{"path": rows(c, MIXED)}]
    run["test_datasets"] = [{"path": rows(c, [{"prompt": prompt, "environment": "gues"}], "held.jsonl")}]
    c.train(run).expect(1, "[rlalgo.environment.3]", "held.jsonl:1", "did you mean guess?")
    # One environment, or none, asks for no such column; without an environment a prompt is one's own to write.
    del run["test_datasets"]
    run["trl"]["environment_factory"] = "kinds.Quiet"
    run["datasets"] = [{"path": rows(c, [{"prompt": prompt, "environment": 1}] * 8)}]
    c.train({**run, "max_steps": 1}).expect(0)
    c.config({**run, "trl": {**run["trl"], "environment_factory": None}, "datasets": [{"path": rows(c, [{"environment": "a"}])}]})
    c.run("train", "config.yaml").expect(1, "[rlalgo.data.10]", "the row has no prompt")


@case
def environments_that_cannot_be(c):
    run = mixed(c)

    def error(factory, code, *parts, **trl):
        changes = {**run, "trl": {**run["trl"], "environment_factory": factory, **trl}}
        c.train(changes).expect(code, *parts)
    error({}, 2, "[rlalgo.config.5]", "trl.environment_factory", "column environment")
    error(["kinds.Guess"], 2, "[rlalgo.config.5]", "trl.environment_factory")
    error({"a": 7}, 2, "[rlalgo.config.5]", "trl.environment_factory.a")
    error({"a": None}, 2, "[rlalgo.config.5]", "trl.environment_factory.a")
    error({"guess": "kinds.Guess", "shelf": "kinds.Shelves"}, 1, "[rlalgo.remote.51]", "Shelves", "Guess, Quiet, Shelf")
    error({"guess": "Guess"}, 1, "[rlalgo.remote.51]", "'Guess' names no module")
    error({"guess": "nothere.Guess"}, 1, "[rlalgo.remote.51]", "nothere")
    error({"quiet": "kinds.Quiet"}, 2, "[rlalgo.config.24]", reward_funcs=[])
    error({"guess": "kinds.Guess", "shelf": "kinds.Shelf"}, 2, "[rlalgo.config.25]", "stepped", "guess", tools=["calculator"])
    (c.folder / "kinds.py").write_text(KINDS + "\ndef take(title: str) -> str:\n    '''Takes.\n\n    Args:\n        title: t\n    '''\n")
    error({"shelf": "kinds.Shelf"}, 2, "[rlalgo.environment.2]", "take", "config.yaml:", tools=["kinds.take"])
    c.config({**run, "trl": {**run["trl"]}}, drop=("datasets",))
    c.run("train", "config.yaml").expect(2, "[rlalgo.config.7]", "datasets")
    text = json.dumps({**json.loads((c.folder / "config.yaml").read_text()), "datasets": run["datasets"], "max_steps": 1})
    twice = text.replace('"guess": "kinds.Guess"', '"guess": "kinds.Nobody", "guess": "kinds.Guess"')
    c.config(text=twice, name="twice.yaml")
    c.run("train", "twice.yaml").expect(0, "the key guess is written twice")
    # On the command line: one more name, or another class for one.
    c.config(text=text.replace(', "quiet": "kinds.Quiet"', ""), name="less.yaml")
    c.run("train", "less.yaml").expect(1, "[rlalgo.environment.3]", "quiet")
    c.run("train", "less.yaml", "--trl.environment_factory.quiet", "kinds.Quiet").expect(0)


if __name__ == "__main__":
    main(CASES)
