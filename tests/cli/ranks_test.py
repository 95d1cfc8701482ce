"""Several ranks as a user sees them: the numbers of one rank, resume, ranks that die, hang or fail, Ctrl-C, what is refused."""
import array
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, main, same_files, without_times  # noqa: E402
from serve_test import MODEL, Server, remote  # noqa: E402

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
    merged = {"float32": True, **json.loads(json.dumps(base))}  # what is compared has all its bits
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
            out[name] = array.array("f", data[8 + length + begin:8 + length + end])
    return out


def close(one, two, what, relative=2e-4, absolute=2e-5):
    assert (one is None) == (two is None), f"{what}: {one} and {two}"
    assert one is None or abs(one - two) <= absolute + relative * abs(one), f"{what}: {one} and {two}"


def same_run(c, base, ranks=2, accumulation=2, context=1, weights_file="model.safetensors", **changes):
    """One rank, and several with the same batch, in groups of `context`: records, samples and weights."""
    one = write(c, base, "one.yaml", output_dir="one", gradient_accumulation_steps=accumulation, **changes)
    many = write(c, base, "many.yaml", output_dir="many", gradient_accumulation_steps=accumulation // (ranks // context),
                 **changes, **({"context_parallel_size": context} if context > 1 else {}))
    c.run("train", one).expect(0)
    told = c.run("train", many, "--nproc-per-node", ranks).expect(0, "done: step")
    assert "[rank 1]" not in told.out + told.err, told.out + told.err
    first, second = without_times(c.metrics("one")), without_times(c.metrics("many"))
    assert [r["step"] for r in first] == [r["step"] for r in second]
    for a, b in zip(first, second):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            # Where policy and reference are equal, rounding decides which of two answers is ahead.
            if context > 1 and name.endswith("rewards/accuracies") and abs(a[name.replace("accuracies", "margins")]) < 1e-5:
                continue
            close(a[name], b[name], f"{changes.get('rl')} step {a['step']} {name}")
    a, b = weights(c.folder / "one" / weights_file), weights(c.folder / "many" / weights_file)
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


def of_a_server(c, ranks, options=(), **changes):
    """Completions of our own server, and those of the same ranks without it.

    As many ranks on both sides: sums of gradients in another order would, one time in some hundred runs, draw another token."""
    trl = {"reward_funcs": ["soft_overlong_punishment_reward"], "max_completion_length": 30, "temperature": 1.5,
           "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 30}}, **changes.pop("trl", {})}
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "warmup_steps": 0, "learning_rate": 1e-3, **changes}
    c.run("train", write(c, base, "here.yaml", output_dir="here", gradient_accumulation_steps=1, trl=trl), "--nproc-per-node", ranks).expect(0)
    server = Server(c, *options)
    try:
        there = write(c, base, "there.yaml", output_dir="there", gradient_accumulation_steps=1,
                      trl={**trl, **remote(server.port, vllm_importance_sampling_correction=False)})
        told = c.run("train", there, "--nproc-per-node", ranks).expect(0)
        assert server.ask("/weight_info")[1]["weight_version"] == ("v3" if "val_set_size" in changes else "v2")
    finally:
        server.stop()
    assert "[rank 1]" not in told.out + told.err, told.out + told.err
    first, second = without_times(c.metrics("here")), without_times(c.metrics("there"))
    assert all(row["grad_norm"] > 0 for row in first if "loss" in row), first  # something was learnt
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            close(a[name], b[name], name)
    return told.out + told.err


@case
def completions_of_a_server(c):
    of_a_server(c, 2)
    of_a_server(c, 3, val_set_size=0.05, eval_steps=2)
    (c.folder / "elsewhere").mkdir()
    assert "weights go to the server over HTTP" in of_a_server(c, 2, ("--allowed-path", c.folder / "elsewhere"))


@case
def a_server_that_fails(c):
    trl = {**remote(1), "vllm_server_timeout": 2}
    result = c.run("train", write(c, {**BASE, **ONLINE}, "config.yaml", ddp_timeout=4, trl=trl), "--nproc-per-node", 2)
    result.expect(1, "rlalgo.http.", "127.0.0.1:1")
    assert (result.out + result.err).count("error: [rlalgo.http.") == 1, result.err  # rank 0's alone
    assert not [p for p in c.folder.rglob("*") if ".tmp" in p.name]


