"""NeMo Gym: rewards of resources servers that run, or are started; servers that fail. Against clients/fake_gym.py."""
import contextlib
import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cases  # noqa: E402
from ranks_test import close, weights, without_times  # noqa: E402
from serve_test import Server  # noqa: E402

CASES = {}
FAKE = pathlib.Path(__file__).resolve().parent / "clients" / "fake_gym.py"


def case(function):
    CASES[function.__name__] = function
    return function


@contextlib.contextmanager
def gym(*arguments, port=None):
    port = port or cases.free_port()
    process = subprocess.Popen([sys.executable, FAKE, "--head-port", str(port), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        yield port
    finally:
        process.kill()
        process.wait()


def rows(c, name="rows.jsonl", **more):
    """Problems of the quickstart as rows of a Gym."""
    out = []
    for line in (cases.QUICKSTART / "data" / "train.jsonl").read_text().splitlines()[:40]:
        row = json.loads(line)
        answer = str(row["answer"]).split("#")[-1].strip()
        out.append({"responses_create_params": {"input": [{"role": "user", "content": row["question"]}]}, "expected_answer": answer,
                    "agent_ref": {"type": "responses_api_agents", "name": "numbers_simple_agent"}, **more})
    (c.folder / name).write_text("".join(json.dumps(r) + "\n" for r in out))
    return name


def config(c, port, changes=None, trl=None, drop=("datasets",), **gym_keys):
    change = {"nemo_gym_enabled": True, "nemo_gym_auto_start": False, "nemo_gym_head_port": port, "nemo_gym_verify_timeout": 2,
              "nemo_gym_dir": str(c.folder), "nemo_gym_datasets": [{"path": "rows.jsonl"}], **gym_keys,
              "trl": {"reward_funcs": [], "max_completion_length": 12, **(trl or {})}, **(changes or {})}
    return c.config(change, drop=drop)


@case
def rewards_of_a_gym_that_runs(c):
    rows(c)
    rows(c, "words.jsonl", agent_ref=None)
    log = c.folder / "log.jsonl"
    with gym("--log", log) as port:
        config(c, port, {"max_steps": 3}, nemo_gym_datasets=[{"path": "rows.jsonl", "max_samples": 8},
                                                             {"path": "words.jsonl", "server_name": "words"}])
        result = c.run("train", "config.yaml").expect(0)
        first = c.metrics()[0]
        assert first["rewards/nemo_gym/mean"] > 0 and first["rollout/failed"] == 0, first
        assert "warning" not in result.err, result.err
        samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
        judged = {(r["text"], r["answer"]): r["reward"] for r in map(json.loads, log.read_text().splitlines())}
        assert samples and all(any(t == s["completion"] and abs(r - s["rewards"]["nemo_gym"]) < 1e-6 for (t, _), r in judged.items())
                               for s in samples), (samples[0], list(judged.items())[:3])
        # the run goes on as it would have gone
        config(c, port, {"max_steps": 3, "save_strategy": "steps", "save_steps": 2})
        c.run("train", "config.yaml").expect(0)
        c.run("train", "config.yaml", "--resume-from-checkpoint", "out/checkpoint-2", "--output-dir", "again").expect(0)
        for name in ["model.safetensors"]:
            assert (c.folder / "again" / name).read_bytes() == (c.folder / "out" / name).read_bytes(), name


@case
def components_are_rewards_of_their_own(c):
    rows(c)
    with gym() as port:
        config(c, port, {"rl": "gdpo"}, {"loss_type": "grpo", "reward_funcs": ["nemo_gym.correct", "nemo_gym.brief"], "reward_weights": [1.0, 0.5]})
        c.run("train", "config.yaml").expect(0)
        first = c.metrics()[0]
        assert 0 < first["rewards/nemo_gym.brief/mean"] < 1 and "rewards/nemo_gym.correct/mean" in first, first
        # axolotl's name of the reward is the one that its plugin adds
        config(c, port, {"plugins": ["axolotl.integrations.nemo_gym.NemoGymPlugin"]},
               {"reward_funcs": ["axolotl.integrations.nemo_gym.rewards.reward_nemo_gym_verify"]})
        c.run("train", "config.yaml").expect(0)
        assert [k for k in c.metrics()[0] if k.endswith("/mean") and k.startswith("rewards/")] == ["rewards/nemo_gym/mean"]
        config(c, port, trl={"reward_funcs": ["nemo_gym.absent"]})
        c.run("train", "config.yaml").expect(1, "rlalgo.remote.77", "brief, correct")


@case
def episodes_with_edited_histories(c):
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_editing_agent"})
    log = c.folder / "log.jsonl"
    server = Server(c)
    try:
        with gym("--log", log, "--model-url", f"http://127.0.0.1:{server.port}") as port:
            config(c, port, {"max_steps": 3, "micro_batch_size": 4, "gradient_accumulation_steps": 2, "logging_steps": 1}, nemo_gym_multi_turn=True,
                   trl={"use_vllm": True, "vllm_server_host": "127.0.0.1", "vllm_server_port": server.port, "num_generations": 8})
            c.run("train", "config.yaml").expect(0)
    finally:
        server.stop()
    episodes = [json.loads(line) for line in log.read_text().splitlines()]
    lines = c.metrics()
    assert len(lines) == 3 and len(episodes) == 24
    for step, line in enumerate(lines):
        played = episodes[8 * step:8 * step + 8]
        assert line["rollout/failed"] == 0 and line["rollout/n_samples"] == 8, line
        assert line["rollout/rows"] == line["rollout/num_turns/mean"] == 1.75 and line["rollout/num_turns/max"] == 2, line
        assert abs(line["rollout/reward/mean"] - sum(e["reward"] for e in played) / 8) < 1e-6 and line["rollout/reward/nonzero_frac"] == 7 / 8, line
        assert line["grad_norm"] > 0 and line["reward_std"] > 0
    tokens = sum(len(ids) for e in episodes for key in ("prompts", "drawn") for ids in e[key])
    assert lines[-1]["num_tokens"] == tokens, (lines[-1]["num_tokens"], tokens)
    samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
    advantages = {}
    for s in samples:
        advantages.setdefault((s["step"], s["rewards"]["nemo_gym"]), []).append(s["advantage"])
    assert all(len(set(values)) == 1 for values in advantages.values()), advantages
    assert any(len(values) == 2 for values in advantages.values()), advantages


def episodes_here(c, port, model_port, changes=None, **trl):
    """The configuration of a run whose agents ask the trainer's own process."""
    config(c, port, {"max_steps": 3, "micro_batch_size": 4, "gradient_accumulation_steps": 2, "logging_steps": 1, **(changes or {})}, nemo_gym_multi_turn=True,
           trl={"vllm_server_port": model_port, "num_generations": 8, **trl})


@case
def agents_that_ask_the_trainer(c):
    """Without a server the agents ask the process that trains; its run is that of a server with the same seed, and repeats itself."""
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_steady_agent"})
    log, port = c.folder / "log.jsonl", cases.free_port()
    with gym("--log", log, "--model-url", f"http://127.0.0.1:{port}") as head:
        episodes_here(c, head, port, {"output_dir": "here", "save_strategy": "steps", "save_steps": 2})
        result = c.run("train", "config.yaml").expect(0, f"agents ask this process: http://127.0.0.1:{port}/v1", "done: step")
        assert "warning" not in result.err, result.err
        c.run("train", "config.yaml", "--resume-from-checkpoint", "here/checkpoint-2", "--output-dir", "again").expect(0)
    here = c.metrics("here")
    played = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(here) == 3 and len(played) == 32, (len(here), len(played))  # 24, and the last 8 again
    for step, line in enumerate(here):
        own = played[8 * step:8 * step + 8]
        assert line["rollout/failed"] == 0 and line["rollout/num_turns/mean"] == 2 and line["rollout/rows"] == 1, line
        assert abs(line["rollout/reward/mean"] - sum(e["reward"] for e in own) / 8) < 1e-6 and line["grad_norm"] > 0, line
        assert abs(line["completions/mean_length"] - sum(len(ids) for e in own for ids in e["drawn"]) / 8) < 1e-6, line
        # the second call was shown what the first drew, id by id
        assert all(e["prompts"][1][:len(e["prompts"][0]) + len(e["drawn"][0])] == e["prompts"][0] + e["drawn"][0] for e in own)
    assert (c.folder / "again/model.safetensors").read_bytes() == (c.folder / "here/model.safetensors").read_bytes()
    for sample in map(json.loads, (c.folder / "here/samples.jsonl").read_text().splitlines()):
        said = [part for turn in sample["turns"] for part in turn.items()]
        assert [who for who, _ in said] == ["model", "environment", "model"] and "Are you sure?" in said[1][1], sample
    assert 'class="told"' in (c.folder / "here/report.html").read_text()
    before = c.folder / "before.jsonl"
    log.rename(before)
    server = Server(c, "--seed", "42", "--processed-logprobs", "--generation-config", "vllm")
    try:
        with gym("--log", log, "--model-url", f"http://127.0.0.1:{server.port}") as head:
            episodes_here(c, head, server.port, {"output_dir": "there"}, use_vllm=True, vllm_server_host="127.0.0.1")
            c.run("train", "config.yaml").expect(0, "done: step")
    finally:
        server.stop()
    there = [json.loads(line) for line in log.read_text().splitlines()]
    key = lambda e: json.dumps([e["prompts"], e["drawn"], e["log_probs"], e["reward"]])
    for step in range(3):
        assert sorted(map(key, played[8 * step:8 * step + 8])) == sorted(map(key, there[8 * step:8 * step + 8])), step
    one, other = without_times(here), without_times(c.metrics("there"))
    for a, b in zip(one, other):
        assert a == b, {name: (a.get(name), b.get(name)) for name in a if a.get(name) != b.get(name)}
    assert (c.folder / "there/model.safetensors").read_bytes() == (c.folder / "here/model.safetensors").read_bytes()


@case
def agents_that_ask_an_adapter(c):
    """With an adapter, in turns with training and beside it."""
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_steady_agent"})
    log, port = c.folder / "log.jsonl", cases.free_port()
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj", "v_proj"]}
    with gym("--log", log, "--model-url", f"http://127.0.0.1:{port}") as head:
        for name, trl in [("turns", {}), ("beside", {"use_data_producer": True, "async_prefetch": True})]:
            log.unlink(missing_ok=True)
            episodes_here(c, head, port, {"output_dir": name, **lora}, **trl)
            c.run("train", "config.yaml").expect(0, "done: step")
            lines, played = c.metrics(name), [json.loads(line) for line in log.read_text().splitlines()]
            assert len(lines) == 3 and len(played) == 24, (name, len(lines), len(played))
            for step, line in enumerate(lines):
                rewards = sum(e["reward"] for e in played[8 * step:8 * step + 8]) / 8
                assert line["rollout/failed"] == 0 and abs(line["rollout/reward/mean"] - rewards) < 1e-6 and line["grad_norm"] > 0, (name, line)


@case
def episodes_matched_by_features(c):
    """rl: ebft: what an agent's episode ends with is matched with the row's ground truth; failed episodes leave their groups."""
    log, port = c.folder / "log.jsonl", cases.free_port()
    with gym("--log", log, "--model-url", f"http://127.0.0.1:{port}") as head:
        for agent, failed, trl in [("steady", False, {}), ("failing", True, {}), ("steady", False, {"use_data_producer": True, "async_prefetch": True})]:
            log.unlink(missing_ok=True)
            rows(c, agent_ref={"type": "responses_api_agents", "name": f"numbers_{agent}_agent"}, ground_truth="12")
            episodes_here(c, head, port, {"rl": "ebft", "ebft": {"embed_method": "completion_mean", "ce_coef": 0.1}}, **trl)
            c.run("train", "config.yaml").expect(0, "done: step")
            lines, played = c.metrics(), [json.loads(line) for line in log.read_text().splitlines()]
            assert len(lines) == 3 and len(played) >= 24, (agent, len(lines), len(played))
            for line in lines:
                assert (0 < line["rollout/failed"] < 1) == failed and line["grad_norm"] > 0, line
                assert all(math.isfinite(line[f"ebft/{name}"]) for name in ("alignment", "diversity", "reward", "ce_loss")), line
                assert "rewards/nemo_gym/mean" not in line and line["rewards/alignment/mean"] == line["ebft/alignment"], line
            samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
            assert all(s["logged"]["ground_truth"] == "12" for s in samples), samples[0]
            lost = [s for s in samples if s["rewards"]["alignment"] is None]
            assert (failed or not lost) and all(s["advantage"] == 0 for s in lost), (agent, len(lost))  # a few rows of each step
        # what failed is as harmless with the rewards of the agents themselves, and their log-probs
        rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_failing_agent"})
        episodes_here(c, head, port)
        c.run("train", "config.yaml").expect(0, "done: step", "leave their groups: judge")
        assert all(0 < line["rollout/failed"] < 1 and line["grad_norm"] > 0 for line in c.metrics()), c.metrics()
        config(c, head, {"rl": "ebft", "ebft": {"mode": "structured"}})
        c.run("train", "config.yaml").expect(2, "rlalgo.config.8", "nemo_gym_multi_turn")
        rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_steady_agent"})
        episodes_here(c, head, port, {"rl": "ebft", "ebft": {"mode": "structured"}})
        c.run("train", "config.yaml").expect(1, "rlalgo.config.33", "ground_truth")


@case
def agents_that_ask_on_two_ranks(c):
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_steady_agent"})
    log, port = c.folder / "log.jsonl", cases.free_port()
    with gym("--log", log, "--model-url", f"http://127.0.0.1:{port}") as head:
        for folder, accumulation, ranks in [("one", 2, []), ("many", 1, ["--nproc-per-node", 2])]:
            episodes_here(c, head, port, {"output_dir": folder, "gradient_accumulation_steps": accumulation})
            c.run("train", "config.yaml", *ranks).expect(0, "done: step")
    one, many = without_times(c.metrics("one")), without_times(c.metrics("many"))
    assert len(one) == len(many) == 3
    for a, b in zip(one, many):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            close(a[name], b[name], f"step {a['step']} {name}")


@case
def a_trainer_that_agents_ask_is_stopped(c):
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_steady_agent"})
    port = cases.free_port()
    with gym("--model-url", f"http://127.0.0.1:{port}") as head:
        episodes_here(c, head, port, {"max_steps": 100000, "save_strategy": "steps", "save_steps": 100000})
        process = c.start("train", "config.yaml", once=True)
        deadline = time.time() + 60
        metrics = c.folder / "out" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size) and time.time() < deadline and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        began = time.time()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and time.time() - began < 10, (process.returncode, time.time() - began, err[-800:])
        assert any(path.name.startswith("checkpoint-") for path in (c.folder / "out").iterdir()), err[-1500:]
        # a port that somebody has
        with socket.create_server(("127.0.0.1", port)):
            c.run("train", "config.yaml", "--output-dir", "other").expect(1, "rlalgo.http.8", str(port))


@case
def judged_on_two_ranks(c):
    """The rewards of a Gym, each completion judged once, as on one rank."""
    rows(c)
    log = c.folder / "log.jsonl"
    judged = []
    with gym("--log", log) as port:
        for folder, accumulation, ranks in [("one", 2, []), ("many", 1, ["--nproc-per-node", 2])]:
            before = len(log.read_text().splitlines()) if log.exists() else 0
            config(c, port, {"max_steps": 3, "logging_steps": 1, "micro_batch_size": 8, "gradient_accumulation_steps": accumulation,
                             "output_dir": folder}, trl={"num_generations": 8})
            c.run("train", "config.yaml", *ranks).expect(0, "done: step")
            judged.append(sorted((r["text"], r["answer"], r["reward"]) for r in map(json.loads, log.read_text().splitlines()[before:])))
    assert len(judged[0]) == 48 and judged[0] == judged[1], [len(j) for j in judged]
    one, many = without_times(c.metrics("one")), without_times(c.metrics("many"))
    assert len(one) == len(many) == 3
    for a, b in zip(one, many):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            close(a[name], b[name], f"step {a['step']} {name}")
    first, second = weights(c.folder / "one/model.safetensors"), weights(c.folder / "many/model.safetensors")
    assert max(abs(x - y) for name in first for x, y in zip(first[name], second[name])) < 2e-5


@case
def episodes_on_two_ranks(c):
    """Rank 0 asks for all episodes of a step; both ranks train on their rows."""
    rows(c, agent_ref={"type": "responses_api_agents", "name": "numbers_editing_agent"})
    log = c.folder / "log.jsonl"
    server = Server(c)
    try:
        with gym("--log", log, "--model-url", f"http://127.0.0.1:{server.port}") as port:
            config(c, port, {"max_steps": 3, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "logging_steps": 1}, nemo_gym_multi_turn=True,
                   trl={"use_vllm": True, "vllm_server_host": "127.0.0.1", "vllm_server_port": server.port, "num_generations": 8})
            c.run("train", "config.yaml", "--nproc-per-node", 2).expect(0, "done: step")
    finally:
        server.stop()
    episodes = [json.loads(line) for line in log.read_text().splitlines()]
    lines = c.metrics()
    assert len(lines) == 3 and len(episodes) == 24, (len(lines), len(episodes))
    for step, line in enumerate(lines):
        played = episodes[8 * step:8 * step + 8]
        assert line["rollout/failed"] == 0 and line["rollout/n_samples"] == 8 and line["rollout/rows"] == 1.75, line
        assert abs(line["rollout/reward/mean"] - sum(e["reward"] for e in played) / 8) < 1e-6, line
        assert line["grad_norm"] > 0, line
    tokens = sum(len(ids) for e in episodes for key in ("prompts", "drawn") for ids in e[key])
    assert lines[-1]["num_tokens"] == tokens, (lines[-1]["num_tokens"], tokens)


@case
def failures_leave_their_group(c):
    rows(c)
    log = c.folder / "log.jsonl"
    with gym("--log", log, "--faults", 1) as port:
        config(c, port, {"max_steps": 4, "logging_steps": 1, "micro_batch_size": 16}, {"num_generations": 8, "reward_max_retries": 0})
        result = c.run("train", "config.yaml").expect(0, "could not judge", "leave their groups")
        judged = [json.loads(line) for line in log.read_text().splitlines()]
        assert sum(r["fault"] is not None for r in judged) > 5
        failed = [m["rollout/failed"] for m in c.metrics()]
        assert abs(sum(failed) / len(failed) - sum(r["fault"] is not None for r in judged) / len(judged)) < 1e-6, (failed, len(judged))
        samples = [json.loads(line) for line in (c.folder / "out" / "samples.jsonl").read_text().splitlines()]
        wrong = {r["text"] for r in judged if r["fault"]} - {r["text"] for r in judged if not r["fault"]}
        right = {r["text"]: r["reward"] for r in judged if not r["fault"]}
        for s in samples:
            if s["completion"] in wrong:
                assert s["rewards"]["nemo_gym"] is None and s["advantage"] == 0, s
        assert result.code == 0 and right


@case
def a_gym_that_is_restarted(c):
    rows(c)
    port = cases.free_port()
    with gym(port=port):
        config(c, port, {"max_steps": 100000}, nemo_gym_server_timeout=60)
        process = c.start("train", "config.yaml", once=True)
        deadline = time.time() + 60
        while not (c.folder / "out" / "metrics.jsonl").exists() and time.time() < deadline:
            time.sleep(0.1)
    time.sleep(1)
    before = len(c.metrics())
    with gym(port=port):  # its servers have other ports now
        while len(c.metrics()) <= before + 5 and time.time() < deadline and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "looking for the Gym again" in err, (process.returncode, err[-800:])
    assert len(c.metrics()) > before + 5


@case
def bad_input(c):
    rows(c)
    with gym() as port:
        def train(code, *parts, trl=None, changes=None, **keys):
            config(c, port, {"max_steps": 1, **(changes or {})}, trl, **keys)
            return c.run("train", "config.yaml").expect(code, *parts)
        train(1, "rlalgo.remote.71", "did you mean numbers?", nemo_gym_datasets=[{"path": rows(c, "a.jsonl", agent_ref=None), "server_name": "nubmers"}])
        train(1, "rlalgo.remote.71", "server_name", nemo_gym_datasets=[{"path": "a.jsonl"}])
        train(1, "rlalgo.remote.75", "nemo_gym_multi_turn", nemo_gym_datasets=[{"path": "a.jsonl", "server_name": "stepped"}])
        (c.folder / "short.jsonl").write_text('{"responses_create_params": {"input": "2 + 3"}}\n' * 3)
        train(1, "rlalgo.remote.74", "422", "expected_answer", "2 + 3", nemo_gym_datasets=[{"path": "short.jsonl", "server_name": "numbers"}])
        (c.folder / "none.jsonl").write_text('{"question": "2 + 3"}\n')
        train(1, "rlalgo.data.31", "none.jsonl:1", "responses_create_params", nemo_gym_datasets=[{"path": "none.jsonl"}])
        train(2, "rlalgo.config.7", "nemo_gym_datasets", nemo_gym_datasets=[])
        train(2, "rlalgo.config.7", "nemo_gym_config_paths", nemo_gym_auto_start=True)
        train(2, "rlalgo.config.6", "nemo_gym_verify_timeout", nemo_gym_verify_timeout=0)
        train(2, "rlalgo.config.8", "trl.tools", trl={"tools": ["calculator"]})
        train(0, "datasets", "has no effect", drop=())
    config(c, port, {"max_steps": 1}, nemo_gym_server_timeout=2)
    c.run("train", "config.yaml").expect(1, "rlalgo.remote.73", "nemo_gym_server_timeout")


@case
def a_gym_that_is_started(c):
    rows(c)
    port = cases.free_port()
    bin = c.folder / "Gym" / ".venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "ng_run").write_text(f"""#!/bin/sh
echo "$@"
for a in "$@"; do case $a in +head_server.port=*) port=${{a#*=}};; esac; done
echo $$ > pid
exec {sys.executable} {FAKE} --head-port $port --late 1
""")
    os.chmod(bin / "ng_run", 0o755)
    config(c, port, {"max_steps": 1}, nemo_gym_auto_start=True, nemo_gym_dir=str(c.folder / "Gym"), nemo_gym_config_paths=["a.yaml", "b.yaml"],
           nemo_gym_datasets=[{"path": str(c.folder / "rows.jsonl")}])
    c.run("train", "config.yaml").expect(0, "is started")
    assert "+config_paths=[a.yaml,b.yaml]" in (c.folder / "out" / "ng_run.log").read_text()
    assert "max_steps" not in (c.folder / "out" / "ng_run.log").read_text()
    pid = int((c.folder / "Gym" / "pid").read_text())
    try:
        os.kill(pid, 0)
        raise AssertionError("the Gym still runs")
    except ProcessLookupError:
        pass
    # one that runs is used, and left alone
    with gym(port=port):
        c.run("train", "config.yaml").expect(0)
        with socket.create_connection(("127.0.0.1", port)):
            pass
    (bin / "ng_run").write_text("#!/bin/sh\necho no such server >&2\nexit 1\n")
    c.run("train", "config.yaml").expect(1, "rlalgo.remote.79", "no such server")
    (bin / "ng_run").unlink()
    c.run("train", "config.yaml").expect(1, "rlalgo.remote.78", "nemo_gym_dir")


OPEN_ENV = FAKE.parent / "fake_open_env.py"


@contextlib.contextmanager
def open_env(*arguments):
    process = subprocess.Popen([sys.executable, OPEN_ENV, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, f"ws://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


def play(c, url, changes=None, drop=("datasets",), **trl):
    change = {"max_steps": 2, "logging_steps": 1, **(changes or {}),
              "trl": {"environment_factory": url, "reward_funcs": [], "max_completion_length": 80, "max_turns": 4, "environment_timeout": 10, **trl}}
    c.config(change, drop=drop)
    return c.run("train", "config.yaml")


@case
def an_open_env_server(c):
    log = c.folder / "log.jsonl"
    with open_env("--sessions", 5, "--log", log) as (process, url):
        play(c, url, {"max_steps": 3}).expect(0)
        first = c.metrics()[0]
        assert first["environment/turns"] > 1 and first["rollout/failed"] == 0 and "rewards/guess/mean" in first, first
        steps = [json.loads(line) for line in log.read_text().splitlines()]
        seeds = {s["seed"] for s in steps}
        assert 2 <= len(seeds) <= 6, seeds  # one for each group of 4 of 8 completions in 3 steps
        # the rewards are those that the server gave
        total = sum(s["reward"] for s in steps)
        assert abs(sum(m["rewards/guess/mean"] * 8 for m in c.metrics()) - total) < 1e-6
        # with rows: their columns go to reset
        play(c, url, drop=()).expect(0)
        assert any("answer" in json.loads(line).get("row", {}) for line in log.read_text().splitlines())
        process.stdin.close()
        assert process.stdout.readline() == "at most 5\n"
    with open_env("--kind", "tools") as (_, url):
        short = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% for t in tools %}{{ t.function.name }} {% endfor %}<|im_start|>assistant\n"
        play(c, url, {"chat_template": "jinja", "chat_template_jinja": short}).expect(0)
        assert c.metrics()[0]["environment/turns"] >= 1 and "tools/call_frequency" in c.metrics()[0]
        play(c, url, tools=["calculator"]).expect(2, "rlalgo.config.25", "trl.tools")
    play(c, url, environment_timeout=1).expect(1, "rlalgo.remote.80", "127.0.0.1")
    play(c, url, drop=("datasets", "max_steps")).expect(2, "rlalgo.config.7", "max_steps")


@case
def open_env_on_two_ranks(c):
    """Each rank plays the episodes of its groups, over the same server, with the seeds and rewards of one rank."""
    log = c.folder / "log.jsonl"
    played = []
    with open_env("--sessions", 8, "--log", log) as (_, url):
        for folder, accumulation, ranks in [("one", 2, []), ("many", 1, ["--nproc-per-node", 2])]:
            before = len(log.read_text().splitlines()) if log.exists() else 0
            c.config({"max_steps": 3, "logging_steps": 1, "micro_batch_size": 4, "gradient_accumulation_steps": accumulation, "output_dir": folder,
                      "trl": {"environment_factory": url, "reward_funcs": [], "max_completion_length": 80, "max_turns": 4, "environment_timeout": 10}},
                     drop=("datasets",))
            c.run("train", "config.yaml", *ranks).expect(0, "done: step")
            played.append(sorted((s["seed"], s["reward"]) for s in map(json.loads, log.read_text().splitlines()[before:])))
    assert played[0] and played[0] == played[1], [len(p) for p in played]
    one, many = without_times(c.metrics("one")), without_times(c.metrics("many"))
    assert len(one) == len(many) == 3
    for a, b in zip(one, many):
        assert a.keys() == b.keys(), set(a) ^ set(b)
        for name in a:
            close(a[name], b[name], f"step {a['step']} {name}")


@case
def an_open_env_server_that_fails(c):
    log = c.folder / "log.jsonl"
    with open_env("--faults", 3, "--log", log) as (_, url):
        result = play(c, url, {"max_steps": 6, "micro_batch_size": 16}, num_generations=8, environment_timeout=1.5).expect(0, "leave their groups")
        faults = sum("fault" in json.loads(line) for line in log.read_text().splitlines())
        failed = sum(m["rollout/failed"] * 16 for m in c.metrics())
        assert faults > 5 and abs(failed - faults) < 1e-6, (faults, failed, result.err[-500:])


if __name__ == "__main__":
    cases.main(CASES)
