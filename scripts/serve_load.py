#!/usr/bin/env python3
"""Mixed load on a server of ours, with an oracle: every greedy answer is the answer alone.

    scripts/serve_load.py --rlalgo build/release/bin/rlalgo [--model DIR] [--minutes 1] [--clients 12] [--seed 0] [--torch PYTHON]

Starts `rlalgo vllm-serve` and asks it from many threads for completions, conversations and TRL's lists, whole and as streams,
from the base model and from two adapters that are replaced all the while; a third of the clients leave in the middle, some send
nonsense, some pause the engine or reset its cache. A trainer replaces the base model's weights: over HTTP at once or in a session, from a
file, and, where PYTHON has torch, by broadcasts in TRL's order and in vLLM's; now and then it dies in the middle. Beforehand each prompt's
greedy answer is taken alone, of each version of the base model, and of each version of the adapters on it. An answer that is greedy and
whole must be one of them: of the versions that were loaded when it was asked for, or of some that came later. At the end no request may be
left and no page of keys and values in use; memory may not have grown by more than --growth MB since a tenth of the time was over.

Exit status 0 if all was so, the server ended in order and its sanitizer, if it has one (presets `address` and `thread`), had
nothing to report. LibTorch and libgomp are not instrumented. A ThreadSanitizer build therefore runs with one compute thread and
leaves out what they do themselves (scripts/tsan.supp); our own code, the HTTP server, the scheduler and the engine, is seen.
Standard library only, but for --torch.
"""
import argparse
import base64
import http.client
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = ["3 + 4 =", "The sum of 12 and 9 is", "A", "What is 7 times 8? Think about it, step by step, and then answer.", "1 2 3 4 5"]
ADAPTERS = ("left", "right")
VERSIONS = 3
BASES = 2
LENGTHS = (4, 16, 48)


def write_adapter(folder, model, seed):
    """An adapter of rank 4 on q_proj and down_proj with random float32 values, as PEFT writes it."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    shapes = {"self_attn.q_proj": (heads * head, hidden), "mlp.down_proj": (hidden, config["intermediate_size"])}
    rng, header, data = random.Random(seed), {}, b""
    for layer in range(config["num_hidden_layers"]):
        for part, (rows, columns) in shapes.items():
            for matrix, shape in (("A", (4, columns)), ("B", (rows, 4))):
                values = [rng.gauss(0.0, 0.2) for _ in range(shape[0] * shape[1])]
                block = struct.pack(f"<{len(values)}f", *values)
                name = f"base_model.model.model.layers.{layer}.{part}.lora_{matrix}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(block)]}
                data += block
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "m", "r": 4, "lora_alpha": 8, "lora_dropout": 0.0,
        "bias": "none", "target_modules": ["q_proj", "down_proj"], "modules_to_save": None, "use_rslora": False, "use_dora": False,
        "inference_mode": True, "fan_in_fan_out": False}))


def read_tensors(file):
    """name → (shape, bytes) of a safetensors file of bfloat16."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    if {entry["dtype"] for entry in header.values()} != {"BF16"}:
        sys.exit(f"{file} is not of bfloat16")
    return {name: (entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_tensors(file, tensors):
    header, data = {}, b""
    for name, (shape, block) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def other_weights(tensors, seed):
    """The same with every value multiplied by a random number near 1."""
    rng, out = random.Random(seed), {}
    for name, (shape, block) in tensors.items():
        words = struct.unpack(f"<{len(block) // 2}H", block)
        values = struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))
        bits = struct.unpack(f"<{len(words)}I", struct.pack(f"<{len(words)}f", *(v * (1 + 0.2 * rng.gauss(0, 1)) for v in values)))
        out[name] = (shape, struct.pack(f"<{len(words)}H", *(b >> 16 for b in bits)))
    return out


class Wrong(Exception):
    pass


