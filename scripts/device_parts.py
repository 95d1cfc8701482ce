"""What device_check.py and device_timings.py share: parts with time limits of their own, the program that they run, models to run it on.
Standard Python 3."""
import contextlib
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import typing
import urllib.request


class Part(typing.NamedTuple):
    name: str
    function: typing.Callable
    limit: float  # seconds
    kind: str


class NotRun(Exception):
    """Something that a part needs is not on this machine."""


KINDS = ("checks", "timings", "ranks", "sanitizers")  # in this order they run
PARTS = []


def part(limit, kind="checks"):
    def add(function):
        PARTS.append(Part(function.__name__, function, limit, kind))
        return function
    return add


def parts():
    return sorted(PARTS, key=lambda one: KINDS.index(one.kind))


def close(a, b, tolerance):
    return abs(a - b) <= tolerance * max(1.0, abs(a))


def random_tensors(path, shapes, seed=1):
    """A safetensors file in bfloat16: numbers of about ±0.02, ones for the weights of norms."""
    entries, offset = {}, 0
    for key in sorted(shapes):
        size = 2 * math.prod(shapes[key])
        entries[key] = {"dtype": "BF16", "shape": shapes[key], "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    # A block that repeats at a length that no row divides.
    generator = random.Random(seed)
    block = b"".join(struct.pack("<f", generator.gauss(0.0, 0.02))[2:] for _ in range(999983))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for key in sorted(shapes):
            left = 2 * math.prod(shapes[key])
            if len(shapes[key]) == 1 and "norm" in key:
                file.write(b"\x80\x3f" * (left // 2))
                continue
            while left > 0:
                file.write(block[:left])
                left -= min(left, len(block))


class Check:
    def __init__(self, options):
        self.program, self.device = str(pathlib.Path(options.rlalgo).resolve()), options.device
        self.data = pathlib.Path(options.data).resolve()
        self.kernels = pathlib.Path(options.kernels).resolve() if options.kernels else None
        self.head = pathlib.Path(options.head).resolve() if options.head else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rlalgo-device-"))
        self.deadline = 0.0
        self.number = 0

    def left(self):
        return max(1.0, self.deadline - time.monotonic())

    def run(self, *words, text=None, good=True):
        done = subprocess.run([self.program, *map(str, words)], input=text, capture_output=True, text=True, timeout=self.left(), cwd=self.folder)
        if good and done.returncode != 0:
            raise RuntimeError(f"rlalgo {' '.join(map(str, words))[:80]}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
        return done

    def lines(self, verb, model, rows, *words):
        out = self.run(verb, "--model", model, *words, text="".join(json.dumps(r) + "\n" for r in rows)).stdout
        return [json.loads(line) for line in out.splitlines()]

    def session(self, model, *words):
        """A `rlalgo generate` that stays, for many questions."""
        return Session([self.program, "generate", "--model", str(model), "--device", self.device, *map(str, words)], self)

    def pairs(self):
        file = self.folder / "pairs.jsonl"
        rows = [{"prompt": f"{i % 7} + {i % 5} =", "chosen": f" {i % 7 + i % 5}", "rejected": " apples" + " 1" * (i % 3)} for i in range(16)]
        file.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return str(file)

    def config(self, method, **changes):
        base = {"base_model": str(self.data / "model"), "rl": method, "learning_rate": 1e-3, "lr_scheduler": "constant", "warmup_steps": 0,
                "max_steps": 6, "logging_steps": 1, "save_strategy": "no", "micro_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": False}
        if method in ("grpo", "rloo", "gdpo"):
            base["datasets"] = [{"path": str(self.data / "data/train.jsonl"), "type": "rewards.oai_gsm8k_transform"}]
            base["trl"] = {"num_generations": 4, "max_completion_length": 16, "reward_funcs": ["builtin.gsm8k_format", "builtin.gsm8k_accuracy"]}
        else:
            base.update(datasets=[{"path": self.pairs()}], sequence_len=64)
        for key, value in changes.items():
            base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
        return base

    def train(self, config, device, good=True):
        self.number += 1
        out = self.folder / f"out{self.number}"
        file = self.folder / f"c{self.number}.yaml"
        file.write_text(json.dumps({**config, "output_dir": str(out), "device": device}))
        done = self.run("train", file, good=good)
        if not good:
            return done
        return out, [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]

    def random_model(self, name, shape, vocabulary=151936):
        """A Hugging Face directory of that shape in bfloat16 with random weights, with the tokenizer of the small model."""
        out = self.folder / name
        if out.exists():
            return out
        out.mkdir()
        hidden, inner, layers, heads, kv, d = shape
        qwen3 = d * heads != hidden  # norms per head in the place of biases
        config = {"architectures": ["Qwen3ForCausalLM" if qwen3 else "Qwen2ForCausalLM"], "model_type": "qwen3" if qwen3 else "qwen2", "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
                  "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": vocabulary,
                  "max_position_embeddings": 32768, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": 446}
        (out / "config.json").write_text(json.dumps(config))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(self.data / "model" / file, out / file)
        shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
        for i in range(layers):
            at = f"model.layers.{i}."
            for matrix, rows, columns in (("self_attn.q_proj", heads * d, hidden), ("self_attn.k_proj", kv * d, hidden), ("self_attn.v_proj", kv * d, hidden),
                                          ("self_attn.o_proj", hidden, heads * d), ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden), ("mlp.down_proj", hidden, inner)):
                shapes[at + matrix + ".weight"] = [rows, columns]
            if qwen3:
                shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = [d]
            else:
                shapes.update({f"{at}self_attn.{bias}.bias": [rows] for bias, rows in (("q_proj", heads * d), ("k_proj", kv * d), ("v_proj", kv * d))})
            shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = [hidden]
        random_tensors(out / "model.safetensors", shapes)
        return out

    def random_adapter(self, name, shape, rank, seed):
        """A directory as PEFT writes it, with random weights of that rank on every map of a random_model()."""
        out = self.folder / name
        out.mkdir()
        hidden, inner, layers, heads, kv, d = shape
        maps = {"self_attn.q_proj": (heads * d, hidden), "self_attn.k_proj": (kv * d, hidden), "self_attn.v_proj": (kv * d, hidden), "self_attn.o_proj": (hidden, heads * d),
                "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        (out / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
                                                             "target_modules": [key.split(".")[1] for key in maps]}))
        shapes = {}
        for i in range(layers):
            for key, (rows, columns) in maps.items():
                at = f"base_model.model.model.layers.{i}.{key}."
                shapes[at + "lora_A.weight"], shapes[at + "lora_B.weight"] = [rank, columns], [rows, rank]
        random_tensors(out / "adapter_model.safetensors", shapes, seed)
        return out

    @contextlib.contextmanager
    def server(self, *words):
        """A generation server. → its process and URL; killed at the end."""
        process = subprocess.Popen([self.program, "vllm-serve", *map(str, words), "--device", self.device, "--port", "0"], stderr=subprocess.PIPE, text=True, cwd=self.folder)
        end = threading.Timer(self.left(), process.kill)
        end.start()
        try:
            for line in process.stderr:
                if " at http" in line:
                    break
            else:
                raise RuntimeError("the server ended before it served")
            threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would wait for a reader
            yield process, line.split(" at ")[-1].strip()
        finally:
            end.cancel()
            process.kill()
            process.wait()

    def complete(self, url, **body):
        """The answer of /v1/completions."""
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=self.left()))


