"""Asynchronous generation as a user sees it: records, depth 0, resume, Ctrl-C, what is refused."""
import json
import pathlib
import random
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, QUICKSTART, ROOT, is_measured, main, without_times  # noqa: E402
from serve_test import MODEL, Server, remote  # noqa: E402

CASES = {}
BESIDE = {"async_prefetch": True, "use_data_producer": True, "prefetch_depth": 2}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def records(c):
    c.train({"max_steps": 5, "logging_steps": 1, "trl": {**BESIDE, "max_staleness": 2}}).expect(0)
    lines = c.metrics()
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    for line in lines:
        assert 0 <= line["async/staleness/max"] <= 2, line
        for name in ("async/queue_depth", "async/queue_wait_s", "async/producer_idle_s", "async/generate_s", "async/reward_s",
                     "async/dropped", "async/forward_s", "async/train_seq_len", "async/training_tok/s", "reward", "time/wait", "sampling/importance_sampling_ratio/mean"):
            assert isinstance(line[name], (int, float)), name
        assert "time/generate" not in line
    assert lines[0]["sampling/importance_sampling_ratio/min"] == lines[0]["sampling/importance_sampling_ratio/max"] == 1
    assert max(line["async/staleness/max"] for line in lines) >= 1, "nothing was generated ahead"


@case
def depth_0_is_the_synchronous_run(c):
    c.train({"max_steps": 3, "output_dir": "plain"}).expect(0)
    c.train({"max_steps": 3, "output_dir": "zero", "trl": {**BESIDE, "prefetch_depth": 0}}).expect(0)
    c.train({"max_steps": 3, "output_dir": "turns", "trl": {"use_data_producer": True}}).expect(0)
    for other in ("zero", "turns"):
        assert (c.folder / "plain/model.safetensors").read_bytes() == (c.folder / other / "model.safetensors").read_bytes()
        assert without_times(c.metrics("plain")) == without_times(c.metrics(other))


@case
def every_online_recipe(c):
    for rl, trl in (("gdpo", {"reward_funcs": ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]}), ("rloo", {"beta": 0.02}),
                    ("grpo", {"beta": 0.02, "num_iterations": 2, "steps_per_generation": 2}),
                    ("grpo", {"vllm_importance_sampling_mode": "sequence_mask", "off_policy_mask_threshold": 0.5})):
        out = f"out-{rl}-{len(str(trl))}"
        name = c.config({"rl": rl, "max_steps": 4, "logging_steps": 1, "output_dir": out, "trl": {**BESIDE, **trl}})
        config = json.loads((c.folder / name).read_text())
        if rl == "rloo":
            del config["trl"]["loss_type"]
        (c.folder / name).write_text(json.dumps(config))
        c.run("train", name).expect(0)
        assert len(c.metrics(out)) == 4


@case
def evaluation_and_adapter(c):
    c.train({"max_steps": 4, "logging_steps": 1, "val_set_size": 0.05, "eval_steps": 2, "adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True,
             "trl": {**BESIDE, "vllm_sync_interval": 2}}).expect(0)
    lines = c.metrics()
    assert any("eval_reward" in line for line in lines), lines


@case
def resume_after_an_interruption(c):
    long = {"max_steps": 400, "logging_steps": 1, "save_strategy": "steps", "save_steps": 1, "trl": BESIDE}
    process = c.start("train", c.config(long), once=True)
    deadline = time.monotonic() + 60
    while not (c.folder / "out/checkpoint-3").exists():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (process.returncode, err)
    assert time.monotonic() - begin < 10, "it took too long to stop"
    newest = max(int(path.name.split("-")[1]) for path in (c.folder / "out").glob("checkpoint-*"))
    state = json.loads((c.folder / f"out/checkpoint-{newest}/rlalgo_state.json").read_text())
    assert state["owner"]["sampler"]["next_step"] == newest
    c.train({**long, "max_steps": newest + 3, "auto_resume_from_checkpoints": True}).expect(0)
    assert [line["step"] for line in c.metrics()] == list(range(1, newest + 4))


def killed(c, name, newest, draw):
    """Kills of a run, six at most, each after it has written a checkpoint; fewer where it came to its end before."""
    for kills in range(6):
        process = c.start("train", name, once=True)
        known, deadline = newest(), time.monotonic() + 30
        while process.poll() is None and newest() <= known and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.1)
        ended = process.poll() is not None
        process.kill()
        process.communicate()
        if ended:
            return kills
    return 6