@case
def a_server_that_is_started_anew(c):
    """Killed in the middle of a run, and started again on its port: the run goes on as with one rank."""
    server = Server(c)
    trl = {**remote(server.port), "vllm_server_timeout": 60}
    base = {**BASE, **ONLINE, "max_steps": 12, "output_dir": "out"}
    process = c.start("train", write(c, base, "config.yaml", gradient_accumulation_steps=1, trl=trl), "--nproc-per-node", 2, once=True)
    until(c, process, 3)
    server.process.kill()
    server.process.communicate()
    server = Server(c, "--port", server.port, model=str(MODEL))
    try:
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, out + err
    finally:
        server.stop()
    assert [record["step"] for record in c.metrics()] == list(range(1, 13))


MEASURED = ("async/queue", "async/producer", "async/generate", "async/reward", "async/forward", "async/training", "sync/")
BESIDE = {"async_prefetch": True, "use_data_producer": True, "prefetch_depth": 2}


@case
def asynchronous(c):
    """Depth 0 is the synchronous run; a recorded schedule is that of one rank; every prompt in its order."""
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "max_steps": 5}
    same_run(c, base, rl="grpo", trl={**BESIDE, "prefetch_depth": 0})
    schedules(c)


def schedules(c, **changes):
    """What two ranks recorded is repeated by one and by two."""
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "max_steps": 5, **changes}
    trl = {**BESIDE, "max_staleness": 2, "async_schedule": "record"}
    many = write(c, base, "recorded.yaml", output_dir="recorded", gradient_accumulation_steps=1, val_set_size=0.05, eval_steps=2, trl=trl)
    c.run("train", many, "--nproc-per-node", 2).expect(0)
    schedule = {**BESIDE, "max_staleness": 2, "async_schedule": "recorded", "async_schedule_file": "recorded/async_schedule.jsonl"}
    for folder, ranks in (("one", 1), ("two", 2)):
        name = write(c, base, f"{folder}.yaml", output_dir=folder, gradient_accumulation_steps=2 // ranks, val_set_size=0.05, eval_steps=2,
                     trl=schedule)
        c.run("train", name, "--nproc-per-node", ranks).expect(0)
    for folder in ("one", "two"):
        for a, b in zip(without_times(c.metrics("recorded")), without_times(c.metrics(folder)), strict=True):
            for name in a:
                if not name.startswith(MEASURED):
                    close(a[name], b[name], f"{folder} {a['step']} {name}")
    same_files(c.folder / "recorded", c.folder / "two", only={"model.safetensors"})


