"""vllm-serve as a program: it answers, a training learns with its completions, and SIGTERM ends it in order."""
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, NotRun, free_port, main, without_times  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


class Server:
    """The program on a port that is free; its lines about other things than the port are kept."""

    def __init__(self, c, *options, model=MODEL, env=None):
        port = () if model != MODEL else ("--port", "0")
        self.process = c.start("vllm-serve", model, *port, *options, env=env, once=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("".join(self.lines))

    def ask(self, path, body=None, key=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.lines) + rest


@case
def answers_and_ends_in_order(c):
    server = Server(c, "--api-key", "k", "--served-model-name", "m", "--access-log")
    try:
        assert server.ask("/health/") == (200, {"status": "ok"})
        assert server.ask("/v1/models")[0] == 401
        assert server.ask("/v1/models", key="k")[1]["data"][0]["id"] == "m"
        status, whole = server.ask("/v1/completions", {"model": "m", "prompt": "3 + 4 =", "max_tokens": 5, "temperature": 0, "ignore_eos": True}, "k")
        assert status == 200 and whole["usage"]["completion_tokens"] == 5, whole
        row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 5, "temperature": 0}) + "\n"
        same = json.loads(c.run("generate", "--model", MODEL, stdin=row).expect(0).out)
        if same["finish_reason"] == "length":
            assert same["text"] == whole["choices"][0]["text"], (same, whole)
    finally:
        code, lines = server.stop()
    assert code == 143, (code, lines)
    assert "no more requests are taken, those under way may finish" in lines and "after this step" not in lines, lines
    for line in [r"GET /health/ 200", r"GET /v1/models 401", r"POST /v1/completions 200"]:
        assert re.search(rf"127\.0\.0\.1 {line} \d+\.\d ms", lines), (line, lines)