class Session:
    """A program that answers a JSON line for each that it is sent. Ends with the part's time."""

    def __init__(self, command, check):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, cwd=check.folder)
        self.end = threading.Timer(check.left(), self.process.kill)
        self.end.start()

    def ask(self, rows):
        """→ the answers, and seconds from the first byte out to the last one in."""
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        begin = time.perf_counter()
        writer = threading.Thread(target=self.write, args=(text,))
        writer.start()
        lines = [line for line in (self.process.stdout.readline() for _ in rows) if line]
        seconds = time.perf_counter() - begin
        writer.join()
        answers = [json.loads(line) for line in lines]
        wrong = next((a["error"] for a in answers if "error" in a), None)
        if len(answers) != len(rows) or wrong:
            self.process.kill()
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{len(answers)} answers of {len(rows)}: {wrong or self.errors.read().decode(errors='replace').strip()[-600:]}")
        return answers, seconds

    def write(self, text):
        with contextlib.suppress(BrokenPipeError):  # the answers that are missing say it
            self.process.stdin.write(text)
            self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end.cancel()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


@contextlib.contextmanager
def kernels_used(names):
    """The project's kernels that the programs below use: "all", "none" or names."""
    before = os.environ.get("RLALGO_CUDA_KERNELS")
    os.environ["RLALGO_CUDA_KERNELS"] = names
    try:
        yield
    finally:
        if before is None:
            del os.environ["RLALGO_CUDA_KERNELS"]
        else:
            os.environ["RLALGO_CUDA_KERNELS"] = before