def streamed_run(c, ranks=2, keys=None, **changes):
    """Groups are trained on while the others are made, in turns with the weights: the numbers of one rank, streamed or not. (Of a step
    without advantages one row remains, which is not the same one when all are known.)"""
    trl = {**BESIDE, "prefetch_depth": 0, "streaming_partial_batch": True, **changes.pop("trl", {})}
    base = {**json.loads(json.dumps(BASE)), **ONLINE, **changes}
    whole = {**trl, "streaming_partial_batch": False}
    runs = (("whole", 1, whole, {}), ("one", 1, trl, {}), ("many", ranks, trl, keys or {}))[1 if trl.get("skip_zero_advantage_batches") else 0:]
    first = runs[0][0]
    for folder, count, section, more in runs:
        name = write(c, base, f"{folder}.yaml", output_dir=folder, gradient_accumulation_steps=4 // count, trl=section, **more)
        c.run("train", name, "--nproc-per-node", count).expect(0)
    for folder in [run[0] for run in runs[1:]]:
        for a, b in zip(without_times(c.metrics(first)), without_times(c.metrics(folder)), strict=True):
            for name in a:
                if not name.startswith(MEASURED):
                    close(a[name], b[name], f"{folder} {a['step']} {name}")
        a, b = (weights(c.folder / one / "model.safetensors") for one in (first, folder))
        for name, values in a.items():
            assert max(abs(x - y) for x, y in zip(values, b[name])) < 2e-5, (folder, name)
        texts = [[json.loads(line).get("completion") for line in (c.folder / one / "samples.jsonl").read_text().splitlines()]
                 for one in (first, folder)]
        assert texts[0] == texts[1], "other completions"


@case
def streamed(c):
    streamed_run(c, trl={"loss_type": "dapo", "beta": 0.02})
    streamed_run(c, ranks=4, trl={"loss_type": "grpo", "num_iterations": 2, "streaming_min_groups": 2})
    streamed_run(c, trl={"skip_zero_advantage_batches": True})
    server = Server(c)  # asynchronously, and asked by rank 0
    try:
        base = {**BASE, **ONLINE, "max_steps": 6, "output_dir": "asked"}
        trl = {**BESIDE, **remote(server.port), "streaming_partial_batch": True, "max_staleness": 2}
        c.run("train", write(c, base, "asked.yaml", gradient_accumulation_steps=2, trl=trl), "--nproc-per-node", 2).expect(0)
        assert [line["step"] for line in c.metrics("asked")] == list(range(1, 7))
    finally:
        server.stop()


@case
def asynchronous_with_a_server(c):
    server = Server(c)
    try:
        base = {**BASE, **ONLINE, "max_steps": 6, "save_steps": 3, "output_dir": "out"}
        base.pop("save_strategy")
        trl = {**BESIDE, **remote(server.port)}
        c.run("train", write(c, base, "config.yaml", gradient_accumulation_steps=1, trl=trl), "--nproc-per-node", 2).expect(0)
        lines = c.metrics()
        assert [line["step"] for line in lines] == list(range(1, 7))
        assert max(line["async/staleness/max"] for line in lines) >= 1, "nothing was generated ahead"
        name = write(c, base, "again.yaml", gradient_accumulation_steps=1, trl=trl, max_steps=8, output_dir="out",
                     resume_from_checkpoint="out/checkpoint-3")
        c.run("train", name, "--nproc-per-node", 2).expect(0, "resumed")
        assert [line["step"] for line in c.metrics()] == list(range(1, 9))
    finally:
        server.stop()


@case
def asynchronous_interrupted_and_resumed(c):
    (c.folder / "rare.py").write_text("def rare(prompts, completions, completion_ids, **kwargs):\n"
                                      "    return [1.0 if sum(ids) % 5 == 0 else 0.0 for ids in completion_ids]\n")
    trl = {**BASE["trl"], **BESIDE, "replay_buffer_size": 16, "reroll_start_fraction": 0.0001, "reward_funcs": ["rare.rare"]}
    for number, who in enumerate((0, 1)):
        process, pids = started(c, output_dir=f"out{number}", trl=trl)
        os.kill(rank_of(process, who), signal.SIGINT)
        text = ended(process, pids, 30)
        assert process.returncode == 130, (who, process.returncode, text)
        assert "interrupted" in text, text
        saved = list((c.folder / f"out{number}").glob("checkpoint-*"))
        assert len(saved) == 1, saved
        step = int(saved[0].name.split("-")[1])
        state = json.loads((saved[0] / "rlalgo_state.json").read_text())
        assert state["owner"]["sampler"]["next_step"] == step, step
        base = {**BASE, **ONLINE, "ddp_timeout": 4, "output_dir": f"out{number}", "max_steps": step + 3, "save_steps": 100000, "trl": trl,
                "auto_resume_from_checkpoints": True}
        base.pop("save_strategy")
        c.run("train", write(c, base, "again.yaml"), "--nproc-per-node", 2).expect(0, "resumed")
        assert [record["step"] for record in c.metrics(f"out{number}")] == list(range(1, step + 4))


@case
def asynchronous_with_a_reward_that_fails(c):
    (c.folder / "late.py").write_text("import os\ncalls = 0\n\ndef fails(prompts, completions, **kwargs):\n    global calls\n    calls += 1\n"
                                      "    if calls == 4 and os.environ['RANK'] == '1':\n        raise ValueError('burnt')\n"
                                      "    return [0.0] * len(completions)\n")
    base = {**BASE, **ONLINE, "max_steps": 100}
    result = c.run("train", write(c, base, "config.yaml", trl={**BESIDE, "reward_funcs": ["late.fails"]}), "--nproc-per-node", 2)
    result.expect(1, "rank 1 failed", "burnt", "the asynchronous generation has failed")


@case
def environments(c):
    (c.folder / "guess.py").write_text(
        "class Guess:\n"
        "    def reset(self, answer, **columns):\n        self.turns = 0\n        return 'Guess. ' + answer[-1:]\n\n"
        "    def step(self, text):\n        self.turns += 1\n        return 'No. Again.', 0.1 * (len(text) % 3), self.turns == 3\n")
    base = {**json.loads(json.dumps(BASE)), **ONLINE}
    (c.folder / "look.py").write_text(
        "class Look:\n    def reset(self, answer, **columns):\n        return 'Look. '\n\n"
        "    def look(self) -> str:\n        '''Looks.'''\n        return 'a wall'\n\n"
        "    def get_reward(self):\n        return 1.0\n")
    named = [{**json.loads(line), "environment": ("guess", "look")[number % 2]}
             for number, line in enumerate((QUICKSTART / "data/train.jsonl").read_text().splitlines())]
    (c.folder / "named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    several = json.loads(json.dumps(base))
    several["datasets"] = [{**base["datasets"][0], "path": "named.jsonl"}]
    same_run(c, several, rl="grpo", trl={"environment_factory": {"guess": "guess.Guess", "look": "look.Look"}, "max_completion_length": 40})
    assert {"rewards/Guess/mean", "rewards/Look/mean"} <= c.metrics("one")[0].keys()
    same_run(c, base, rl="grpo", trl={"environment_factory": "guess.Guess", "max_completion_length": 40})
    server = Server(c)
    try:
        base["output_dir"] = "asked"
        c.run("train", write(c, base, "asked.yaml", gradient_accumulation_steps=1,
                             trl={"environment_factory": "guess.Guess", "max_completion_length": 40,
                                  **remote(server.port, vllm_importance_sampling_correction=False)}), "--nproc-per-node", 2).expect(0)
        for a, b in zip(without_times(c.metrics("one")), without_times(c.metrics("asked")), strict=True):
            for name in a:
                close(a[name], b[name], name)
    finally:
        server.stop()


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
    process, pids = started(c, ddp_timeout=8)
    os.kill(rank_of(process, 1), signal.SIGSTOP)
    text = ended(process, pids, 15)  # the launcher does not wait for what cannot end by itself
    assert process.returncode == 1, process.returncode
    assert "distributed.6" in text or "distributed.4" in text, text


@case
def killed_launcher(c):
    process, pids = started(c)
    process.kill()
    process.communicate(timeout=30)
    for _ in range(200):
        if not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            break
        time.sleep(0.1)
    else:
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
def restarted(c):
    """A killed rank: all ranks go on from the last checkpoint, with the numbers of a run that nobody disturbed."""
    base = {**BASE, **ONLINE, "max_steps": 30, "save_steps": 3, "ddp_timeout": 6}
    base.pop("save_strategy")
    c.run("train", write(c, base, "whole.yaml", output_dir="whole"), "--nproc-per-node", 2).expect(0)
    process = c.start("train", write(c, base, "again.yaml", output_dir="again"), "--nproc-per-node", 2, "--max-restarts", 2)
    until(c, process, 7, "again")
    os.kill(rank_of(process, 1), signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    for part in ("rank 1 was killed by signal 9", "again/checkpoint-", "(restart 1 of 2)", "resumed"):
        assert part in out + err, (part, out + err)
    assert "(restart 2 of 2)" not in err
    same_files(c.folder / "whole", c.folder / "again", only={"model.safetensors", "optimizer.safetensors", "metrics.jsonl"})


@case
def restarts_are_bounded(c):
    (c.folder / "always.py").write_text("import os\ncalls = 0\n\ndef always(completions, **kwargs):\n    global calls\n    calls += 1\n"
                                        "    if calls > 2 and os.environ['RANK'] == '1':\n        raise ValueError('no answer')\n"
                                        "    return [0.0] * len(completions)\n")
    (c.folder / "out/checkpoint-9").mkdir(parents=True)  # another run's
    (c.folder / "out/checkpoint-9/rlalgo_state.json").write_text("{}")
    os.utime(c.folder / "out/checkpoint-9/rlalgo_state.json", (1, 1))
    name = write(c, {**BASE, **ONLINE, "max_steps": 9}, "config.yaml", trl={"reward_funcs": ["always.always"]})
    told = c.run("train", name, "--nproc-per-node", 2, "--max-restarts=2").expect(1, "from the beginning (restart 2 of 2)", "no answer")
    assert told.err.count("no answer") >= 3
    (c.folder / "first.py").write_text("import os\n\ndef first(completions, **kwargs):\n    raise ValueError('at once')\n")
    for changes, code in (({"trl": {"reward_funcs": ["none.none"]}}, (1, 2)), ({"base_model": "nowhere"}, (1, 2))):
        told = c.run("train", write(c, {**BASE, **ONLINE}, "wrong.yaml", **changes), "--nproc-per-node", 2, "--max-restarts", 3)
        assert told.code in code and "restart" not in told.err, (told.code, told.err)
        assert told.err.count("error: ") == 1, told.err  # all ranks raise it, one says it


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
                                                 "MASTER_PORT": str(port), **more}, once=True) for r, file in enumerate(files)]
        return [(p.communicate(timeout=60), p.returncode) for p in all_ranks]
    one = write(c, {**BASE, **ONLINE}, "one.yaml", max_steps=1)
    other = write(c, {**BASE, **ONLINE}, "other.yaml", max_steps=1, learning_rate=0.5)
    for (out, err), code in run([one, one]):
        assert code == 0, out + err
    refused = run([one, other])
    assert [code for _, code in refused] == [1, 1], refused
    err = "".join(text for (_, text), _ in refused)  # both raise it, one says it
    assert err.count("config.38") == 1 and "learning_rate" in err and "rank 1" in err, refused
    c.run("train", one, env={"RANK": "1"}).expect(2, "distributed.7", "WORLD_SIZE")
    c.run("train", one, "--nproc-per-node", 2, env={"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                                            "MASTER_PORT": "29500"}).expect(2, "cli.23")


@case
def other_rows_on_one_rank(c):
    """The same path, another file: told before a step."""
    rows(c)
    port = 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = write(c, PAIRS, "config.yaml", rl="dpo", output_dir=str(c.folder / "out"), gradient_accumulation_steps=1)
    there = c.folder / "there"
    there.mkdir()
    (there / name).write_text((c.folder / name).read_text())
    (there / "rows.jsonl").write_text("".join((c.folder / "rows.jsonl").read_text().splitlines(True)[:9]))
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [subprocess.Popen([c.program, "train", name], cwd=folder, env={**os.environ, **place, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for rank, folder in enumerate((c.folder, there))]
    told = "".join(process.communicate(timeout=60)[0] for process in processes)
    assert [process.returncode for process in processes] == [1, 1], told
    assert "config.38" in told and "rows of datasets" in told and "on rank 1" in told, told
    assert not (c.folder / "out/metrics.jsonl").exists(), "a step was taken"


@case
def forms_of_axolotl(c):
    """--num-processes, --launcher, and what stands behind -- for a launcher."""
    rows(c)
    forms = (("--nproc-per-node", 2), ("--num-processes", 2), ("--num_processes=2", "--launcher", "accelerate"), ("--launcher=torchrun", "--", "--nproc_per_node=2", "--rdzv_backend", "c10d"))
    for i, words in enumerate(forms):
        result = c.run("train", write(c, {**PAIRS, "rl": "dpo", "max_steps": 1, "output_dir": f"out{i}"}, "config.yaml"), *words).expect(0, "done: step")
        if "--launcher" in str(words):
            assert "has no effect: this program starts its ranks itself" in result.err, result.err
        same_files(c.folder / "out0", c.folder / f"out{i}", only=["model.safetensors"])
    assert "no effect, as there is none: --rdzv_backend c10d" in result.err, result.err
    name = write(c, {**PAIRS, "rl": "dpo", "max_steps": 1, "output_dir": "one"}, "config.yaml")
    c.run("train", name, "--launcher", "python").expect(0)
    c.run("train", name, "--launcher", "mpi").expect(2, "[rlalgo.cli.7]", "accelerate, torchrun or python")
    c.run("train", name, "--num-processes", 0).expect(2, "cli.23", "--num-processes")
    c.run("train", name, "--num-processes", 2, "--nproc-per-node", 3).expect(2, "cli.23", "2", "3")


@case
def refused(c):
    name = write(c, {**BASE, **ONLINE}, "config.yaml")
    c.run("train", name, "--max-restarts", 1).expect(2, "cli.23", "--nproc-per-node")
    for word in ("-1", "often"):
        c.run("train", name, "--nproc-per-node", 2, "--max-restarts", word).expect(2, "cli.23", "--max-restarts")
    for words in (("--nproc-per-node", "0"), ("--nproc-per-node",), ("--nproc_per_node=two",)):
        c.run("train", name, *words).expect(2, "cli.23")
    c.run("train", write(c, {**BASE, **ONLINE, "ddp_timeout": 0}, "config.yaml")).expect(2, "config.39")
    c.run("train", write(c, {**BASE, **ONLINE, "tensor_parallel_size": 2}, "config.yaml"), "--nproc-per-node", 2).expect(2, "distributed.md")


if __name__ == "__main__":
    main(CASES)