@case
def an_adapter_has_a_name_of_its_own(c):
    """Served as the model it is called as it is named, and its base is another one; beside the model by the name it is given."""
    trl = {"reward_funcs": ["soft_overlong_punishment_reward"], "max_completion_length": 30, "temperature": 1.5,
           "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 30}}}
    c.train({"adapter": "lora", "lora_r": 4, "lora_alpha": 64, "lora_target_linear": True, "learning_rate": 1e-2, "warmup_steps": 0, "max_steps": 3,
             "output_dir": "tuned", "trl": trl}).expect(0)
    ask = {"prompt": "3 + 4 =", "max_tokens": 1, "temperature": 0, "logprobs": 1}
    first = lambda server, name: server.ask("/v1/completions", {**ask, "model": name})[1]["choices"][0]["logprobs"]["token_logprobs"]
    server = Server(c, "--lora-modules", "a=tuned", json.dumps({"name": "b", "path": "tuned"}), "--served-model-name", "base")
    try:
        cards = {card["id"]: card for card in server.ask("/v1/models")[1]["data"]}
        assert list(cards) == ["base", "a", "b"] and cards["base"]["parent"] is None and cards["a"]["parent"] == "base", cards
        base, tuned = first(server, "base"), first(server, "a")
        assert base != tuned and first(server, "b") == tuned, (base, tuned)
    finally:
        server.stop()
    server = Server(c, "--port", "0", model="tuned")
    try:
        card = server.ask("/v1/models")[1]["data"][0]
        assert (card["id"], card["root"], card["parent"]) == ("tuned", "tuned", str(MODEL)), card
        assert server.ask("/v1/completions", ask)[1]["model"] == "tuned"
        assert server.ask("/v1/completions", {**ask, "model": str(MODEL)})[0] == 404  # the base is not what answers
        assert abs(first(server, "tuned")[0] - tuned[0]) < 1e-4
    finally:
        server.stop()
    c.run("vllm-serve", MODEL, "--port", "0", "--served-model-name", "a", "--lora-modules", "a=tuned").expect(2, "[rlalgo.serve.31]")
    c.run("vllm-serve", MODEL, "--port", "0", "--lora-modules", "a=none").expect(1, "[rlalgo.serve.18]", "none")


def remote(port, **more):
    return {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": port,
            "vllm_server_timeout": 30, "request_timeout": 60, **more}


def learns_the_same(c, changes, *options):
    """Three steps of GRPO with completions of a server and of this process. Draws, rewards and losses must be equal bit for
    bit: the server computes with the same code on exactly the trainer's weights, and draws with the trainer's keys."""
    trl = {"reward_funcs": ["soft_overlong_punishment_reward"], "max_completion_length": 30, "temperature": 1.5,
           "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 30}}}
    base = {"max_steps": 3, "logging_steps": 1, "warmup_steps": 0, "learning_rate": 1e-3, **changes}
    own = {"generation_quantization": "int8", "vllm_importance_sampling_correction": False} if "--quantization" in options else {}
    c.train({**base, "output_dir": "here", "trl": {**trl, **own}}).expect(0)
    server = Server(c, *options)
    try:
        done = c.train({**base, "output_dir": "there", "trl": {**trl, **remote(server.port, vllm_importance_sampling_correction=False)}}).expect(0)
        assert server.ask("/weight_info")[1]["weight_version"] == "v2"
    finally:
        server.stop()
    seen = [without_times(c.metrics(folder)) for folder in ("here", "there")]
    assert [row["step"] for row in seen[0] if "loss" in row] == [1, 2, 3], seen[0]
    assert all(row["grad_norm"] > 0 for row in seen[0] if "loss" in row), seen[0]  # something was learnt
    assert seen[0] == seen[1], (seen[0], seen[1])
    assert not (c.folder / "there" / "weight_sync").exists()
    return done.out + done.err


@case
def full_weights_in_a_file_learn_as_weights_in_place(c):
    assert "over HTTP" not in learns_the_same(c, {})


@case
def full_weights_over_http_learn_as_weights_in_place(c):
    (c.folder / "elsewhere").mkdir()
    assert "weights go to the server over HTTP" in learns_the_same(c, {}, "--allowed-path", c.folder / "elsewhere")


@case
def full_weights_over_gloo_learn_as_weights_in_place(c):
    gloo = ("--weight-transfer-config", '{"backend": "gloo"}')
    if "without libgloo-dev" in c.run("vllm-serve", MODEL, "--weight-transfer-config", "{}").err:
        raise NotRun("the program was compiled without libgloo-dev")
    (c.folder / "elsewhere").mkdir()
    assert "over HTTP" not in learns_the_same(c, {}, *gloo, "--allowed-path", c.folder / "elsewhere")


@contextlib.contextmanager
def known_as(server, routes):
    """A port where rlalgo's server looks like another that has these routes: without its name."""

    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def forward(self):
            if self.path == "/openapi.json":
                return self.answer(200, json.dumps({"paths": {route: {} for route in routes}}).encode())
            if self.path == "/version":
                return self.answer(200, b'{"version": "0.32.0"}')
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            there = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            there.request(self.command, self.path, body or None, {"Content-Type": "application/json"})
            got = there.getresponse()
            asked.append(self.path)
            self.answer(got.status, got.read())

        do_GET = do_POST = forward

    asked = []
    door = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=door.serve_forever)
    thread.start()
    try:
        yield door.server_address[1], asked
    finally:
        door.shutdown()
        thread.join()
        door.server_close()


def learns_by_nccl(c, routes, update):
    """Three steps against a server that takes weights over NCCL only, both on what stands for it and for CUDA in the memory of
    the host (tests/support/fake_nccl.cpp). What was drawn has the trainer's own log-probs only under the trainer's weights."""
    found = list(pathlib.Path(c.program).parents[1].glob("tests/*rlalgo_fake_nccl.so"))
    if not found:
        raise NotRun("tests/support/fake_nccl.cpp is not built beside the program")
    library = {"RLALGO_NCCL_LIBRARY": str(found[0]), "RLALGO_CUDART_LIBRARY": str(found[0])}
    # With a seed: of draws as long as each other nothing would be learnt.
    server = Server(c, "--processed-logprobs", "--seed", "1", env=library)
    try:
        with known_as(server, routes) as (port, asked):
            c.train({"max_steps": 3, "logging_steps": 1, "warmup_steps": 0, "learning_rate": 1e-2, "trl": {
                "reward_funcs": ["soft_overlong_punishment_reward"], "max_completion_length": 30, "temperature": 1.5,
                "reward_kwargs": {"soft_overlong_punishment_reward": {"soft_punish_cache": 30}}, "vllm_group_port": free_port(),
                **remote(port, vllm_importance_sampling_correction=True)}}, env=library).expect(0)
    finally:
        server.stop()
    rows = [row for row in c.metrics() if "loss" in row]
    seen = [(row["step"], row["grad_norm"], row["sampling/sampling_logp_difference/max"]) for row in rows]
    assert [step for step, _, _ in seen] == [1, 2, 3] and seen[0][1] > 0, ("step, gradient, difference", seen)
    assert all(difference < 1e-4 for _, _, difference in seen), seen
    assert asked.count(update) >= 2 and "/http_update_weights/" not in asked, asked


@case
def as_trls_server_it_gets_weights_over_nccl(c):
    learns_by_nccl(c, ["/health/", "/get_world_size/", "/generate/", "/init_communicator/", "/update_named_param/",
                       "/close_communicator/", "/reset_prefix_cache/"], "/update_named_param/")


@case
def as_vllm_it_gets_weights_over_nccl(c):
    learns_by_nccl(c, ["/health", "/v1/models", "/v1/completions", "/server_info", "/init_weight_transfer_engine",
                       "/start_weight_update", "/update_weights", "/finish_weight_update", "/pause", "/resume"], "/update_weights")


@case
def an_adapter_in_files_learns_as_one_in_place(c):
    learns_the_same(c, {"adapter": "lora", "lora_r": 4, "lora_alpha": 64, "lora_target_modules": ["q_proj", "v_proj"]})


@case
def weights_in_8_bits_are_made_anew_of_what_a_trainer_sends(c):
    learns_the_same(c, {}, "--quantization", "int8")
    c.folder.joinpath("here").rename(c.folder / "full")
    c.folder.joinpath("there").rename(c.folder / "full there")
    adapter = {"adapter": "lora", "lora_r": 4, "lora_alpha": 64, "lora_target_modules": ["q_proj", "v_proj"]}
    learns_the_same(c, adapter, "--quantization", "int8")


@case
def a_key_is_taken_from_the_environment(c):
    server = Server(c, "--api-key", "k")
    try:
        changes = {"max_steps": 1, "trl": remote(server.port)}
        c.train(changes).expect(1, "[rlalgo.http.2]", "HTTP 401")
        c.train(changes, env={"VLLM_API_KEY": "k"}).expect(0)
    finally:
        server.stop()


@case
def two_trainers_at_once(c):
    server = Server(c)
    try:
        assert server.ask("/start_weight_update", {"session": "another"})[0] == 200
        trl = {**remote(server.port), "vllm_server_timeout": 2}
        c.train({"max_steps": 1, "trl": trl}).expect(1, "waiting at most 2.0 s", "[rlalgo.sync.8]", "rlalgo.serve.20")
        assert server.ask("/weight_info")[1]["weight_version"] == "0"
    finally:
        server.stop()


@case
def a_configuration_is_served_as_its_section_says(c):
    config = c.config({"vllm": {"host": "127.0.0.1", "port": 0, "dtype": "bfloat16", "max_model_len": 40,
                                "gpu_memory_utilization": 0.5}})
    server = Server(c, model=config)
    try:
        assert server.ask("/v1/models")[1]["data"][0]["max_model_len"] == 40
        assert any("vllm.gpu_memory_utilization" in line for line in server.lines), server.lines
    finally:
        server.stop()
    server = Server(c, "--max-model-len", 30, model=config)
    try:
        assert server.ask("/v1/models")[1]["data"][0]["max_model_len"] == 30
    finally:
        server.stop()
    # The sections of axolotl's documents: several GPUs are one process, and an address that others reach needs a key.
    config = c.config({"vllm": {"host": "0.0.0.0", "port": 0, "tensor_parallel_size": 2, "data_parallel_size": 2, "gpu_memory_utilization": 0.85, "dtype": "auto"}})
    server = Server(c, "--gpu-memory-utilization", 0.5, model=config)
    try:
        said = "\n".join(server.lines)
        for part in ("vllm.tensor_parallel_size (config.yaml:", "vllm.data_parallel_size", "listening on 127.0.0.1", "--api-key", "--open-to-all", "--gpu-memory-utilization has no effect"):
            assert part in said, (part, said)
    finally:
        server.stop()
    process = c.start("vllm-serve", config, "--api-key", "k")
    try:
        line = next(line for line in process.stderr if "serving" in line)
        assert "http://0.0.0.0:" in line, line
    finally:
        process.terminate()
        process.communicate(timeout=60)
    c.run("vllm-serve", config, "--host", "0.0.0.0").expect(2, "[rlalgo.serve.22]")
    config = c.config({"vllm": {"prot": 2}})
    c.run("vllm-serve", config).expect(2, "[rlalgo.config.4]", "vllm.port")


@case
def sampling_left_out_is_the_models_own(c):
    folder = c.model_copy()
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.0, "eos_token_id": 446}))
    ask = {"prompt": "3 + 4 =", "max_tokens": 8, "n": 4, "ignore_eos": True, "return_token_ids": True}
    for options, different in (((), 1), (("--generation-config", "vllm"), 2), (("--generation-config", MODEL), 2)):
        server = Server(c, "--port", "0", *options, model=folder)
        try:
            choices = server.ask("/v1/completions", ask)[1]["choices"]
            assert len({tuple(x["token_ids"]) for x in choices}) >= different, (options, choices)
            assert different > 1 or choices[0]["token_ids"] == choices[3]["token_ids"], choices
        finally:
            server.stop()
    (folder / "generation_config.json").write_text(json.dumps({"top_p": 7, "eos_token_id": 446}))
    c.run("vllm-serve", folder, "--port", "0").expect(2, "[rlalgo.serve.25]", "generation_config.json")


