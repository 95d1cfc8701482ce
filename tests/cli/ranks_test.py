"""Several ranks as a user sees them: the numbers of one rank, resume, ranks that die, hang or fail, Ctrl-C, what is refused."""
import json
import os
import pathlib
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, same_files, without_times  # noqa: E402

CASES = {}
ONLINE = {"micro_batch_size": 4, "max_steps": 3, "logging_steps": 1, "learning_rate": 1e-4, "adam_epsilon": 1e-4}
PAIRS = {"base_model": BASE["base_model"], "micro_batch_size": 2, "max_steps": 3, "logging_steps": 1, "learning_rate": 1e-4,
         "adam_epsilon": 1e-4, "save_strategy": "no", "datasets": [{"path": "rows.jsonl"}]}


def case(function):
    CASES[function.__name__] = function
    return function


def rows(c, labelled=False, count=22):
    items = []
    for i in range(count):
        prompt, right, wrong = f"{i % 7} + {i % 5} =", f" {i % 7 + i % 5} #{i}", f" {i % 7 + i % 5 + 1} #"
        items.append({"prompt": prompt, "completion": right if i % 3 else wrong, "label": bool(i % 3)} if labelled
                     else {"prompt": prompt, "chosen": right, "rejected": wrong})
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))


def write(c, base, name, **changes):
    merged = json.loads(json.dumps(base))
    for key, value in changes.items():
        merged[key] = {**merged.get(key, {}), **value} if key in ("trl", "ebft") else value
    (c.folder / name).write_text(json.dumps(merged))
    return name


