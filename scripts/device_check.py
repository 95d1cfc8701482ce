#!/usr/bin/env python3
"""The parts of scripts/device_check.sh that show that a device is right; device_timings.py has those that show how fast it is, and both run
where no --only says otherwise. Standard Python 3; parity with transformers where torch and transformers are there.

    device_check.py --rlalgo PROGRAM --data QUICKSTART [--kernels PROGRAM] [--head PROGRAM] [--device cuda] [--out DIR] [--only checks|timings|ranks|sanitizers|PART,…]
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import device_timings  # noqa: F401: its parts
from device_parts import Check, NotRun, kernels_used, part, parts


@part(60)
def versions(c):
    text = c.run("version").stdout
    if c.device != "cpu" and "CUDA can be used: yes" not in text:
        raise RuntimeError(text)
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    return {"rlalgo": text.splitlines(), "nvidia_smi": smi.stdout.strip() if smi else "not there"}


def kernel_tests(c, *before):
    """The tests of the kernels (tests/cuda), which were compiled by nvcc; `before`: a tool that they run under."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed; on the host they are scripts/test.sh cuda")
    if c.kernels is None or not c.kernels.exists():
        raise NotRun("test_cuda_device was not built: scripts/setup.sh --preset cuda -- test_cuda_device")
    done = subprocess.run([*before, str(c.kernels)], capture_output=True, text=True, timeout=c.left(), errors="replace")
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0:
        raise RuntimeError(said[-1200:])
    passed = re.search(r"All tests passed \((\d+) assertions? in (\d+) test cases?\)", said)
    if not passed:
        raise RuntimeError(f"no test ran: {said[-400:]}")
    return {"test cases": int(passed[2]), "assertions": int(passed[1])}


@part(120)
def kernels_tried(c):
    """What the program finds of its kernels by itself, beside LibTorch's operators (`rlalgo kernels`)."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    done = c.run("kernels", "--device", c.device, good=False)
    lines = [line.split(None, 1) for line in done.stdout.splitlines()]
    found = {name: said for name, said in (line for line in lines if len(line) == 2)}
    if done.returncode != 0:
        raise RuntimeError(json.dumps(found) + done.stderr.strip()[-300:])
    return found


@part(60)
def kernels(c):
    return kernel_tests(c)


@part(60)
def kernels_or_operators(c):
    """Log-probs and texts of the engine with the project's kernels against those of LibTorch's operators alone."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    rows = [{"prompt": f"{i} + {i + 1} =", "temperature": 0, "max_new_tokens": 24} for i in range(8)]
    texts = {}
    for name, used in (("kernels", "all"), ("operators", "none")):
        with kernels_used(used):
            texts[name] = c.lines("generate", c.data / "model", rows, "--device", c.device, "--dtype", "bfloat16")
    pairs = list(zip(texts["kernels"], texts["operators"], strict=True))
    same = sum(a["ids"] == b["ids"] for a, b in pairs)
    first = sum(a["ids"][:4] == b["ids"][:4] for a, b in pairs)  # later ones may fall otherwise where two logits tie
    if first < 6:
        raise RuntimeError(f"{first} of 8 texts begin alike")
    return {"same": f"{same} of 8", "begin alike": f"{first} of 8"}


@part(90)
def log_probs(c):
    """Log-probs of given tokens: the device against the CPU, by the trainer's pass and by the engine's."""
    rows = [{"prompt_ids": [(i * 7 + j * 3) % 440 for j in range(5 + i)], "completion_ids": [(i * 5 + j) % 440 for j in range(4 + 3 * i)]} for i in range(6)]
    out = {}
    for engine in ((), ("--engine",)):
        expected = c.lines("score", c.data / "model", rows, "--device", "cpu", "--dtype", "float32", *engine)
        for dtype, tolerance in (("float32", 1e-4), ("bfloat16", 3e-2)):
            found = c.lines("score", c.data / "model", rows, "--device", c.device, "--dtype", dtype, *engine)
            worst = 0.0  # of a log-prob, relative where it is below −1
            for a, b in zip(expected, found, strict=True):
                key = next(k for k in a if k.endswith("log_probs") or k.endswith("logprobs"))
                worst = max([worst, *(abs(x - y) / max(1.0, abs(x)) for x, y in zip(a[key], b[key], strict=True))])
            name = f"{dtype}{' engine' if engine else ''}"
            out[name] = worst
            if worst > tolerance:
                raise RuntimeError(f"{name}: log-probs differ by {worst}, more than {tolerance}")
    return out


