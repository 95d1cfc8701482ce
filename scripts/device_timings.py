"""The parts of scripts/device_check.sh that show how fast a device is: a token step, a training step, a GRPO step, the log-prob head, each
by LibTorch's operators and with the project's kernels, beside transformers and TRL where this Python has them.

No part fails for being slow. `floor` is what memory or products of an H100 take, computed; `first gate` and `goal` what the project set
itself on one. Models have the shapes of those that are named, and random weights.
"""
import concurrent.futures
import importlib.util
import json
import statistics
import subprocess
import sys
import time

from device_parts import NotRun, kernels_used, part

SMALL = (64, 128, 2, 4, 2, 16)  # on a CPU, where only is seen that the parts run
HALF, LARGER, FOUR = (896, 4864, 24, 14, 2, 64), (1536, 8960, 28, 12, 2, 128), (2560, 9728, 36, 32, 8, 128)


def real(c):
    return c.device != "cpu"


def model_of(c, name, shape):
    return c.random_model(name, shape if real(c) else SMALL, 151936 if real(c) else 1024)


def target(floor, first_gate, goal):
    return {"floor": floor, "first gate": first_gate, "goal": goal}


def both(c, function):
    """`function()` with the project's kernels and without. One that fails does not hide the other."""
    out, failed = {}, []
    for name, used in (("kernels", "all"), ("operators", "none")):
        with kernels_used(used):
            try:
                out[name] = function()
            except subprocess.TimeoutExpired:
                raise
            except Exception as error:  # said with the other's figures
                out[name] = f"{type(error).__name__}: {error}"
                failed.append(name)
    if failed:
        raise RuntimeError(json.dumps(out))
    return out


def prompts(count, tokens, seed=0):
    return [[(i * 7919 + j * 104729 + seed * 31 + i * j) % 440 for j in range(tokens)] for i in range(count)]


def token_step(session, count, prompt, tokens, few=8, repeats=3):
    """Milliseconds of a token step of `count` completions, `prompt` + tokens/2 positions on average: what `tokens` more take, by their number."""
    rows = [{"ids": ids, "temperature": 1.0} for ids in prompts(count, prompt)]
    session.ask([{**row, "max_new_tokens": few} for row in rows])  # the prefix cache has the prompts now, graphs are recorded
    session.ask([{**row, "max_new_tokens": tokens + few} for row in rows])
    each = []
    for _ in range(repeats):
        less = session.ask([{**row, "max_new_tokens": few} for row in rows])[1]
        each.append(session.ask([{**row, "max_new_tokens": tokens + few} for row in rows])[1] - less)
    return round(1e3 * statistics.median(each) / tokens, 3)


def decoding(c, model, *words):
    batches, prompt, tokens = ((1, 64, 256), 536, 128) if real(c) else ((1, 4), 16, 8)
    with c.session(model, "--dtype", "bfloat16", "--batch", batches[-1], *words) as session:
        return {batch: token_step(session, batch, prompt, tokens) for batch in batches}


@part(80, "timings")
def decode_half_billion(c):
    """Milliseconds of a token step at batch 1, 64 and 256, context 600; what numbers that depend on nothing else cost."""
    model = model_of(c, "half-billion", HALF)
    out = {**both(c, lambda: decoding(c, model)), **target((0.33, 0.49, 0.96), (1.3, 1.6, 2.6), (0.65, 0.85, 1.6))}
    with kernels_used("all"):
        out["generation-invariant"] = decoding(c, model, "--generation-invariant")
    return out


@part(100, "timings")
def decode_in_8_bits(c):
    """The same with weights in int8 and fp8, and with keys and values in fp8, by the project's kernels."""
    model, out = model_of(c, "half-billion", HALF), {}
    settings = {"int8": ("--quantization", "int8"), "fp8": ("--quantization", "fp8"), "keys and values in fp8": ("--kv-cache-dtype", "fp8"),
                "int8, keys and values in fp8": ("--quantization", "int8", "--kv-cache-dtype", "fp8")}
    with kernels_used("all"):
        for name, words in settings.items():
            if real(c) or name == "int8":  # the CPU has no fp8
                out[name] = decoding(c, model, *words)
    return out