@case
def what_it_may_not_read(c):
    """Files without permission are errors that name them, at the start and later; the server lives."""
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []  # root may read all
    if drop and subprocess.run([*drop, "true"], capture_output=True).returncode != 0:
        raise NotRun("root without setpriv, or without the right to use it")
    with_rights, model = c.program, c.model_copy()
    (c.folder / "program").write_text("#!/bin/sh\nexec " + shlex.join([*drop, str(with_rights)]) + ' "$@"\n')
    (c.folder / "program").chmod(0o755)
    c.program = c.folder / "program"
    weights = model / "model.safetensors"
    for locked in (weights, model / "config.json", model):
        mode = locked.stat().st_mode
        locked.chmod(0)
        c.run("vllm-serve", model, "--port", 0).expect(1, "[rlalgo.", str(model))
        locked.chmod(mode)
    adapters = c.folder / "adapters"
    (adapters / "closed").mkdir(parents=True)
    (adapters / "closed" / "adapter_config.json").write_text("{}")
    (adapters / "half").mkdir()
    (adapters / "half" / "adapter_config.json").write_text("{}")
    (adapters / "half" / "adapter_config.json").chmod(0)
    (adapters / "closed").chmod(0)
    (c.folder / "unreadable").mkdir(mode=0)
    server = Server(c, "--allowed-path", adapters, "--allowed-path", c.folder / "unreadable")
    try:
        for folder in ("closed", "half"):
            status, told = server.ask("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": str(adapters / folder)})
            message = told["error"]["message"]
            assert status == 400 and "[rlalgo." in message and str(adapters / folder) in message, (folder, told)
        status, told = server.ask("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": str(c.folder / "unreadable" / "a")})
        assert status in (400, 403, 404) and "[rlalgo." in told["error"]["message"], told
        status, told = server.ask("/start_weight_update", {})
        assert status == 200, told
        status, told = server.ask("/update_weights", {"update_info": {"path": str(adapters / "closed")}})
        assert status == 400 and "[rlalgo.serve.19]" in told["error"]["message"], told
        assert server.ask("/v1/completions", {"prompt": "a", "max_tokens": 2})[0] == 200
    finally:
        code, lines = server.stop()
        (adapters / "closed").chmod(0o755)
        (c.folder / "unreadable").chmod(0o755)
    assert code == 143, (code, lines)