class Load:
    def __init__(self, arguments, port, folder):
        self.arguments, self.port, self.folder = arguments, port, folder
        self.end = time.time() + 60 * arguments.minutes
        self.lock, self.counts, self.wrong = threading.Lock(), {}, []
        self.loaded = {name: 0 for name in ("m", *ADAPTERS)}  # version by name; changed before the request to change it
        self.settled = dict(self.loaded)  # the version whose load has been answered
        self.bases = [read_tensors(folder / f"base-{version}.safetensors") for version in range(BASES)]
        self.fence = threading.Lock()  # TRL's fence puts in force what has come of a broadcast, whoever asks for it
        self.trainer_process = None

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, path, body, method="POST"):
        connection = self.connect()
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def good(self, path, body=None, method="POST"):
        status, text = self.ask(path, body, method)
        if status != 200:
            raise Wrong(f"{path} is {status}: {text[:300]}")
        return json.loads(text) if text else None

    def load(self, name, version):
        self.good_text("/v1/load_lora_adapter", {"lora_name": name, "load_inplace": True,
                                                 "lora_path": str(self.folder / f"{name}-{version}")})

    def good_text(self, path, body):
        status, text = self.ask(path, body)
        if status != 200:
            raise Wrong(f"{path} is {status}: {text[:300]}")

    @staticmethod
    def greedy(model, prompt, tokens):
        return {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}

    def take_answers(self):
        """answers[model][base version][adapter version][prompt]: the longest greedy completion, taken alone."""
        def of(model):
            return {p: self.good("/v1/completions", self.greedy(model, p, LENGTHS[-1]))["choices"][0]["token_ids"] for p in PROMPTS}
        self.answers = {name: [] for name in ("m", *ADAPTERS)}
        for base in range(BASES):
            self.over_http(base)
            self.answers["m"].append([of("m")])
            for name in ADAPTERS:
                self.answers[name].append([])
                for version in range(VERSIONS):
                    self.load(name, version)
                    self.answers[name][base].append(of(name))
                self.load(name, 0)
        self.over_http(0)
        different = {json.dumps(one) for name in ("m", *ADAPTERS) for base in self.answers[name] for one in base}
        if len(different) != BASES * (1 + len(ADAPTERS) * VERSIONS):
            raise Wrong("weights or adapters do not change the greedy answers: nothing would be shown")

    # How weights come.

    def over_http(self, base):
        self.good("/http_update_weights/", {"params": [
            {"name": name, "dtype": "torch.bfloat16", "wire_dtype": "bfloat16", "shape": shape, "data": base64.b64encode(block).decode()}
            for name, (shape, block) in self.bases[base].items()]})

    def in_a_session(self, base, session):
        names = list(self.bases[base])
        self.good("/start_weight_update", {"session": session})
        for part in (names[::2], names[1::2]):
            tensors = [self.bases[base][name] for name in part]
            self.good("/update_weights", {"session": session, "update_info": {
                "names": part, "dtype_names": ["bfloat16"] * len(part), "shapes": [shape for shape, _ in tensors],
                "data": [base64.b64encode(block).decode() for _, block in tensors]}})
        self.good("/finish_weight_update", {"session": session})

    def begun_twice(self, base, session):
        """A session that is left after half of its tensors, of the other weights, and begins anew."""
        other = self.bases[1 - base]
        name = next(iter(other))
        self.good("/start_weight_update", {"session": session})
        self.good("/update_weights", {"session": session, "update_info": {
            "names": [name], "dtype_names": ["bfloat16"], "shapes": [other[name][0]], "data": [base64.b64encode(other[name][1]).decode()]}})
        self.in_a_session(base, session)

    def from_a_file(self, base, session):
        self.good("/start_weight_update", {"session": session})
        self.good("/update_weights", {"session": session, "update_info": {"path": str(self.folder / f"base-{base}.safetensors")}})
        self.good("/finish_weight_update", {"session": session})

    def broadcast(self, base, way, stop_after=None):
        with self.fence:
            if self.trainer_process is None:
                self.trainer_process = subprocess.Popen(
                    [self.arguments.torch, ROOT / "scripts/serve_load_broadcast.py", str(self.port),
                     *(self.folder / f"base-{version}.safetensors" for version in range(BASES))],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.trainer_process.stdout.readline()
            process = self.trainer_process
            process.stdin.write(json.dumps({"way": way, "version": base, "stop_after": stop_after}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if answer and stop_after is None:
                return
            code = process.wait(120)
            self.trainer_process = None
            if stop_after is None or code != 0:
                raise Wrong(f"a broadcast as {way} ended with {code}")
            # The next act of the update may say that tensors did not come; the one after it is another trainer's.
            self.ask("/close_communicator/" if way.startswith("trl") else "/finish_weight_update", {})

    def trainer(self):
        rng, count = random.Random(self.arguments.seed + 77), 0
        ways = ["http", "session", "twice", "file"]
        if self.arguments.torch:
            ways += ["trl", "trl_batch", "vllm", "vllm_packed"]
        while time.time() < self.end and not self.wrong:
            count += 1
            way = ways[count % len(ways)]
            version, session = self.settled["m"] + 1, f"session {count}"
            try:
                if way in ways[4:] and rng.random() < 0.2:
                    self.broadcast(version % BASES, way, rng.randrange(3))
                    self.count(f"died_{way}")
                    continue
                with self.lock:
                    self.loaded["m"] = version
                if way == "http":
                    self.over_http(version % BASES)
                elif way in ways[4:]:
                    self.broadcast(version % BASES, way)
                else:
                    {"session": self.in_a_session, "twice": self.begun_twice, "file": self.from_a_file}[way](version % BASES, session)
                with self.lock:
                    self.settled["m"] = version
                self.count(f"weights_{way}")
            except (Wrong, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
                self.wrong.append(f"weights as {way}: {type(error).__name__}: {error}")
            time.sleep(rng.random() * 0.6)

    # What one client does, again and again.

    def check(self, model, prompt, tokens, ids, before):
        bases, versions = self.versions_since("m", before["m"], BASES), self.versions_since(model, before[model], VERSIONS)
        for base in bases:
            for version in versions if model != "m" else [0]:
                if ids == self.answers[model][base][version][prompt][:tokens]:
                    return
        raise Wrong(f"{model} on {prompt!r} gave {ids}, none of the answers alone (weights {bases}, versions {versions})")

    def now(self):
        with self.lock:
            return dict(self.settled)

    def versions_since(self, name, before, count):
        """Versions that a request may have begun with: the one settled before it was sent, and every later one."""
        with self.lock:
            last = self.loaded[name]
        return sorted({v % count for v in range(before, last + 1)})

    def whole(self, rng, model):
        prompt, tokens = rng.choice(PROMPTS), rng.choice(LENGTHS)
        before = self.now()
        ids = self.good("/v1/completions", self.greedy(model, prompt, tokens))["choices"][0]["token_ids"]
        self.check(model, prompt, tokens, ids, before)

    def stream(self, rng, model, leave):
        prompt, tokens = rng.choice(PROMPTS), LENGTHS[-1] if leave else rng.choice(LENGTHS)
        before = self.now()
        connection = self.connect()
        try:
            connection.request("POST", "/v1/completions", json.dumps({**self.greedy(model, prompt, tokens), "stream": True}))
            answer = connection.getresponse()
            if answer.status != 200:
                raise Wrong(f"a stream is {answer.status}: {answer.read()[:300]}")
            ids, pieces = [], rng.randrange(1, 8)
            for line in answer:
                if line.startswith(b"data: {"):
                    ids += json.loads(line[6:])["choices"][0]["token_ids"]
                    pieces -= 1
                    if leave and pieces == 0:
                        return
        finally:
            connection.close()
        if not leave:
            self.check(model, prompt, tokens, ids, before)

    def leave_early(self, rng, model):
        connection = self.connect()
        connection.request("POST", "/v1/completions", json.dumps({**self.greedy(model, rng.choice(PROMPTS), 150), "n": 2}))
        time.sleep(rng.random() * 0.1)
        connection.close()

    def trl(self, rng, _):
        out = self.good("/generate/", {"prompts": PROMPTS[:3], "n": 2, "temperature": 1.0, "max_tokens": 8, "logprobs": 2,
                                       "model": "m", "generation_kwargs": {"ignore_eos": True}})
        if [len(c) for c in out["completion_ids"]] != [8] * 6 or any(x > 0 for s in out["logprobs"] for t in s for x in t):
            raise Wrong(f"/generate/ gave {str(out)[:300]}")

    def chat(self, rng, model):
        body = {"model": model, "messages": [{"role": "user", "content": rng.choice(PROMPTS)}], "max_tokens": 8,
                "logprobs": True, "top_logprobs": 2, "seed": rng.randrange(1000)}
        if rng.random() < 0.3:
            body["structured_outputs"] = {"regex": "[0-9]{2,4}"}
        out = self.good("/v1/chat/completions", body)["choices"][0]
        if "structured_outputs" in body and not re.fullmatch("[0-9]{2,4}", out["message"]["content"]):
            raise Wrong(f"a text that was held to digits is {out['message']['content']!r}")

    def nonsense(self, rng, _):
        body = rng.choice(["{", '{"prompt": [99999999]}', '{"prompt": "a", "n": -1}', "[" * 5000, '{"prompt": "a", "model": "nobody"}'])
        connection = self.connect()
        connection.request("POST", rng.choice(["/v1/completions", "/generate/"]), body)
        status = connection.getresponse().status
        connection.close()
        if not 400 <= status < 500:
            raise Wrong(f"{body[:40]} is {status}")

    def control(self, rng, _):
        what = rng.choice(["reset", "metrics", "pause"])
        if what == "reset":
            with self.fence:
                self.good("/reset_prefix_cache/", {})
        elif what == "metrics":
            self.ask("/metrics", None, "GET")
        else:
            self.good(f"/pause?mode={rng.choice(['keep', 'wait'])}")
            time.sleep(rng.random() * 0.05)
            self.good("/resume")

    def client(self, number):
        rng = random.Random(self.arguments.seed * 1000 + number)
        kinds = [(self.whole, 5), (lambda r, m: self.stream(r, m, False), 4), (lambda r, m: self.stream(r, m, True), 3),
                 (self.leave_early, 2), (self.trl, 1), (self.chat, 2), (self.nonsense, 1), (self.control, 1)]
        names = ["whole", "stream", "left_stream", "left_early", "trl", "chat", "nonsense", "control"]
        while time.time() < self.end and not self.wrong:
            at = rng.choices(range(len(kinds)), [w for _, w in kinds])[0]
            try:
                kinds[at][0](rng, rng.choice(("m", *ADAPTERS)))
                self.count(names[at])
            except (Wrong, OSError, http.client.HTTPException, ValueError) as error:
                with self.lock:
                    self.wrong.append(f"{names[at]}: {type(error).__name__}: {error}")

    def swapper(self):
        rng = random.Random(self.arguments.seed)
        while time.time() < self.end and not self.wrong:
            name = rng.choice(ADAPTERS)
            with self.lock:
                self.loaded[name] += 1
                version = self.loaded[name]
            try:
                self.load(name, version % VERSIONS)
            except (Wrong, OSError, http.client.HTTPException) as error:
                self.wrong.append(f"swap: {error}")
            with self.lock:
                self.settled[name] = version
            self.count("swap")
            time.sleep(rng.random() * 0.3)

    def metric(self, name):
        text = self.ask("/metrics", None, "GET")[1].decode()
        return sum(float(v) for v in re.findall(rf"^vllm:{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))

    def wait_idle(self):
        end = time.time() + 60
        while time.time() < end:
            if self.metric("num_requests_running") + self.metric("num_requests_waiting") == 0:
                return
            time.sleep(0.1)
        raise Wrong("requests are stuck")


def resident_mb(pid):
    found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0  # it has ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", required=True)
    parser.add_argument("--model", default=str(ROOT / "examples/quickstart/model"))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", help="a Python program that has torch, for broadcasts")
    parser.add_argument("--growth", type=float, default=64.0, help="MB by which the server's memory may grow")
    arguments = parser.parse_args()
    # Of Gloo's mutexes ThreadSanitizer sees what condition variables do alone: it would count locks that it never sees released.
    mutexes = "detect_deadlocks=0:report_mutex_bugs=0" if arguments.torch else "second_deadlock_stack=1"
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "TSAN_OPTIONS": f"suppressions={ROOT}/scripts/tsan.supp:halt_on_error=0:exitcode=66:{mutexes}",
                   "ASAN_OPTIONS": "detect_leaks=1:exitcode=66:detect_container_overflow=0",
                   "LSAN_OPTIONS": f"suppressions={ROOT}/scripts/lsan.supp",
                   "UBSAN_OPTIONS": "print_stacktrace=1"}
    with tempfile.TemporaryDirectory(prefix="rlalgo-load-") as folder:
        folder = pathlib.Path(folder)
        for a, name in enumerate(ADAPTERS):
            for version in range(VERSIONS):
                write_adapter(folder / f"{name}-{version}", arguments.model, 10 * a + version)
        weights = read_tensors(pathlib.Path(arguments.model) / "model.safetensors")
        for version in range(BASES):
            write_tensors(folder / f"base-{version}.safetensors", other_weights(weights, version) if version > 0 else weights)
        log = folder / "log"
        server = subprocess.Popen([arguments.rlalgo, "vllm-serve", arguments.model, "--port", "0", "--served-model-name", "m", "--broadcast-timeout", "60",
                                   "--max-num-seqs", "8", "--kv-cache-mb", "16"], stderr=log.open("wb"), env=environment)
        failed = []
        try:
            end, found = time.time() + 120, None
            while not found and time.time() < end and server.poll() is None:
                time.sleep(0.05)
                found = re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text())
            if not found:
                sys.exit("the server did not start:\n" + log.read_text()[-3000:])
            load = Load(arguments, int(found[1]), folder)
            load.take_answers()
            threads = [threading.Thread(target=load.client, args=(n,), daemon=True) for n in range(arguments.clients)]
            threads += [threading.Thread(target=load.swapper, daemon=True), threading.Thread(target=load.trainer, daemon=True)]
            begin = time.time()
            for thread in threads:
                thread.start()
            while time.time() < begin + 6 * arguments.minutes and not load.wrong and server.poll() is None:
                time.sleep(0.2)
            early = resident_mb(server.pid)
            for thread in threads:
                thread.join(max(0.0, load.end - time.time()) + 300)
            if load.trainer_process is not None:
                load.trainer_process.stdin.close()
                load.trainer_process.wait(60)
            if any(thread.is_alive() for thread in threads):
                failed.append("a request was not answered for five minutes")
            failed += load.wrong
            try:
                load.wait_idle()
                if load.metric("kv_cache_usage_perc") != 0:
                    failed.append("pages of keys and values are still in use")
            except (Wrong, OSError) as error:
                failed.append(str(error))
            late = resident_mb(server.pid)
            if late - early > arguments.growth:
                failed.append(f"memory grew from {early:.0f} to {late:.0f} MB")
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(120)
            except subprocess.TimeoutExpired:
                server.kill()
                code = "none: it had to be killed"
        text = log.read_text(errors="replace")
        if code not in (143, -signal.SIGTERM):
            failed.append(f"exit status {code}")
        reports = re.findall(r"^.*(?:WARNING: ThreadSanitizer|ERROR: (?:Address|Leak)Sanitizer|runtime error:).*$", text, re.M)
        failed += sorted(set(reports))[:5]
        seconds = time.time() - begin
        print(json.dumps({"seconds": round(seconds), "requests": sum(load.counts.values()), **dict(sorted(load.counts.items())),
                          "mb_early": round(early), "mb_late": round(late), "reports": len(reports)}))
        if failed:
            kept = pathlib.Path(tempfile.gettempdir(), "serve_load.log")
            kept.write_text(text)
            print("\n".join(failed[:20]) + f"\nthe server's standard error is in {kept}")
    sys.exit(bool(failed))


main()