def weights(path):
    """Every float32 of a safetensors file, by tensor."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + length + begin:8 + length + end])
    return out


def close(one, two, what, relative=2e-4, absolute=2e-5):
    assert (one is None) == (two is None), f"{what}: {one} and {two}"
    assert one is None or abs(one - two) <= absolute + relative * abs(one), f"{what}: {one} and {two}"


def same_run(c, base, ranks=2, accumulation=2, **changes):
    """One rank, and several with the same batch: records, samples and weights."""
    one = write(c, base, "one.yaml", output_dir="one", gradient_accumulation_steps=accumulation, **changes)
    many = write(c, base, "many.yaml", output_dir="many", gradient_accumulation_steps=accumulation // ranks, **changes)
    c.run("train", one).expect(0)
    told = c.run("train", many, "--nproc-per-node", ranks).expect(0, "done: step")
    assert "[rank 1]" not in told.out + told.err, told.out + told.err
    first, second = without_times(c.metrics("one")), without_times(c.metrics("many"))
    assert [r["step"] for r in first] == [r["step"] for r in second]
    for a, b in zip(first, second):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            close(a[name], b[name], f"{changes.get('rl')} step {a['step']} {name}")
    a, b = weights(c.folder / "one/model.safetensors"), weights(c.folder / "many/model.safetensors")
    for name, values in a.items():
        apart = max(abs(x - y) for x, y in zip(values, b[name]))
        assert apart < 2e-5, f"{changes.get('rl')} {name}: {apart}"
    if (c.folder / "one/samples.jsonl").exists():
        texts = [[json.loads(line).get("completion") for line in (c.folder / folder / "samples.jsonl").read_text().splitlines()]
                 for folder in ("one", "many")]
        assert texts[0] == texts[1], "other completions"
    names = [sorted(str(p.relative_to(c.folder / folder)) for p in (c.folder / folder).rglob("*") if "runs" not in p.parts)
             for folder in ("one", "many")]
    assert names[0] == names[1], names


@case
def online_recipes(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    two = ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]
    same_run(c, base, rl="grpo", trl={"beta": 0.02, "num_iterations": 2, "scale_rewards": "batch"})
    same_run(c, base, rl="grpo", val_set_size=0.1, eval_steps=2, trl={"loss_type": "dapo", "mask_truncated_completions": True})
    same_run(c, base, ranks=2, accumulation=4, rl="gdpo", trl={"reward_funcs": two, "steps_per_generation": None})
    del base["trl"]["loss_type"]
    same_run(c, base, rl="rloo", trl={"beta": 0.02})


@case
def more_ranks_than_groups(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "micro_batch_size": 2}
    same_run(c, base, ranks=4, accumulation=4, rl="grpo")


@case
def preference_recipes(c):
    rows(c)
    for rl in ("dpo", "orpo"):  # 22 rows: the last step of an epoch has less than a micro-batch for each rank
        same_run(c, {**PAIRS, "max_steps": 6}, rl=rl, val_set_size=0.2, eval_steps=3)
    for rl in ("ipo", "simpo", "cpo"):
        same_run(c, PAIRS, rl=rl)
    same_run(c, PAIRS, rl="dpo", precompute_ref_log_probs=True, dataset_prepared_path="prepared")
    rows(c, labelled=True)
    same_run(c, {**PAIRS, "remove_unused_columns": False}, rl="kto")


@case
def feature_matching(c):
    base = {"base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-4, "adam_epsilon": 1e-4, "max_steps": 2, "logging_steps": 1,
            "save_strategy": "no", "micro_batch_size": 2, "sequence_len": 48}
    same_run(c, {**base, "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
                 "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3,
                          "temperature": 1.0, "ce_coef": 0.1, "save_rollouts": True}})
    items = [{"input": f"{i % 7} + {i % 5} =", "output": f"{i % 7 + i % 5}" + " apples" * (i % 3)} for i in range(16)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    same_run(c, {**base, "micro_batch_size": 4, "datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}],
                 "chat_template": "tokenizer_default", "ebft": {"mode": "structured", "ce_coef": 0.1},
                 "trl": {"num_generations": 4, "max_completion_length": 12}})


@case
def resumed(c):
    base = {**BASE, **ONLINE, "max_steps": 4, "save_steps": 2, "trl": {**BASE["trl"], "num_iterations": 2, "steps_per_generation": 2}}
    base.pop("save_strategy")
    c.run("train", write(c, base, "whole.yaml", output_dir="whole"), "--nproc-per-node", 2).expect(0)
    for folder, ranks, accumulation in (("again", 2, 1), ("alone", 1, 2)):
        name = write(c, base, f"{folder}.yaml", output_dir=folder, gradient_accumulation_steps=accumulation,
                     resume_from_checkpoint="whole/checkpoint-2")
        if ranks == 1:  # what is of one rank is said of one
            name = write(c, json.loads((c.folder / name).read_text()), name, trl={"steps_per_generation": 4})
        c.run("train", name, "--nproc-per-node", ranks).expect(0, "resumed")
    same_files(c.folder / "whole", c.folder / "again", only={"model.safetensors", "optimizer.safetensors", "metrics.jsonl", "samples.jsonl"})
    for a, b in zip(without_times(c.metrics("whole")), without_times(c.metrics("alone"))):
        for key in a:
            close(a[key], b[key], key)


def children(process):
    return [int(p) for p in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def rank_of(process, rank):
    for child in children(process):
        if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return child
    raise AssertionError(f"no rank {rank}")


def until(c, process, step, folder="out"):
    """Waits for the record of a step."""
    path = c.folder / folder / "metrics.jsonl"
    for _ in range(600):
        if path.exists() and path.read_text().count("\n") >= step:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no record came")


def started(c, **changes):
    base = {**BASE, **ONLINE, "max_steps": 100000, "save_steps": 100000, "ddp_timeout": 4, **changes}
    base.pop("save_strategy")
    process = c.start("train", write(c, base, "long.yaml"), "--nproc-per-node", 2)
    until(c, process, 2, base["output_dir"])
    return process, children(process)


def ended(process, pids, limit):
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < limit, f"{time.monotonic() - begin} s"
    for pid in pids:
        assert not pathlib.Path(f"/proc/{pid}").exists(), "a rank was left behind"
    return out + err


@case
def killed_rank(c):
    process, pids = started(c)
    os.kill(rank_of(process, 1), signal.SIGKILL)
    text = ended(process, pids, 12)
    assert process.returncode == 137, process.returncode
    for part in ("distributed.8", "rank 1 failed", "Killed", "rank 0 of 2, step"):
        assert part in text, (part, text)
    assert not [p for p in (c.folder / "out").rglob("*") if ".tmp" in p.name]
    assert json.loads((c.folder / "out/run.json").read_text())["status"] == "failed"


@case
def killed_first_rank(c):
    process, pids = started(c)
    os.kill(rank_of(process, 0), signal.SIGKILL)
    assert "rank 0 was killed: Killed" in ended(process, pids, 12)
    assert process.returncode == 137, process.returncode


@case
def stopped_rank(c):
    process, pids = started(c)
    os.kill(rank_of(process, 1), signal.SIGSTOP)
    text = ended(process, pids, 20)
    assert process.returncode == 1, process.returncode
    assert "distributed.6" in text or "distributed.4" in text, text


@case
def killed_launcher(c):
    process, pids = started(c)
    process.kill()
    process.communicate(timeout=30)
    for _ in range(200):
        if not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError("ranks outlived the process that started them")


@case
def interrupted(c):
    for who, folder in (("launcher", "out"), ("rank 1", "other")):
        process, pids = started(c, output_dir=folder)
        os.kill(process.pid if who == "launcher" else rank_of(process, 1), signal.SIGINT)
        text = ended(process, pids, 30)
        assert process.returncode == 130, (who, process.returncode, text)
        assert "interrupted at step" in text, text
        saved = [p for p in (c.folder / folder).glob("checkpoint-*")]
        assert len(saved) == 1 and (saved[0] / "optimizer.safetensors").exists(), saved


@case
def failing_reward(c):
    (c.folder / "sometimes.py").write_text(
        "import os\n\ndef reward(completions, trainer_state=None, **kwargs):\n"
        "    if os.environ['RANK'] == '1':\n        raise ValueError('no such answer')\n    return [0.0] * len(completions)\n")
    result = c.run("train", write(c, {**BASE, **ONLINE}, "config.yaml", trl={"reward_funcs": ["sometimes.reward"]}), "--nproc-per-node", 2)
    result.expect(1, "rank 1 failed", "no such answer", "step 1")


@case
def not_finite(c):
    rows(c)
    base = {**PAIRS, "learning_rate": 1e30, "max_grad_norm": 0, "warmup_steps": 0, "output_dir": "out"}
    result = c.run("train", write(c, base, "config.yaml", rl="simpo"), "--nproc-per-node", 2)
    result.expect(1, "is not finite", "dataset rows", "step 2")
    assert len(list((c.folder / "out").glob("offending_rows-step-2*.jsonl"))) == 1
    c.no_output()


@case
def environment_of_a_launcher(c):
    """What torchrun, SLURM and MPI set; and ranks that were not given the same."""
    def run(files, **more):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        all_ranks = [c.start("train", file, env={"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                 "MASTER_PORT": str(port), **more}) for r, file in enumerate(files)]
        return [(p.communicate(timeout=60), p.returncode) for p in all_ranks]
    one = write(c, {**BASE, **ONLINE}, "one.yaml", max_steps=1)
    other = write(c, {**BASE, **ONLINE}, "other.yaml", max_steps=1, learning_rate=0.5)
    for (out, err), code in run([one, one]):
        assert code == 0, out + err
    for (out, err), code in run([one, other]):
        assert code == 1 and "config.38" in err and "learning_rate" in err and "rank 1" in err, (code, err)
    c.run("train", one, env={"RANK": "1"}).expect(2, "distributed.7", "WORLD_SIZE")
    c.run("train", one, "--nproc-per-node", 2, env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                            "MASTER_PORT": "29500"}).expect(2, "cli.23")


@case
def refused(c):
    for changes, part in (({"trl": {"async_prefetch": True, "use_data_producer": True}}, "trl.async_prefetch"),
                          ({"trl": {"use_vllm": True, "vllm_mode": "server"}}, "trl.vllm_mode"),
                          ({"trl": {"tools": ["calculator"]}}, "trl.tools")):
        c.run("train", write(c, {**BASE, **ONLINE}, "config.yaml", **changes), "--nproc-per-node", 2).expect(2, "config.37", part)
        assert not (c.folder / "out").exists()
    name = write(c, {**BASE, **ONLINE}, "config.yaml")
    for words in (("--nproc-per-node", "0"), ("--nproc-per-node",), ("--nproc_per_node=two",)):
        c.run("train", name, *words).expect(2, "cli.23")
    c.run("train", write(c, {**BASE, **ONLINE, "ddp_timeout": 0}, "config.yaml")).expect(2, "config.39")
    c.run("train", write(c, {**BASE, **ONLINE, "fsdp_config": {"a": 1}}, "config.yaml"), "--nproc-per-node", 2).expect(2, "distributed.md")


if __name__ == "__main__":
    main(CASES)