@case
def what_it_does_not_start_with(c):
    c.run("vllm-serve").expect(2, "[rlalgo.cli.22]")
    c.run("vllm-serve", "none").expect(2, "[rlalgo.config.20]")
    c.run("vllm-serve", MODEL, "--host", "0.0.0.0", "--port", "0").expect(2, "[rlalgo.serve.22]", "--api-key")
    c.run("vllm-serve", MODEL, "--port", "99999").expect(2, "[rlalgo.cli.7]")
    c.run("vllm-serve", MODEL, "--port", "0", "--max-num-seqs", "16", "--max-num-batched-tokens", "16").expect(
        2, "[rlalgo.cli.7]", "--max-num-batched-tokens 16", "more than --max-num-seqs 16")
    c.run("vllm-serve", MODEL, "--port", "0", "--prefill-rows", "64", "--max-num-batched-tokens", "512").expect(
        2, "[rlalgo.cli.7]", "--prefill-rows 64", "one of the two")
    c.run("vllm-serve", MODEL, "--generation-config", "none").expect(2, "[rlalgo.cli.7]", "generation_config.json")
    c.run("vllm-serve", MODEL, "--dtype", "int4").expect(2, "[rlalgo.cli.7]", "bfloat16")
    server = Server(c)
    try:
        c.run("vllm-serve", MODEL, "--port", server.port).expect(1, "[rlalgo.http.8]")
    finally:
        server.stop()


if __name__ == "__main__":
    main(CASES)
