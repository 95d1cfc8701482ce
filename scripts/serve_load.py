#!/usr/bin/env python3
"""Mixed load on a server of ours, with an oracle: every greedy answer is the answer alone.

    scripts/serve_load.py --rlalgo build/release/bin/rlalgo [--model DIR] [--minutes 1] [--clients 12] [--seed 0]

Starts `rlalgo vllm-serve` and asks it from many threads for completions, conversations and TRL's lists, whole and as streams,
from the base model and from two adapters that are replaced all the while; a third of the clients leave in the middle, some send
nonsense, some pause the engine or reset its cache. Beforehand each prompt's greedy answer is taken alone, of the base model and
of each version of the adapters. An answer that is greedy and whole must be one of them: of the version that was loaded when it was
asked for, or of one that came later. At the end no request may be left and no page of keys and values in use; memory may not
have grown by more than --growth MB since a tenth of the time was over.

Exit status 0 if all was so, the server ended in order and its sanitizer, if it has one (presets `address` and `thread`), had
nothing to report. LibTorch and libgomp are not instrumented. A ThreadSanitizer build therefore runs with one compute thread and
leaves out what they do themselves (scripts/tsan.supp); our own code, the HTTP server, the scheduler and the engine, is seen.
Standard library only.
"""
import argparse
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


class Wrong(Exception):
    pass


class Load:
    def __init__(self, arguments, port, folder):
        self.arguments, self.port, self.folder = arguments, port, folder
        self.end = time.time() + 60 * arguments.minutes
        self.lock, self.counts, self.wrong = threading.Lock(), {}, []
        self.loaded = {name: 0 for name in ADAPTERS}  # version by name; changed before the request to change it
        self.settled = dict(self.loaded)  # the version whose load has been answered

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
        """answers[model][version][prompt]: the longest greedy completion, taken alone."""
        def of(model):
            return {p: self.good("/v1/completions", self.greedy(model, p, LENGTHS[-1]))["choices"][0]["token_ids"] for p in PROMPTS}
        self.answers = {"m": [of("m")]}
        for name in ADAPTERS:
            self.answers[name] = []
            for version in range(VERSIONS):
                self.load(name, version)
                self.answers[name].append(of(name))
            self.load(name, 0)
            different = {json.dumps(a) for a in self.answers[name]} | {json.dumps(self.answers["m"][0])}
            if len(different) != VERSIONS + 1:
                raise Wrong("the adapters do not change the greedy answers: nothing would be shown")

    # What one client does, again and again.

    def check(self, model, prompt, tokens, ids, possible):
        """`possible`: versions that may have been asked; None: all."""
        known = self.answers[model]
        for version in possible if possible is not None else range(len(known)):
            if ids == known[version][prompt][:tokens]:
                return
        raise Wrong(f"{model} on {prompt!r} gave {ids}, none of the answers alone (versions {possible})")

    def versions_since(self, model, before):
        """Versions that a request may have begun with: the one settled before it was sent, and every later one."""
        if model == "m":
            return [0]
        with self.lock:
            last = self.loaded[model]
        return sorted({v % VERSIONS for v in range(before, last + 1)})

    def whole(self, rng, model):
        prompt, tokens = rng.choice(PROMPTS), rng.choice(LENGTHS)
        with self.lock:
            before = self.settled.get(model, 0)
        ids = self.good("/v1/completions", self.greedy(model, prompt, tokens))["choices"][0]["token_ids"]
        self.check(model, prompt, tokens, ids, self.versions_since(model, before))

    def stream(self, rng, model, leave):
        prompt, tokens = rng.choice(PROMPTS), LENGTHS[-1] if leave else rng.choice(LENGTHS)
        with self.lock:
            before = self.settled.get(model, 0)
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
            self.check(model, prompt, tokens, ids, self.versions_since(model, before))

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
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", required=True)
    parser.add_argument("--model", default=str(ROOT / "examples/quickstart/model"))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--growth", type=float, default=64.0, help="MB by which the server's memory may grow")
    arguments = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "TSAN_OPTIONS": f"suppressions={ROOT}/scripts/tsan.supp:halt_on_error=0:exitcode=66:second_deadlock_stack=1",
                   "ASAN_OPTIONS": "detect_leaks=1:exitcode=66:detect_container_overflow=0",
                   "LSAN_OPTIONS": f"suppressions={ROOT}/scripts/lsan.supp",
                   "UBSAN_OPTIONS": "print_stacktrace=1"}
    with tempfile.TemporaryDirectory(prefix="rlalgo-load-") as folder:
        folder = pathlib.Path(folder)
        for a, name in enumerate(ADAPTERS):
            for version in range(VERSIONS):
                write_adapter(folder / f"{name}-{version}", arguments.model, 10 * a + version)
        log = folder / "log"
        server = subprocess.Popen([arguments.rlalgo, "vllm-serve", arguments.model, "--port", "0", "--served-model-name", "m",
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
            threads.append(threading.Thread(target=load.swapper, daemon=True))
            begin = time.time()
            for thread in threads:
                thread.start()
            while time.time() < begin + 6 * arguments.minutes and not load.wrong:
                time.sleep(0.2)
            early = resident_mb(server.pid)
            for thread in threads:
                thread.join(max(0.0, load.end - time.time()) + 300)
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