@case
def killed_runs_train_on_every_prompt_once(c):
    """Structured feature matching records what every step trained on; prompts follow from the seed alone."""
    rows = [{"input": f"{i % 7} + {i % 5} = ({i})", "output": str(i % 7 + i % 5)} for i in range(40)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(out, trl):
        (c.folder / f"{out}.yaml").write_text(json.dumps({
            "base_model": BASE["base_model"], "rl": "ebft", "learning_rate": 1e-3, "max_steps": 16, "output_dir": out, "save_steps": 1,
            "logging_steps": 1, "auto_resume_from_checkpoints": True, "chat_template": "tokenizer_default", "micro_batch_size": 4,
            "gradient_accumulation_steps": 2, "datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}],
            "ebft": {"mode": "structured", "embed_method": "completion_mean", "save_rollouts": True},
            "trl": {"num_generations": 4, "max_completion_length": 12, **trl}}))
        return f"{out}.yaml"

    def prompts(out):
        lines = [json.loads(line) for line in (c.folder / out / "ebft_rollouts.jsonl").read_text().splitlines()]
        return [(line["step"], line["prompt_ids"]) for line in lines]

    def newest(out):
        return max((int(path.name.split("-")[1]) for path in (c.folder / out).glob("checkpoint-*[0-9]")), default=0)

    c.run("train", config("whole", {})).expect(0)
    expected = prompts("whole")
    assert len(expected) == 32
    draw = random.Random(5)
    for out, trl in (("depth1", {"async_prefetch": True}), ("depth3", {"async_prefetch": True, "prefetch_depth": 3, "vllm_sync_interval": 2})):
        name, kills = config(out, trl), 0
        for _ in range(5):  # a busy machine may let a run get to its end between two kills: then it is begun anew
            kills = killed(c, name, lambda out=out: newest(out), draw)
            if kills > 2:
                break
            shutil.rmtree(c.folder / out)
        assert kills > 2, "the run was over before it could be killed"
        c.run("train", name).expect(0)
        assert prompts(out) == expected, f"{out}: other prompts than without kills"


@case
def replay_and_reroll(c):
    (c.folder / "rare.py").write_text("def rare(prompts, completions, completion_ids, **kwargs):\n"
                                      "    return [1.0 if sum(ids) % 5 == 0 else 0.0 for ids in completion_ids]\n")
    again = {"replay_buffer_size": 16, "reroll_start_fraction": 0.2, "reward_funcs": ["rare.rare"]}
    anew = {"use_data_producer": True, "replay_recompute_logps": True}
    for out, trl in (("beside", BESIDE), ("turns", {"use_data_producer": True}), ("anew", anew)):
        c.train({"max_steps": 10, "logging_steps": 1, "output_dir": out, "trl": {**trl, **again}}).expect(0)
        lines = c.metrics(out)
        assert sum(line["replay_buffer_replacements"] for line in lines) > 0, lines
        assert lines[-1]["replay_buffer_size"] > 0 and lines[-1]["reroll_buffer_size"] >= 0
        assert all(line["reroll_injected"] == 0 for line in lines[:2])
        assert sum(line["reroll_buffered"] for line in lines) > 0
    assert "async/staleness/mean" not in c.metrics("turns")[0]
    ratio = "sampling/importance_sampling_ratio/"
    assert ratio + "mean" not in c.metrics("turns")[0]
    # Old log-probs that are computed anew: the clipped ratio begins at 1, and a correction is to the weights that drew the row.
    assert all(line["clip_ratio/region_mean"] == 0 for line in c.metrics("anew"))
    first, last = c.metrics("anew")[0], [line for line in c.metrics("anew") if line["replay_buffer_replacements"] > 0][-1]
    assert first[ratio + "raw_min"] == first[ratio + "raw_max"] == 1, first
    assert last[ratio + "raw_min"] < 1 < last[ratio + "raw_max"], last


@case
def environment_and_replay(c):
    """Episodes are stored and trained on again with all their turns, asynchronously and in turns; a resume goes on with them."""
    shutil.copy(ROOT / "examples/environments/games.py", c.folder)
    trl = {"environment_factory": "games.SecondChance", "max_completion_length": 48, "replay_buffer_size": 16}
    same = {"max_steps": 8, "logging_steps": 1, "save_strategy": "steps", "save_steps": 4, "micro_batch_size": 16}
    for out, more in (("beside", BESIDE), ("turns", {"use_data_producer": True})):
        c.train({**same, "output_dir": out, "trl": {**trl, **more}}).expect(0)
        lines = c.metrics(out)
        assert sum(line["replay_buffer_replacements"] for line in lines) > 0, lines
        assert all(1 <= line["environment/turns"] <= 2 for line in lines) and max(line["environment/turns"] for line in lines) > 1
    c.train({**same, "output_dir": "resumed", "resume_from_checkpoint": "turns/checkpoint-4", "trl": {**trl, "use_data_producer": True}}).expect(0)
    assert (c.folder / "resumed/model.safetensors").read_bytes() == (c.folder / "turns/model.safetensors").read_bytes()
    assert without_times(c.metrics("resumed")) == without_times(c.metrics("turns"))


@case
def refused(c):
    for changes, code, parts in (
            ({"trl": {**BESIDE, "prefetch_depth": -1}}, 2, ["[rlalgo.config.6]", "prefetch_depth"]),
            ({"trl": {**BESIDE, "max_staleness": 1}}, 2, ["[rlalgo.config.8]", "max_staleness", "2 or more"]),
            ({"trl": {**BESIDE, "streaming_partial_batch": True, "scale_rewards": "batch"}}, 2, ["[rlalgo.config.8]", "streaming_partial_batch"]),
            ({"rl": "gdpo", "trl": {**BESIDE, "streaming_partial_batch": True}}, 2, ["[rlalgo.config.8]", "rl: gdpo"]),
            ({"trl": {**BESIDE, "replay_buffer_size": -8}}, 2, ["[rlalgo.config.6]", "replay_buffer_size"]),
            ({"trl": {**BESIDE, "reroll_start_fraction": 2}}, 2, ["[rlalgo.config.6]", "reroll_start_fraction"])):
        c.train(changes).expect(code, *parts)
        assert not (c.folder / "out").exists()
    c.train({"trl": {**BESIDE, "streaming_partial_batch": False, "replay_buffer_size": 0, "reroll_start_fraction": 1.0}}).expect(0)
    c.train({"trl": {**BESIDE, "vllm_sync_interval": 2}}).expect(0, "vllm_sync_interval (config.yaml:", "is never reached")
    c.train({"trl": {**BESIDE, "vllm_sync_interval": 1000}, "max_steps": None, "num_epochs": 0.02}).expect(0, "is never reached")


@case
def streaming(c):
    """With depth 0 a streamed run is of the weights that are trained: the synchronous run but for rounding."""
    shape = {"max_steps": 4, "logging_steps": 1, "micro_batch_size": 4, "gradient_accumulation_steps": 4}
    for loss_type in ("grpo", "dapo"):
        c.train({**shape, "output_dir": "whole", "trl": {"loss_type": loss_type}}).expect(0)
        streams = {"loss_type": loss_type, "async_prefetch": True, "streaming_partial_batch": True}
        c.train({**shape, "output_dir": "streamed", "trl": {**streams, "prefetch_depth": 0}}).expect(0)
        for one, other in zip(c.metrics("whole"), c.metrics("streamed"), strict=True):
            assert other["async/staleness/max"] == 0, other
            for name, value in one.items():
                if not is_measured(name) and isinstance(value, (int, float)):
                    assert abs(value - other[name]) <= 1e-4 * max(1.0, abs(value)), (name, value, other[name])
        c.train({**shape, "output_dir": "ahead", "trl": {**streams, "streaming_min_groups": 2, "max_staleness": 1}}).expect(0)
        assert all(line["async/staleness/max"] <= 1 for line in c.metrics("ahead"))


@case
def a_reward_that_fails(c):
    (c.folder / "late.py").write_text("calls = 0\n\ndef fails(prompts, completions, **kwargs):\n    global calls\n    calls += 1\n"
                                      "    if calls == 3:\n        raise ValueError('the third is bad')\n    return [0.5] * len(prompts)\n")
    begin = time.monotonic()
    c.train({"max_steps": 50, "trl": {**BESIDE, "reward_funcs": ["late.fails"]}}).expect(1, "the third is bad")
    assert time.monotonic() - begin < 60


@case
def a_recorded_run(c):
    """The second repeats the first to the byte, however the clocks fall."""
    (c.folder / "slow.py").write_text(
        "import os, random, time\n\ndef slow(prompts, completions, completion_ids, **kwargs):\n"
        "    time.sleep(random.random() * float(os.environ['SLOW']))\n    return [float(sum(ids) % 7) for ids in completion_ids]\n")
    for streams in (False, True):
        trl = {**BESIDE, "prefetch_depth": 3, "reward_funcs": ["slow.slow"], "streaming_partial_batch": streams}
        shape = {"max_steps": 12, "logging_steps": 1, "micro_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 5e-3}
        first = c.config({**shape, "output_dir": "first", "trl": {**trl, "async_schedule": "record"}})
        c.run("train", first, env={"SLOW": "0.05"}).expect(0)
        calls = (c.folder / "first/async_schedule.jsonl").read_text()
        assert len(calls.splitlines()) == (24 if streams else 12), calls
        repeat = {**trl, "async_schedule": "recorded", "async_schedule_file": "first/async_schedule.jsonl"}
        for out, slow in (("fast", "0"), ("slower", "0.2")):
            c.run("train", c.config({**shape, "output_dir": out, "trl": repeat}), env={"SLOW": slow}).expect(0)
            assert (c.folder / out / "model.safetensors").read_bytes() == (c.folder / "first/model.safetensors").read_bytes(), out
            for one, other in zip(c.metrics("first"), c.metrics(out), strict=True):
                assert one["async/staleness/mean"] == other["async/staleness/mean"]
                same = [{k: v for k, v in r.items() if not (is_measured(k) or k.startswith(("async/", "sync/")))} for r in (one, other)]
                assert same[0] == same[1], same
        shutil.rmtree(c.folder / "first")
        shutil.rmtree(c.folder / "fast")
        shutil.rmtree(c.folder / "slower")
    c.train({**shape, "output_dir": "bad", "trl": {**repeat, "async_schedule_file": "none"}}).expect(1, "[rlalgo.sync.5]")


@case
def a_reward_that_hangs(c):
    """Ctrl-C while an asynchronous one hangs: what is consistent is saved, within five seconds, and goes on."""
    (c.folder / "hangs.py").write_text(
        "import os, time\ncalls = 0\n\ndef hangs(prompts, completions, **kwargs):\n    global calls\n    calls += 1\n"
        "    if calls == 4 and not os.path.exists('go'):\n        open('hanging', 'w').close()\n        time.sleep(1000)\n"
        "    return [0.1 * i for i in range(len(prompts))]\n")
    settings = {"max_steps": 8, "logging_steps": 1, "save_strategy": "steps", "save_steps": 100,
                "trl": {**BESIDE, "reward_funcs": ["hangs.hangs"]}}
    process = c.start("train", c.config(settings), once=True)
    deadline = time.monotonic() + 60
    while not (c.folder / "hanging").exists():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(1.5)  # the trainer uses up what is ready
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (process.returncode, err)
    assert time.monotonic() - begin < 5, f"it took {time.monotonic() - begin} s to stop"
    assert (c.folder / "out/checkpoint-3").exists(), list((c.folder / "out").iterdir())
    (c.folder / "go").touch()
    c.train({**settings, "auto_resume_from_checkpoints": True}).expect(0)
    assert [line["step"] for line in c.metrics()] == list(range(1, 9))


def again(c, server, seconds=0.0):
    """Kills a server and starts it anew, with nothing but the first weights, where it was."""
    server.process.kill()
    server.process.communicate()
    time.sleep(seconds)
    return Server(c, "--port", server.port, model=str(MODEL))


@case
def a_server_that_is_started_anew(c):
    """Between two calls, so that no connection tells: the run is that without, to the byte; full weights and an adapter."""
    (c.folder / "waits.py").write_text(
        "import os, time\ncalls = 0\n\ndef waits(prompts, completions, completion_ids, **kwargs):\n    global calls\n    calls += 1\n"
        "    if calls == 2 and os.path.exists('wait'):\n        os.rename('wait', 'waiting')\n"
        "        while os.path.exists('waiting'):\n            time.sleep(0.01)\n"
        "    return [float(sum(ids) % 7) for ids in completion_ids]\n")
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    for adapter, merged in (({}, False), (lora, False), (lora, True)):
        server = Server(c)
        try:
            for out in ("plain", "anew"):
                if out == "anew":
                    (c.folder / "wait").touch()
                name = c.config({"max_steps": 5, "logging_steps": 1, "output_dir": out, **adapter,
                                 "trl": {"reward_funcs": ["waits.waits"], **remote(server.port, vllm_lora_sync=not merged)}})
                process = c.start("train", name, once=True)
                if out == "anew":
                    deadline = time.monotonic() + 60
                    while not (c.folder / "waiting").exists():
                        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
                        time.sleep(0.02)
                    server = again(c, server)
                    (c.folder / "waiting").unlink()
                _, err = process.communicate(timeout=100)
                assert process.returncode == 0, err
        finally:
            server.stop()
        seen = [without_times(c.metrics(out)) for out in ("plain", "anew")]
        assert seen[0] == seen[1], (adapter, seen)
        assert all(line["grad_norm"] > 0 for line in seen[0]), seen[0]


@case
def a_server_that_dies_while_it_trains(c):
    """At any time, twice, and is down for a while: the run waits for it, and goes on with weights that are sent again."""
    draw = random.Random(3)
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
    for adapter, streams in (({}, False), (lora, True)):
        server = Server(c)
        try:
            out = "adapter" if adapter else "full"
            process = c.start("train", c.config({
                "max_steps": 60, "logging_steps": 1, "output_dir": out, **adapter,
                "trl": {**BESIDE, "streaming_partial_batch": streams, "max_staleness": 2, **remote(server.port)}}), once=True)
            for after in (5, 15):
                deadline = time.monotonic() + 90
                records = c.folder / out / "metrics.jsonl"
                while not records.exists() or len(records.read_text().splitlines()) < after:
                    assert time.monotonic() < deadline and process.poll() is None, process.communicate()
                    time.sleep(0.01)
                time.sleep(draw.random() * 0.2)
                server = again(c, server, seconds=2.0)
            _, err = process.communicate(timeout=150)
            assert process.returncode == 0, err
            version = server.ask("/weight_info")[1]["weight_version"]
        finally:
            server.stop()
        lines = c.metrics(out)
        assert [line["step"] for line in lines] == list(range(1, 61))
        assert all(line["async/staleness/max"] <= 2 for line in lines)
        # Of the weights that are trained, or they would be far apart: nothing of the first weights was trained on.
        assert version.startswith("v") and int(version[1:]) >= 57, version


@case
def a_server_that_stays_away(c):
    server = Server(c)
    process = c.start("train", c.config({
        "max_steps": 400, "logging_steps": 1, "trl": {**BESIDE, **remote(server.port, vllm_server_timeout=3)}}), once=True)
    try:
        deadline = time.monotonic() + 60
        while not (c.folder / "out/metrics.jsonl").exists():
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.01)
    finally:
        server.process.kill()
        server.process.communicate()
    begin = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "[rlalgo.http.5]" in err, (process.returncode, err)
    assert time.monotonic() - begin < 3 + 16 + 5, "it waited for longer than its deadlines"


@case
def recipes_with_a_server(c):
    rows = [{"input": f"{i % 7} + {i % 5} = ({i})", "output": str(i % 7 + i % 5)} for i in range(40)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = Server(c)
    try:
        for rl in ("gdpo", "rloo", "ebft"):
            config = {**BASE, "rl": rl, "max_steps": 3, "logging_steps": 1, "output_dir": rl, "trl": {
                "num_generations": 4, "max_completion_length": 12, **BESIDE, **remote(server.port)}}
            if rl == "ebft":
                config |= {"datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}],
                           "chat_template": "tokenizer_default", "ebft": {"mode": "structured", "embed_method": "completion_mean"}}
            else:
                config["trl"]["reward_funcs"] = ["builtin.gsm8k_accuracy", "builtin.gsm8k_format"]
            (c.folder / f"{rl}.yaml").write_text(json.dumps(config))
            c.run("train", f"{rl}.yaml").expect(0)
            assert [line["step"] for line in c.metrics(rl)] == [1, 2, 3]
            assert all(line["async/staleness/max"] <= 2 for line in c.metrics(rl))
    finally:
        server.stop()


@case
def the_example(c):
    """examples/async_grpo as it is, but for its length: in this process, and with a server."""
    server = Server(c)
    try:
        for out, options in (("local", ()), ("remote", ("--trl.use-vllm", "--trl.vllm-server-host", "127.0.0.1", "--trl.vllm-server-port", server.port))):
            data = [f"--{split}.0.path={QUICKSTART / 'data' / name}.jsonl" for split, name in (("datasets", "train"), ("test-datasets", "test"))]
            c.run("train", ROOT / "examples/async_grpo/config.yaml", "--base-model", MODEL, *data, "--max-steps", 3, "--eval-steps", 3,
                  "--output-dir", out, *options).expect(0)
            lines = [line for line in c.metrics(out) if "loss" in line]
            assert [line["step"] for line in lines] == [1, 2, 3]
            assert all(line["async/staleness/max"] <= 1 for line in lines)
    finally:
        server.stop()


if __name__ == "__main__":
    main(CASES)
