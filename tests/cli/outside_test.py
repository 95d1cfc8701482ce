"""What a run reads of the world around it, and what it says of the tokenizer: a run that goes on another day, elsewhere."""
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, main, same_files  # noqa: E402

CASES = {}
DATED = ("{% for m in messages %}<|im_start|>{{ m.role }} {{ strftime_now('%Y-%m-%d %H') }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
MONDAY = {"RLALGO_START_TIME": "1000000000", "TZ": "UTC", "LC_TIME": "C"}
LATER = {"RLALGO_START_TIME": "1100000000", "TZ": "Asia/Tokyo", "LC_TIME": "POSIX"}


def case(function):
    CASES[function.__name__] = function
    return function


def pairs(c, **more):
    rows = [{"prompt": [{"role": "user", "content": f"{i} + 1 ="}], "chosen": [{"role": "assistant", "content": f"{i + 1}"}],
             "rejected": [{"role": "assistant", "content": "no"}]} for i in range(12)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"base_model": BASE["base_model"], "rl": "dpo", "datasets": [{"path": "rows.jsonl"}], "sequence_len": 128,
              "chat_template": "jinja", "chat_template_jinja": DATED, "micro_batch_size": 2, "learning_rate": 1e-3,
              "lr_scheduler": "constant", "warmup_steps": 0, "max_steps": 3, "logging_steps": 1, "save_steps": 2, "output_dir": "out", **more}
    return c.config(text=json.dumps(config, indent=1), name=more.get("output_dir", "out") + ".yaml")


def outside(folder):
    return json.loads((folder / "run.json").read_text())["settings"]["outside"]


@case
def a_template_that_prints_the_date(c):
    """The next day, in another zone: prompts, rewards and evaluations are those of the day on which the run began."""
    (c.folder / "mine.py").write_text("def length(completions, **_): return [float(len(str(c)) % 5) for c in completions]\n")
    run = {"trl": {"reward_funcs": ["mine.length"]}, "chat_template": "jinja", "chat_template_jinja": DATED, "max_steps": 3, "save_strategy": "steps", "save_steps": 2, "val_set_size": 0.01, "eval_steps": 2}
    c.train({**run, "output_dir": "whole"}, env=MONDAY).expect(0)
    assert outside(c.folder / "whole")["time"] == 1000000000
    c.train({**run, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-2", env=LATER).expect(0)
    same_files(c.folder / "whole", c.folder / "half", only=["model.safetensors"])
    assert outside(c.folder / "half") == outside(c.folder / "whole"), "another time"
    told = c.run("evaluate", c.config({**run, "output_dir": "whole"}), "--checkpoint", "whole/checkpoint-2", env=LATER).expect(0)
    assert "another setting" not in told.err + told.out, told.err + told.out
    c.train({**run, "output_dir": "fresh"}, env=LATER).expect(0)
    weights = [(c.folder / name / "model.safetensors").read_bytes() for name in ("whole", "fresh")]
    assert weights[0] != weights[1], "the same weights"  # the date is in the prompts


@case
def prepared_on_one_day_and_trained_on_another(c):
    """Rows keep the day on which they were prepared, and so does the run that reads them; one that goes on keeps its own."""
    c.run("preprocess", pairs(c, dataset_prepared_path="kept", output_dir="a"), env=MONDAY).expect(0)
    c.run("train", pairs(c, dataset_prepared_path="kept", output_dir="a"), env=LATER).expect(0, "read from")
    assert outside(c.folder / "a")["time"] == 1000000000
    c.run("train", pairs(c, output_dir="b"), env=MONDAY).expect(0)
    c.run("train", pairs(c, output_dir="later"), env=LATER).expect(0)
    assert (c.folder / "later/model.safetensors").read_bytes() != (c.folder / "b/model.safetensors").read_bytes()
    same_files(c.folder / "a", c.folder / "b", only=["model.safetensors"])
    shutil.rmtree(c.folder / "kept")
    c.run("preprocess", pairs(c, dataset_prepared_path="kept", output_dir="a"), env=LATER).expect(0)
    resumed = pairs(c, dataset_prepared_path="kept", output_dir="half", resume_from_checkpoint="b/checkpoint-2")
    c.run("train", resumed, env=LATER).expect(0)
    same_files(c.folder / "b", c.folder / "half", only=["model.safetensors"])


@case
def python_functions_read_the_same_day(c):
    """A transform and an environment that tell date, host and the order of a set."""
    (c.folder / "mine.py").write_text("""
import datetime, socket, os, time
def transform(cfg, **kwargs):
    def row(example):
        text = f"{datetime.date.today()} {time.strftime('%H')} {socket.gethostname()} {os.environ['TZ']} " + "".join(set("abcdefgh"))
        return {"prompt": [{"role": "user", "content": text}]}
    return row
class World:
    def reset(self, **columns):
        self.told = f"{datetime.datetime.now():%Y-%m-%d %H}"
        return self.told
    def look(self) -> str:
        '''Looks.'''
        return "x"
    def get_reward(self):
        return float(datetime.date.today().year) if self.told == "2001-09-09 01" else 0.0
""")
    run = {"datasets": [{**BASE["datasets"][0], "type": "mine.transform"}], "max_steps": 3, "save_strategy": "steps", "save_steps": 2,
           "trl": {"reward_funcs": [], "environment_factory": "mine.World"}}
    c.train({**run, "output_dir": "whole"}, env={**MONDAY, "RLALGO_START_HOST": "first"}).expect(0)
    text = (c.folder / "whole/samples.jsonl").read_text()
    assert "2001-09-09 01 first UTC" in text and "2001.0" in text, text[:600]
    c.train({**run, "output_dir": "half"}, "--resume-from-checkpoint", "whole/checkpoint-2", env=LATER).expect(0)
    same_files(c.folder / "whole", c.folder / "half", only=["model.safetensors"])


@case
def tokens_that_the_file_changes(c):
    """special_tokens: another end, saved, read again; a token that nobody has is refused by name."""
    config = pairs(c, chat_template="chatml", chat_template_jinja=None, special_tokens={"eos_token": "<|endoftext|>", "pad_token": "<|im_end|>"})
    c.run("train", config).expect(0)
    saved = json.loads((c.folder / "out/tokenizer_config.json").read_text())
    assert saved["eos_token"] == "<|endoftext|>" and saved["pad_token"] == "<|im_end|>", saved
    ends = json.loads((c.folder / "out/generation_config.json").read_text())["eos_token_id"]
    ids = json.loads(c.run("tokenize", "--model", "out", stdin='{"text": "<|endoftext|><|im_end|>"}\n').expect(0).out)["ids"]
    assert ends == ids, (ends, ids)
    c.run("train", pairs(c, special_tokens={"pad_token": "<nobody has it>"}, output_dir="e")).expect(0, "<nobody has it>", "left out")
    c.run("train", pairs(c, special_tokens={"eos_token": "<nobody has it>"}, output_dir="b")).expect(2, "config.47", "<nobody has it>", "b.yaml:")
    c.run("train", pairs(c, added_tokens_overrides={"1": "<x>"}, output_dir="d")).expect(1, "text.11", "added_tokens_overrides")


@case
def an_environment_that_owns_the_data(c):
    """No datasets: reset says what there is to do."""
    (c.folder / "mine.py").write_text("""
class World:
    def reset(self, seed, **columns):
        self.n = seed % 7
        return f"Say {self.n}."
    def look(self) -> str:
        '''Looks.'''
        return "x"
    def get_reward(self):
        return float(self.n)
""")
    run = {"trl": {"reward_funcs": [], "environment_factory": "mine.World"}}
    c.run("train", c.config(run, drop=("datasets",))).expect(0)
    alike = [record["frac_reward_zero_std"] for record in c.metrics() if "frac_reward_zero_std" in record]
    assert alike and all(share == 1 for share in alike), alike  # one task for the completions of a group
    c.run("train", c.config(run, drop=("datasets", "max_steps"))).expect(2, "config.7", "max_steps")
    several = {"trl": {"reward_funcs": [], "environment_factory": {"a": "mine.World", "b": "mine.World"}}}
    c.run("train", c.config(several, drop=("datasets",))).expect(2, "config.7", "datasets")  # rows choose


if __name__ == "__main__":
    main(CASES)