@part(90)
def generation_in_8_bits(c):
    """Texts drawn with weights, or keys and values, in 8 bits: how far their log-probs are from those of the CPU in float32."""
    rows = [{"prompt": f"{i} + {i + 1} =", "temperature": 1, "seed": i, "max_new_tokens": 24} for i in range(8)]
    out = {}
    most = {"int8": (("--quantization", "int8"), 0.1), "fp8": (("--quantization", "fp8"), 0.2), "keys and values": (("--kv-cache-dtype", "fp8"), 0.2)}
    for name, (words, tolerance) in most.items():
        if c.device == "cpu" and name != "int8":
            continue  # a GPU alone has them
        for used in ("none",) if c.device == "cpu" else ("all", "none"):
            with kernels_used(used):
                drawn = c.lines("generate", c.data / "model", rows, "--device", c.device, "--dtype", "bfloat16", *words)
            scored = c.lines("score", c.data / "model", [{"prompt": row["prompt"], "completion_ids": found["ids"]} for row, found in zip(rows, drawn, strict=True)], "--device", "cpu",
                             "--dtype", "float32")
            apart = []
            for a, b in zip(scored, drawn, strict=True):
                key = next(k for k in a if k.endswith("log_probs") or k.endswith("logprobs"))
                apart += [abs(x - y) for x, y in zip(a[key], b["log_probs"], strict=True)]
            out[f"{name}, kernels {used}"] = {"mean": sum(apart) / len(apart), "largest": max(apart)}
            if not sum(apart) / len(apart) < tolerance:
                raise RuntimeError(f"{name}, kernels {used}: {out}")
    return out


@part(90)
def transformers(c):
    """Log-probs against transformers on the same device, in float32."""
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("transformers"):
        raise NotRun("torch and transformers are not in this Python")
    script = """
import json, sys, torch
from transformers import AutoModelForCausalLM
device, model = sys.argv[1], AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32, attn_implementation="eager").to(sys.argv[1])
for row in json.load(sys.stdin):
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]], device=device)
    with torch.no_grad():
        logits = model(ids).logits[0].float().log_softmax(-1)
    n = len(row["prompt_ids"])
    print(json.dumps([logits[n - 1 + i, t].item() for i, t in enumerate(row["completion_ids"])]))
"""
    rows = [{"prompt_ids": [(i * 7 + j * 3) % 440 for j in range(5 + i)], "completion_ids": [(i * 5 + j) % 440 for j in range(4 + 3 * i)]} for i in range(6)]
    done = subprocess.run([sys.executable, "-c", script, c.device, str(c.data / "model")], input=json.dumps(rows), capture_output=True, text=True, timeout=c.left())
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-600:])
    worst = 0.0
    for line, found in zip(done.stdout.splitlines(), c.lines("score", c.data / "model", rows, "--device", c.device, "--dtype", "float32"), strict=True):
        key = next(k for k in found if k.endswith("log_probs") or k.endswith("logprobs"))
        worst = max([worst, *(abs(x - y) for x, y in zip(json.loads(line), found[key], strict=True))])
    if worst > 1e-3:
        raise RuntimeError(f"log-probs differ by {worst}")
    return {"worst": worst}


def six_steps(c, method, tolerance, **changes):
    config = c.config(method, **changes)
    _, cpu = c.train(config, "cpu")
    _, found = c.train(config, c.device)
    worst = {}
    for name in ("loss", "grad_norm"):
        for a, b in zip(cpu, found, strict=True):
            if name in a:
                worst[name] = max(worst.get(name, 0.0), abs(a[name] - b[name]) / max(1.0, abs(a[name])))
    first = abs(cpu[0]["loss"] - found[0]["loss"]) / max(1.0, abs(cpu[0]["loss"]))
    if first > tolerance or worst["loss"] > tolerance:
        raise RuntimeError(f"losses differ: {[(a['loss'], b['loss']) for a, b in zip(cpu, found)]}")
    return {**worst, "seconds_a_step": found[-1].get("time/step")}