@part(40, "timings")
def log_prob_head(c):
    """Forward, backward and entropy of 8,192 tokens: milliseconds and extra MB."""
    if c.head is None or not c.head.exists():
        raise NotRun("bench_device_log_prob_head was not built: scripts/setup.sh --preset benchmark -- bench_device_log_prob_head")

    def run():
        done = subprocess.run([c.head, c.device], capture_output=True, text=True, timeout=c.left())
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-600:])
        return json.loads(done.stdout)
    return {**both(c, run), "H 896, V 151,936": target(8.4, 30, 18), "H 4,096, V 131,072": target(33, 70, 55)}


def steps(c, model, pairs, tokens, **changes):
    """Of a SimPO step over `pairs` × 2 rows of about `tokens` tokens, all in one micro-batch: of the last two of four."""
    if not real(c):
        pairs, tokens = 1, 32
    file = c.folder / f"rows-{pairs}-{tokens}.jsonl"
    # A row has its own text, or rows would share their beginnings.
    words = lambda seed: " ".join(str((seed * 37 + i * i) % 10) for i in range(tokens // 2 - 8))
    file.write_text("".join(json.dumps({"prompt": f"{i}:", "chosen": " 1 " + words(i), "rejected": " 2 " + words(i + 100)}) + "\n" for i in range(pairs * 4)))
    config = c.config("simpo", base_model=str(model), bf16=True, datasets=[{"path": str(file)}], sequence_len=tokens, micro_batch_size=pairs, gradient_accumulation_steps=1,
                      max_steps=4, learning_rate=1e-6, **changes)
    _, records = c.train(config, c.device)
    last = records[-1]
    return {"seconds": round(statistics.mean(r["time/step"] for r in records[-2:]), 4), "tokens": (last["num_tokens"] - records[-2]["num_tokens"]), "mfu": last.get("train/mfu"),
            "peak GiB": last.get("memory/max_allocated (GiB)")}


LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_linear": True}


@part(75, "timings")
def train_half_billion(c):
    """A full step of 16 rows of 1,024 tokens, and one of LoRA."""
    model = model_of(c, "half-billion", HALF)
    out = {"full": both(c, lambda: steps(c, model, 8, 1024)), **target(0.064, 0.21, 0.14)}
    with kernels_used("all"):
        out["LoRA"] = steps(c, model, 8, 1024, **LORA)
        out["recomputed"] = steps(c, model, 8, 1024, gradient_checkpointing=True)
        out["4 bits, LoRA"] = steps(c, model, 8, 1024, **{**LORA, "adapter": "qlora", "load_in_4bit": True})
    return out


GRPO = """
import json, sys, time, torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
given = json.load(sys.stdin)
class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.begin = time.perf_counter()
    def on_step_end(self, args, state, control, **__):
        if given["device"] != "cpu":
            torch.cuda.synchronize()
        print("seconds", time.perf_counter() - self.begin, flush=True)
settings = GRPOConfig(output_dir=given["folder"], per_device_train_batch_size=8, gradient_accumulation_steps=given["completions"] // 8, num_generations=8, max_completion_length=given["tokens"],
                      max_steps=2, learning_rate=1e-6, lr_scheduler_type="constant", warmup_steps=0, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, beta=0.0,
                      loss_type="grpo", bf16=True, gradient_checkpointing=False, use_cpu=given["device"] == "cpu", use_transformers_continuous_batching=given["continuous"])
model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.bfloat16)
GRPOTrainer(model=model, reward_funcs=lambda completions, **_: [float(len(c)) for c in completions], args=settings, train_dataset=Dataset.from_list([{"prompt": p} for p in given["prompts"]]),
            processing_class=AutoTokenizer.from_pretrained(given["model"]), callbacks=[Clock()]).train()
"""


def found(*packages):
    missing = [name for name in packages if not importlib.util.find_spec(name)]
    return f"{', '.join(missing)} is not in this Python" if missing else None


def in_python(c, script, given):
    """A peer's script. → what it printed, or why it did not run: a peer that fails is no failure of ours."""
    try:
        done = subprocess.run([sys.executable, "-c", script], input=json.dumps(given), capture_output=True, text=True, timeout=c.left())
    except subprocess.TimeoutExpired:
        return None, "took longer than the part's time"
    return (done.stdout, None) if done.returncode == 0 else (None, done.stderr.strip()[-300:])


@part(110, "timings")
def grpo_beside_trl(c):
    """Seconds of a GRPO step: 8 prompts × 8 completions, 256 + 512 tokens, of the half-billion shape; TRL with generate() and with continuous batching."""
    model = model_of(c, "half-billion", HALF)
    count, prompt, tokens = (8, 256, 512) if real(c) else (1, 8, 8)
    texts = [" ".join(str((seed * 37 + i * i) % 10) for i in range(prompt // 2)) for seed in range(count)]
    rows = c.folder / "grpo.jsonl"
    rows.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    reward = c.folder / "lengths.py"
    reward.write_text("def length(completions, **_):\n    return [float(len(c)) for c in completions]\n")
    config = c.config("grpo", base_model=str(model), bf16=True, datasets=[{"path": str(rows)}], micro_batch_size=8, gradient_accumulation_steps=count, max_steps=3, learning_rate=1e-6,
                      trl={"num_generations": 8, "max_completion_length": tokens, "beta": 0.0, "loss_type": "grpo", "reward_funcs": ["lengths.length"]})

    def ours():
        record = c.train(config, c.device)[1][-1]
        return {key: round(record[key], 4) for key in ("time/step", "time/generate", "time/train", "time/optimizer") if key in record} | {"mfu": record.get("train/mfu"), "length": record.get("completions/mean_length")}
    out = {**both(c, ours), "goal": "5 times TRL with generate; 10"}
    for name, continuous in (("TRL, generate()", False), ("TRL, continuous batching", True)):
        if why := found("trl", "transformers", "datasets"):
            out[name] = f"not run: {why}"
            continue
        said, why = in_python(c, GRPO, {"device": c.device, "folder": str(c.folder / "trl"), "model": str(model), "prompts": texts * 3, "tokens": tokens, "completions": 8 * count, "continuous": continuous})
        out[name] = f"not run: {why}" if why else float([line for line in said.splitlines() if line.startswith("seconds")][-1].split()[1])
    return out


GENERATE = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM, GenerationConfig
given = json.load(sys.stdin)
model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.bfloat16).to(given["device"]).eval()
def timed(tokens):
    with torch.inference_mode():
        if given["batched"]:
            begin = time.perf_counter()
            model.generate_batch(given["prompts"], generation_config=GenerationConfig(max_new_tokens=tokens, do_sample=True, eos_token_id=-1, pad_token_id=0))
        else:
            ids = torch.tensor(given["prompts"], device=given["device"])
            begin = time.perf_counter()
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, pad_token_id=0).cpu()
    return time.perf_counter() - begin
timed(4)
less = timed(given["few"])
print((timed(given["few"] + given["tokens"]) - less) * 1e3 / given["tokens"])
"""


@part(60, "timings")
def decode_beside_transformers(c):
    """Milliseconds of a token step of 64 completions: transformers' generate() and generate_batch()."""
    if why := found("torch", "transformers"):
        raise NotRun(why)
    model = model_of(c, "half-billion", HALF)
    count, prompt, tokens = (64, 536, 64) if real(c) else (2, 8, 4)
    out = {}
    with kernels_used("all"), c.session(model, "--dtype", "bfloat16", "--batch", count) as session:
        out["ours"] = token_step(session, count, prompt, tokens, few=4)
    for name, batched in (("generate()", False), ("generate_batch()", True)):
        said, why = in_python(c, GENERATE, {"device": c.device, "model": str(model), "prompts": prompts(count, prompt), "few": 4, "tokens": tokens, "batched": batched})
        out[name] = f"not run: {why}" if why else round(float(said.split()[-1]), 3)
    return out


@part(100, "timings")
def decode_four_billion(c):
    """Milliseconds of a token step of Qwen3-4B's shape; seconds of 1,500 requests of 512 to 128 tokens."""
    model = model_of(c, "four-billion", FOUR)
    requests, prompt, tokens = (1500, 512, 128) if real(c) else (8, 16, 8)
    with kernels_used("all"):
        out = {"kernels": decoding(c, model), **target((2.71, 4.57, 10.2), (4.5, 7, 15), (3.6, 6.0, 13))}
        with c.session(model, "--dtype", "bfloat16", "--batch", 256) as session:
            session.ask([{"ids": ids, "max_new_tokens": 4} for ids in prompts(8, prompt, seed=3)])
            out["1,500 requests, seconds"] = round(session.ask([{"ids": ids, "max_new_tokens": tokens} for ids in prompts(requests, prompt, seed=1)])[1], 2)
            out["goal, seconds; vLLM's, published"] = (33, 35.9)
    return out


@part(90, "timings")
def train_four_billion(c):
    """A step of LoRA of rank 16 on Qwen3-4B's shape over 2 × 16,384 tokens, with recomputation."""
    model = model_of(c, "four-billion", FOUR)
    with kernels_used("all"):
        return {"kernels": steps(c, model, 1, 16384, gradient_checkpointing=True, **LORA), **target(1.36, 5.0, 3.0), "peak GiB, goal": 23, "prime-rl, published": (5.26, "23.3 GiB")}


@part(40, "timings")
def decode_larger(c):
    """Milliseconds of a token step of Qwen2.5-1.5B's shape."""
    model = model_of(c, "larger", LARGER)
    with kernels_used("all"):
        return {"kernels": decoding(c, model), **target((1.04, 1.40, 2.50), (2.0, 2.6, 4.5), (1.55, 2.1, 3.8))}


@part(60, "timings")
def train_larger(c):
    """A full step of Qwen2.5-1.5B's shape over 16 rows of 1,024 tokens, and one of LoRA."""
    model = model_of(c, "larger", LARGER)
    with kernels_used("all"):
        return {"full": steps(c, model, 8, 1024, gradient_checkpointing=True), "LoRA": steps(c, model, 8, 1024, gradient_checkpointing=True, **LORA), **target(0.196, 0.5, 0.35)}


def prefill(c, model):
    """Prompt tokens a second: passes of new prompts that draw one token each."""
    count, tokens = (64, 512) if real(c) else (4, 32)
    with c.session(model, "--dtype", "bfloat16", "--batch", count) as session:
        each = []
        for seed in range(1, 5):  # the first makes memory
            each.append(session.ask([{"ids": ids, "max_new_tokens": 1} for ids in prompts(count, tokens, seed)])[1])
        return round(count * tokens / statistics.median(each[1:]))


@part(60, "timings")
def prefill_half_billion(c):
    """Prompt tokens a second with all kernels, without flash_attention, and by LibTorch's operators."""
    model = model_of(c, "half-billion", HALF)
    out = {}
    for name, used in (("kernels", "all"), ("without flash_attention", "rms_norm,rotate,gated,decode_attention,draw"), ("operators", "none")):
        with kernels_used(used):
            out[name] = prefill(c, model)
    return out


@part(70, "timings")
def adapters_of_a_server(c):
    """Milliseconds of a token step of 64 completions: of the base, of one adapter of rank 16, of eight in one pass."""
    model = model_of(c, "half-billion", HALF)
    names = [f"adapter-{i}" for i in range(8)]
    modules = [f"{name}={c.random_adapter(name, HALF if real(c) else SMALL, 16, seed)}" for seed, name in enumerate(names)]
    few, tokens = (8, 128) if real(c) else (2, 8)
    with kernels_used("all"), c.server(model, "--dtype", "bfloat16", "--max-num-seqs", 64, "--lora-modules", *modules) as (_, url):
        def seconds(served, count):
            def one(i):
                c.complete(url, model=served[i % len(served)], prompt=prompts(1, 64, i)[0], n=8, max_tokens=count, ignore_eos=True)
            begin = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(one, range(8)))
            return time.perf_counter() - begin

        out = {}
        for name, served in (("base", [str(model)]), ("one adapter", names[:1]), ("eight adapters", names)):
            seconds(served, few + tokens)  # graphs are recorded, the prefix cache has the prompts
            out[name] = round(1e3 * statistics.median(seconds(served, few + tokens) - seconds(served, few) for _ in range(3)) / tokens, 3)
        return out
