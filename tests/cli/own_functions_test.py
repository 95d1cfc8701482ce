"""The user's function is the user's: a file of theirs goes before a built-in of the same name."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import ROOT, main  # noqa: E402

CASES = {}
QUESTIONS = [{"question": f"{i}+1=?", "answer": f"x #### {i + 1}"} for i in range(8)]
MATHS = [{"problem": f"{i}+1=?", "solution": f"${i + 1}$", "messages": [{"role": "user", "content": "unused"}]} for i in range(8)]
OWN = """
def prompt_transform(cfg, *args, **kwargs):
    def row(example, tokenizer=None):
        question = example.get("question") or example["problem"]
        return {"prompt": [{"role": "system", "content": "SYSTEM-OF-USER %s" % (tokenizer is None)},
                           {"role": "user", "content": question}], "answer": "CHANGED"}
    return row, {"remove_columns": ["question", "problem"]}
oai_gsm8k_transform = prompt_transform

def accuracy_reward(completions, answer=None, **kwargs):
    assert answer is None or set(answer) == {"CHANGED"}, answer
    return [float(len(c[0]["content"])) for c in completions]
"""


def case(function):
    CASES[function.__name__] = function
    return function


def write(c, name, rows):
    path = c.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def change(path, kind, **trl):
    return {"datasets": [{"path": path, "type": kind}], "max_steps": 1, "trl": {"max_completion_length": 4, **trl}}


def samples(c):
    return [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]


@case
def transforms_and_rewards_of_a_file(c):
    """A rewards.py beside the configuration, with the names of axolotl's quick start, one whose rows have other columns."""
    (c.folder / "rewards.py").write_text(OWN)
    for rows, path in ((QUESTIONS, "gsm.jsonl"), (MATHS, "maths.jsonl")):
        for kind in ("rewards.prompt_transform", "rewards.oai_gsm8k_transform"):
            write(c, path, rows)
            r = c.train(change(path, kind, reward_funcs=["rewards.accuracy_reward"])).expect(0)
            assert "built-in" not in r.err, r.err
            assert all(s["prompt"].startswith("system: SYSTEM-OF-USER") for s in samples(c)), samples(c)[0]
            assert c.metrics()[0]["rewards/accuracy_reward/mean"] > 1, c.metrics()[0]


@case
def built_ins_where_no_file_has_the_name(c):
    """Said in one line each; a file of that name that has other functions only changes nothing."""
    write(c, "gsm.jsonl", QUESTIONS)
    write(c, "maths.jsonl", MATHS)
    both = change("gsm.jsonl", "rewards.oai_gsm8k_transform", reward_funcs=["rewards.gsm8k_accuracy"])
    for text in (None, "def other():\n    pass\n"):
        if text:
            (c.folder / "rewards.py").write_text(text)
        r = c.train(both).expect(0, "type: rewards.oai_gsm8k_transform is the built-in transform: no file rewards.py in",
                                 "the reward rewards.gsm8k_accuracy is the built-in one: no file rewards.py in")
        assert r.err.count("is the built-in") == 2, r.err
    c.train(change("maths.jsonl", "rewards.prompt_transform", reward_funcs=["rewards.accuracy_reward"])).expect(0)
    assert samples(c)[0]["prompt"].endswith("+1=?"), samples(c)[0]
    (c.folder / "rewards.py").write_text("import no_such_module\ndef oai_gsm8k_transform(cfg):\n    pass\n")
    c.train(both).expect(1, "[rlalgo.remote.41]", "no_such_module")


@case
def a_dataset_of_the_cache(c):
    """The seeds' flow: an id of the hub cache with columns problem and solution, transformed by the user's file."""
    (c.folder / "rewards.py").write_text(OWN)
    snapshot = "hub/datasets--AI-MO--NuminaMath-TIR/snapshots/abc"
    write(c, f"{snapshot}/data/train.jsonl", MATHS)
    refs = c.folder / "hub/datasets--AI-MO--NuminaMath-TIR/refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc")
    given = change("AI-MO/NuminaMath-TIR", "rewards.prompt_transform", reward_funcs=["rewards.accuracy_reward"])
    given["datasets"][0]["split"] = "train"
    c.train(given, env={"HF_HUB_CACHE": str(c.folder / "hub")}).expect(0)
    assert samples(c)[0]["prompt"].startswith("system: SYSTEM-OF-USER"), samples(c)[0]


@case
def a_file_in_pythonpath(c):
    write(c, "gsm.jsonl", QUESTIONS)
    (c.folder / "elsewhere").mkdir()
    (c.folder / "elsewhere" / "rewards.py").write_text(OWN)
    r = c.train(change("gsm.jsonl", "rewards.prompt_transform", reward_funcs=["rewards.accuracy_reward"]),
                env={"PYTHONPATH": str(c.folder / "elsewhere")}).expect(0)
    assert "built-in" not in r.err, r.err
    assert samples(c)[0]["prompt"].startswith("system: SYSTEM-OF-USER"), samples(c)[0]


@case
def formats_of_preferences(c):
    """chatml.py with intel, and with default for `type: chatml`."""
    rows = [{"question": f"q{i}", "chosen": f"c{i}", "rejected": f"r{i}"} for i in range(8)]
    write(c, "pairs.jsonl", rows)
    base = {"base_model": str(ROOT / "examples/quickstart/model"), "rl": "dpo", "learning_rate": 1e-3, "max_steps": 1, "output_dir": "out"}
    (c.folder / "chatml.py").write_text(
        "def intel(cfg, **kwargs):\n"
        "    return lambda row: {'prompt': 'OWN ' + row['question'], 'chosen': row['chosen'], 'rejected': row['rejected']}\n"
        "default = intel\n")
    for kind in ("chatml.intel", "chatml"):
        c.config(text=json.dumps({**base, "datasets": [{"path": "pairs.jsonl", "type": kind}]}))
        r = c.run("preprocess", "config.yaml", "--debug").expect(0, "O(79) W(87) N(78)")
        assert "built-in" not in r.err + r.out
    os.remove(c.folder / "chatml.py")
    (c.folder / "chatml.py").write_text("def mine(cfg):\n    pass\n")
    c.config(text=json.dumps({**base, "datasets": [{"path": "pairs.jsonl", "type": "chatml.intel"}]}))
    c.run("preprocess", "config.yaml", "--debug").expect(0, "type: chatml.intel is the built-in transform: no file chatml.py in", "<|im_start|>")


@case
def documents_of_blocks(c):
    """rl: ebft over blocks: token ids that the user's function makes."""
    write(c, "texts.jsonl", [{"text": f"{i}"} for i in range(8)])
    (c.folder / "ebft_pretrain.py").write_text(
        "def transform(cfg, **kwargs):\n"
        "    return lambda row: {'input_ids': [int(row['text']) + 40] * 40, 'labels': [-100] * 8 + [int(row['text']) + 40] * 32}\n")
    given = {"base_model": str(ROOT / "examples/quickstart/model"), "rl": "ebft", "learning_rate": 1e-3, "max_steps": 1, "output_dir": "out",
             "sequence_len": 48, "ebft": {"mode": "strided", "save_rollouts": True},
             "datasets": [{"path": "texts.jsonl", "type": "ebft_pretrain.transform"}]}
    c.config(text=json.dumps(given))
    c.run("train", "config.yaml").expect(0)
    assert c.metrics(), "nothing was logged"


main(CASES)
