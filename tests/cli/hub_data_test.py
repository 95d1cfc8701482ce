"""Data sets as the Hub has them: Parquet in the cache's layout, cards, folders of save_to_disk, packed texts; without a conversion."""
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, NotRun, ROOT, main, without_times  # noqa: E402

CASES = {}
GOLDEN = ROOT / "tests" / "golden" / "data" / "columnar"
CARD = """---
license: mit
configs:
- config_name: pairs
  data_files:
  - split: train
    path: data/train-*
  default: true
- config_name: other
  data_files: "data/none-*"
---
# Pairs
"""


def case(function):
    CASES[function.__name__] = function
    return function


def needs_arrow(c):
    """Whether this build reads Parquet."""
    if not (pathlib.Path(c.program).parent / "librlalgo_arrow.so").exists():
        raise NotRun("built without Arrow")


def cached(c, repository="team/pairs"):
    """A data set in the layout of the Hub's cache: two shards, links to blobs, a card."""
    folder = c.folder / "hub" / ("datasets--" + repository.replace("/", "--"))
    snapshot = folder / "snapshots" / "c0ffee"
    (snapshot / "data").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("c0ffee")
    (snapshot / "README.md").write_text(CARD)
    for i in range(2):
        shutil.copy(GOLDEN / f"pairs-{i}.parquet", folder / "blobs" / f"sha{i}")
        (snapshot / "data" / f"train-0000{i}-of-00002.parquet").symlink_to(f"../../../blobs/sha{i}")
    return {"HF_HUB_CACHE": str(c.folder / "hub")}


def settings(c, source, output, rl="dpo", **more):
    config = {"base_model": BASE["base_model"], "rl": rl, "datasets": [source], "sequence_len": 64, "micro_batch_size": 2,
              "learning_rate": 1e-3, "lr_scheduler": "constant", "warmup_steps": 0, "max_steps": 3, "logging_steps": 1,
              "save_strategy": "no", "output_dir": output, "float32": True, "chat_template": "chatml", **more}
    return c.config(text=json.dumps(config, indent=1), name=output + ".yaml")


def same_run(c, one, other):
    assert without_times(c.metrics(one)) == without_times(c.metrics(other)), (one, other)
    assert (c.folder / one / "model.safetensors").read_bytes() == (c.folder / other / "model.safetensors").read_bytes()


@case
def preferences_from_the_hub(c):
    """DPO: the same bytes as from JSON lines, from the cache and from a folder, whole and by a split."""
    needs_arrow(c)
    env = cached(c)
    c.run("train", settings(c, {"path": str(GOLDEN / "pairs.jsonl")}, "lines")).expect(0)
    c.run("train", settings(c, {"path": "team/pairs"}, "cache"), env=env).expect(0)
    same_run(c, "lines", "cache")
    c.run("train", settings(c, {"path": str(c.folder / "hub/datasets--team--pairs/snapshots/c0ffee"), "name": "pairs"}, "folder")).expect(0)
    same_run(c, "lines", "folder")
    c.run("train", settings(c, {"path": str(GOLDEN / "pairs.jsonl"), "split": "train[4:20]"}, "lines_part")).expect(0)
    files = [str(GOLDEN / "pairs-0.parquet"), str(GOLDEN / "pairs-1.parquet")]
    c.run("train", settings(c, {"path": "parquet", "data_files": files, "split": "train[4:20]"}, "part")).expect(0)
    same_run(c, "lines_part", "part")
    c.run("train", settings(c, {"path": "team/pairs", "name": "pair"}, "bad"), env=env).expect(1, "data.43", "did you mean pairs?")
    c.run("train", settings(c, {"path": "team/pairs", "name": "other"}, "bad"), env=env).expect(1, "data.1", "data/none-*")
    c.run("train", settings(c, {"path": "team/pairs", "revision": "v2"}, "bad"), env=env).expect(1, "data.1")


@case
def prompts_from_the_hub(c):
    """GRPO: the same completions as from JSON lines."""
    needs_arrow(c)
    env = cached(c)
    trl = {"num_generations": 2, "max_completion_length": 6, "reward_funcs": ["rewards.length"]}
    (c.folder / "rewards.py").write_text(
        "def length(completions, chosen, **kwargs):\n    return [len(x[0]['content']) + len(y[0]['content']) for x, y in zip(completions, chosen)]\n")
    for output, source in [("lines", {"path": str(GOLDEN / "pairs.jsonl")}), ("cache", {"path": "team/pairs", "split": "train"})]:
        c.run("train", settings(c, source, output, rl="grpo", trl=trl, micro_batch_size=4), env=env).expect(0)
    same_run(c, "lines", "cache")


@case
def saved_to_disk(c):
    """A folder that `datasets` saved, with its splits and hidden columns."""
    needs_arrow(c)
    c.run("train", settings(c, {"path": str(GOLDEN / "saved"), "split": "dev"}, "out")).expect(1, "data.7", "test, train")
    c.run("train", settings(c, {"path": str(GOLDEN / "saved")}, "out")).expect(1, "data.10")  # read, and no pairs


@case
def warns_and_refuses(c):
    """What has no form in JSON is named; damaged files are errors with their names."""
    needs_arrow(c)
    (c.folder / "rewards.py").write_text("def size(completions, **kwargs):\n    return [float(len(str(x))) for x in completions]\n")
    trl = {"num_generations": 2, "max_completion_length": 4, "reward_funcs": ["rewards.size"]}
    c.run("train", settings(c, {"path": str(GOLDEN / "no-form.parquet"), "type": {"field_prompt": "q"}}, "noted", rl="grpo", trl=trl)).expect(
        0, "column b is left out: binary", "column wait is left out", "column a has numbers that are not finite")
    for name, error in [("encrypted.parquet", "data.39"), ("utf8-bad.parquet", "data.41"), ("images.parquet", "data.37"),
                        ("no-rows.parquet", "data.5")]:
        c.run("train", settings(c, {"path": str(GOLDEN / name)}, "out")).expect(1, error, name)
    c.no_output()
    c.run("train", settings(c, {"path": str(GOLDEN / "pairs-0.parquet")}, "out"),
          env={"RLALGO_ARROW_PLUGIN": str(c.folder / "none.so")}).expect(1, "data.6", "scripts/setup.sh")
    plugin = c.folder / "librlalgo_arrow.so"
    shutil.copy(pathlib.Path(c.program).parent / "librlalgo_arrow.so", plugin)
    patched = plugin.read_bytes().replace(b"libparquet.so.", b"libparqu3t.so.")
    plugin.write_bytes(patched)
    c.run("train", settings(c, {"path": str(GOLDEN / "pairs-0.parquet")}, "out"),
          env={"RLALGO_ARROW_PLUGIN": str(plugin)}).expect(1, "data.6")


@case
def packed_lines(c):
    """JSON lines packed with zstd and gzip."""
    try:
        subprocess.run(["zstd", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise NotRun("no zstd program") from None
    subprocess.run(["zstd", "-q", str(GOLDEN / "pairs.jsonl"), "-o", str(c.folder / "pairs.jsonl.zst")], check=True)
    c.run("train", settings(c, {"path": str(GOLDEN / "pairs.jsonl")}, "lines")).expect(0)
    c.run("train", settings(c, {"path": "pairs.jsonl.zst"}, "zstd")).expect(0)
    same_run(c, "lines", "zstd")


main(CASES)