@part(60)
def dpo_float32(c):
    return six_steps(c, "dpo", 1e-4)


@part(60)
def dpo_bfloat16(c):
    return six_steps(c, "dpo", 3e-2, bf16=True)


@part(60)
def dpo_lora(c):
    return six_steps(c, "dpo", 1e-4, adapter="lora", lora_r=8, lora_alpha=16, lora_dropout=0.1, lora_target_linear=True)


@part(60)
def dpo_moments_in_8_bits(c):
    return six_steps(c, "dpo", 1e-3, optimizer="adamw_bnb_8bit")


@part(90)
def training_with_kernels(c):
    """Steps with all kernels, and with attention in one call alone, against the CPU's losses."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    out = {}
    for used in ("flash_attention", "all"):
        with kernels_used(used):
            out[used] = {"dpo": six_steps(c, "dpo", 3e-2, bf16=True), "grpo": six_steps(c, "grpo", 3e-2, bf16=True, max_steps=1),
                         "dpo, a base in 4 bits": six_steps(c, "dpo", 3e-2, bf16=True, adapter="qlora", load_in_4bit=True, lora_r=16, lora_alpha=32, lora_target_linear=True),
                         "dpo, dropout, moments in 8 bits": six_steps(c, "dpo", 3e-2, bf16=True, optimizer="adamw_bnb_8bit", adapter="lora", lora_r=64, lora_alpha=64, lora_dropout=0.1, lora_target_linear=True)}
    return out


@part(60)
def kto_and_relatives(c):
    out = {}
    for method in ("ipo", "orpo", "simpo"):
        out[method] = six_steps(c, method, 1e-4, max_steps=2)
    return out


@part(90)
def grpo_float32(c):
    return six_steps(c, "grpo", 1e-3, trl={"beta": 0.04})


@part(90)
def grpo_bfloat16(c):
    return six_steps(c, "grpo", 3e-2, bf16=True, max_steps=1)


@part(60)
def grpo_lora(c):
    """An adapter that generates from merged copies, in a share of the card."""
    return six_steps(c, "grpo", 1e-3, max_steps=3, adapter="lora", lora_r=8, lora_alpha=16, lora_target_linear=True, trl={"beta": 0.04, "vllm_gpu_memory_utilization": 0.2})


@part(60)
def grpo_asynchronous(c):
    _, records = c.train(c.config("grpo", trl={"use_data_producer": True, "async_prefetch": True}), c.device)
    if len(records) < 6 or not all(math.isfinite(r["loss"]) for r in records):
        raise RuntimeError(str(records[-1]))
    return {"steps": len(records)}


@part(60)
def gdpo_and_rloo(c):
    return {method: six_steps(c, method, 1e-3, max_steps=2) for method in ("gdpo", "rloo")}


@part(90)
def resume(c):
    """A run that is killed and resumed on the device writes the same bytes."""
    out = {}
    for method in ("dpo", "grpo"):
        config = c.config(method, save_strategy="steps", save_steps=2, bf16=True)
        whole, _ = c.train(config, c.device)
        again, _ = c.train({**config, "resume_from_checkpoint": str(whole / "checkpoint-2")}, c.device)
        same = (whole / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
        out[method] = "same bytes" if same else "different bytes"
        if not same:
            raise RuntimeError(f"{method}: the resumed run wrote other bytes")
    return out


@part(60)
def generation(c):
    """Greedy texts of the device and of the CPU."""
    rows = [{"prompt": f"{i} + {i + 1} =", "temperature": 0, "max_new_tokens": 24} for i in range(8)]
    a = c.lines("generate", c.data / "model", rows, "--device", "cpu", "--dtype", "float32")
    b = c.lines("generate", c.data / "model", rows, "--device", c.device, "--dtype", "float32")
    same = sum(x["ids"] == y["ids"] for x, y in zip(a, b, strict=True))
    if same < 7:  # a tie of two logits may fall otherwise
        raise RuntimeError(f"{same} of 8 texts are the same: {a[0]} {b[0]}")
    return {"same": f"{same} of 8"}


@part(60)
def server(c):
    """The generation server: a completion, weights that are exchanged, an orderly end."""
    with c.server(c.data / "model") as (process, url):
        answer = c.complete(url, prompt="1 + 2 =", max_tokens=8, temperature=0)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=c.left())
        if code not in (0, 143):
            raise RuntimeError(f"exit {code}")
        return {"text": answer["choices"][0]["text"]}


def ranks_on_this_card(c, config, fault=False):
    """Two ranks that share the card, where NCCL takes them for two machines (NCCL_HOSTID) and sends by its sockets; `fault`: rank 1 is killed
    in a step. The folder of the run, its records, and the words of rank 0 with the seconds that it outlived rank 1."""
    c.number += 1
    out, file = c.folder / f"out{c.number}", c.folder / f"c{c.number}.yaml"
    file.write_text(json.dumps({**config, "output_dir": str(out), "device": c.device, "ddp_timeout": 10}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [subprocess.Popen([c.program, "train", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=c.folder,
                              env={**os.environ, **place, "RANK": str(r), "NCCL_HOSTID": f"trial{r}"}) for r in range(2)]
    try:
        if fault:
            while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").read_text().count("\n") < 2:
                if ranks[0].poll() is not None or c.left() <= 1:
                    raise RuntimeError("no step was taken: " + ranks[0].communicate()[0][-600:])
                time.sleep(0.05)
            ranks[1].kill()
        begin = time.monotonic()
        words = [one.communicate(timeout=c.left())[0] for one in ranks]
        seconds = time.monotonic() - begin
    finally:
        for one in ranks:
            one.kill()
    if not fault and any(one.returncode != 0 for one in ranks):
        if "[rlalgo.distributed.15]" in words[0]:
            raise NotRun("NCCL: " + words[0].strip()[-200:])
        raise RuntimeError(f"exit {[one.returncode for one in ranks]}: {words[0][-400:]} | {words[1][-400:]}")
    return out, [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()], (words[0], seconds)


@part(180, "ranks")
def two_processes_over_nccl(c):
    """Two ranks on one card: the numbers of one rank in every layout and both orders of sums, the same bytes when a run is repeated, and a
    rank that is killed in a step ends the other."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    base = c.config("dpo", gradient_accumulation_steps=2, max_steps=4)
    _, one = c.train(base, c.device)
    fsdp = {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}
    layouts = {"whole": {}, "zero1": {"deepspeed": {"zero_optimization": {"stage": 1}}}, "zero2": {"deepspeed": {"zero_optimization": {"stage": 2}}},
               "fsdp": fsdp, "context": {"context_parallel_size": 2}, "context, fsdp": {"context_parallel_size": 2, **fsdp},
               "whole, nccl": {"sum_order": "nccl"}, "fsdp, nccl": {**fsdp, "sum_order": "nccl"}}
    out = {}
    for name, keys in layouts.items():
        groups = 2 // keys.get("context_parallel_size", 1)
        config = {**base, **keys, "gradient_accumulation_steps": 2 // groups}
        folder, found, _ = ranks_on_this_card(c, config)
        apart = max(abs(a["loss"] - b["loss"]) / max(1.0, abs(a["loss"])) for a, b in zip(one, found, strict=True))
        out[name] = {"loss": apart, "time/sums": found[-1].get("time/sums"), "time/sums_wait": found[-1].get("time/sums_wait")}
        if apart > 1e-4:
            raise RuntimeError(f"{name}: losses differ: {[(a['loss'], b['loss']) for a, b in zip(one, found)]}")
        if name in ("whole", "fsdp"):
            again, _, _ = ranks_on_this_card(c, config)
            if (folder / "model.safetensors").read_bytes() != (again / "model.safetensors").read_bytes():
                raise RuntimeError(f"{name}: the run is not the same again")
            out[name]["again"] = "same bytes"
    for name in ("whole", "fsdp"):
        _, _, (words, seconds) = ranks_on_this_card(c, {**base, **layouts[name], "gradient_accumulation_steps": 1, "max_steps": 100000}, fault=True)
        if "[rlalgo.distributed." not in words or seconds > 30:
            raise RuntimeError(f"{name}: after {seconds:.1f} s: {words[-400:]}")
        out[f"{name}, killed"] = f"ended after {seconds:.1f} s"
    return out


@part(60)
def refusals(c):
    """What a device cannot do is refused by key, before a model is loaded."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    done = c.train(c.config("dpo"), "cuda:99", good=False)
    if "tensor.13" not in done.stderr:
        raise RuntimeError(done.stderr[-300:])
    return {}


@part(60)
def memory(c):
    """Memory that is used up ends the run with what was asked for and what helps."""
    if c.device == "cpu":
        raise NotRun("a GPU is needed")
    rows = c.folder / "long.jsonl"
    rows.write_text("".join(json.dumps({"prompt": "1 " * 400, "chosen": "2 " * 7000, "rejected": "3 " * 7000}) + "\n" for _ in range(64)))
    model = c.random_model("half-billion", (896, 4864, 24, 14, 2, 64))
    done = c.train(c.config("dpo", base_model=str(model), bf16=True, datasets=[{"path": str(rows)}], sequence_len=16384, micro_batch_size=64, gradient_accumulation_steps=1, max_steps=1), c.device, good=False)
    if done.returncode == 0:
        return {"note": "the card held it"}
    if "tensor.14" not in done.stderr or "micro_batch_size" not in done.stderr:
        raise RuntimeError(done.stderr[-600:])
    return {"message": done.stderr.strip()[-300:]}


def sanitizer():
    for path in ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer"):
        if found := shutil.which(path):
            return found
    raise NotRun("there is no compute-sanitizer (it comes with the CUDA toolkit)")


@part(90, "sanitizers")
def kernels_memcheck(c):
    return kernel_tests(c, sanitizer(), "--tool", "memcheck", "--error-exitcode", "9")


@part(90, "sanitizers")
def kernels_racecheck(c):
    return kernel_tests(c, sanitizer(), "--tool", "racecheck", "--error-exitcode", "9")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--kernels", default="", help="the program with the tests of the kernels, if it is there")
    parser.add_argument("--head", default="", help="bench_device_log_prob_head, if it is there")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="device-check")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=480.0, help="of all parts together")
    options = parser.parse_args()
    only, there = set(filter(None, options.only.split(","))), parts()
    if unknown := only - {name for one in there for name in (one.name, one.kind)}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(dict.fromkeys(one.kind for one in there))} and of them {', '.join(one.name for one in there)}")
    os.environ.setdefault("RLALGO_CUDA_KERNELS", "none")  # a part says which kernels it is about
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    check, results, end = Check(options), [], time.monotonic() + options.seconds
    try:
        for one in there:
            if only and not only & {one.name, one.kind}:
                continue
            begin = time.monotonic()
            check.deadline = min(end, begin + one.limit)
            result = {"part": one.name, "result": "passed"}
            try:
                if begin >= end:
                    raise NotRun("no time was left")
                result["found"] = one.function(check)
            except NotRun as why:
                result.update(result="not run", why=str(why))
            except subprocess.TimeoutExpired:
                result.update(result="failed", why=f"more than {one.limit} s")
            except Exception as error:  # a part that fails must not hide those after it
                result.update(result="failed", why=f"{type(error).__name__}: {error}")
            result["seconds"] = round(time.monotonic() - begin, 1)
            results.append(result)
            print(f"{one.name}: {result['result']} in {result['seconds']} s {json.dumps(result.get('found', result.get('why')))}", flush=True)
            (out / "device.json").write_text(json.dumps({"device": options.device, "results": results}, indent=1))
    finally:
        shutil.rmtree(check.folder, ignore_errors=True)
    table = "| part | result | seconds | found |\n| --- | --- | --- | --- |\n" + "".join(
        f"| {r['part']} | {r['result']} | {r['seconds']} | {json.dumps(r.get('found', r.get('why')))[:600].replace('|', '/')} |\n" for r in results)
    (out / "device.md").write_text(table)
    print(table)
    failed = sum(r["result"] == "failed" for r in results)
    print(f"{sum(r['result'] == 'passed' for r in results)} passed, {failed} failed, {sum(r['result'] == 'not run' for r in results)} not run")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
