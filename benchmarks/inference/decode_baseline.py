"""Tokens per second of our engine beside transformers' generate(), in turns on one machine.

    decode_baseline.py BENCH_INFERENCE_DECODE [--batch 16] [--threads 2] [--rounds 3]

SmolLM2-135M's shape with random weights in f32, one prompt of 32 tokens, `batch` completions of 128 tokens, sampled at
temperature 1. Needs torch and transformers from PyPI in the Python that runs it; the product needs neither.
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("bench")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, head_dim=64, rms_norm_eps=1e-5, rope_theta=100000.0, tie_word_embeddings=True,
    max_position_embeddings=2048)).eval()
prompt = torch.tensor([[7 * i + 3 for i in range(32)]] * args.batch)


def transformers_rate():
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=128, min_new_tokens=128,
                             do_sample=True, temperature=1.0, top_k=0, pad_token_id=0)
    assert out.shape == (args.batch, 160)
    return args.batch * 128 / (time.perf_counter() - begin)


def engine_rate():
    out = subprocess.run(
        [args.bench, f"--threads={args.threads}", f"--benchmark_filter=^engine_f32/smollm2/{args.batch}/",
         "--benchmark_format=json", "--benchmark_min_time=0.01"],
        check=True, capture_output=True, text=True, timeout=600)
    return json.loads(out.stdout)["benchmarks"][0]["tokens/s"]


transformers_rate()  # warm-up
ratios = []
for number in range(args.rounds):
    theirs, ours = transformers_rate(), engine_rate()
    ratios.append(ours / theirs)
    print(f"round {number + 1}: transformers {theirs:.0f} tokens/s, engine {ours:.0f} tokens/s, ratio {ratios[-1]:.2f}")
print(f"median ratio {statistics.median(ratios):.2f}")
