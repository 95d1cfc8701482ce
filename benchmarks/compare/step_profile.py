#!/usr/bin/env python3
"""Where the processor time of a training step goes, and what share of the machine's peak its matrix products reach.

    benchmarks/compare/step_profile.py --model DIR --data GSM8K/train.jsonl [--rl grpo|dpo] [--dtype float32] [--steps 2] [--threads 2] [--table benchmarks/measurements.md]

The steps are those of trl_grpo.py and trl_dpo.py. `perf record -e cpu-clock` samples `rlalgo train` (of a process that also loads
and generates), and every sample falls into one class by its symbol. GFLOP/s are of one processor and one second of processor time, so other
programs change them little: the arithmetic that forward and backward need by the shape of the model (benchmarks/distributed/shapes.py: 6 per token and weight; the
head for completion tokens only), over the time in LibTorch's matrix products, and over all time but the engine's. Peak: fused multiply-adds in registers,
compiled here with `c++ -O3 -march=native`; of bfloat16 no share of it is told. (Not named profile.py: it would hide a module of Python.)
"""
import collections
import datetime
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import compare
import trl_dpo
import trl_grpo
import trl_steps

sys.path.insert(0, str(compare.ROOT / "benchmarks/distributed"))
import shapes  # noqa: E402

TABLE = compare.Table("profile", ("step", "threads", "seconds of a step", "processor time by class", "GFLOP/s within matrix products", "GFLOP/s of all training", "peak, GFLOP/s", "shares of it",
                                  "date"), 2)
ENGINE = "generation: products and attention of the engine"
# The first that fits counts. (object file, symbol)
CLASSES = (
    ("kernel: pages, system calls", r"^\[|kallsyms", r""),
    ("matrix products", r"", r"gemm|gemv|mkl_(blas|lapack)|xbyak|dnnl|rlalgo::tensor::(avx|amx)"),
    (ENGINE, r"", r"rlalgo::inference"),
    ("memory: malloc, free", r"", r"malloc|calloc|realloc|^_?_?(cfree|free)$|_int_free|posix_memalign|unlink_chunk|tcache"),
    ("memory: copies and fills", r"", r"mem(cpy|set|move)|copy_|fill_kernel|direct_copy"),
    ("waiting: locks, threads", r"libgomp|ld-linux", r"pthread_|futex|gomp_|omp_"),
    ("softmax, log-probs, attention", r"", r"softmax|logsumexp|flash|attention|Sleef_(finz_)?(exp|log)|mkl_vml|log_prob|rlalgo::tensor::(rows|logit_rows)|Attention|Bfloat16Head"),
    ("norms, activations, element-wise", r"", r"norm|silu|sigmoid|mul_|add_|div_|sum_|reduce|vectorized_|elementwise|binary_|unary_|cpublas|TensorIterator|VectorizedLoop|rsqrt|lane_rows|rotate|on_threads"),
    ("optimizer", r"", r"adam"),
)

PEAK = r"""
#include <cstdio>
#include <ctime>
#if defined(__AVX512F__)
constexpr int lanes = 16, chains = 24;
#else
constexpr int lanes = 8, chains = 12;
#endif
typedef float V __attribute__((vector_size(lanes * 4)));
static float work(long rounds) {
  V a[chains], x, y;
  for (int l = 0; l < lanes; ++l) x[l] = 1.0f + 1e-7f * l, y[l] = 1e-9f * l;
  for (auto& v : a) v = x;
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int k = 0; k < chains; ++k) a[k] = a[k] * x + y;
    asm volatile("" : "+x"(x), "+x"(y));
  }
  float sum = 0;
  for (auto& v : a) for (int l = 0; l < lanes; ++l) sum += v[l];
  return sum;
}
int main() {
  double best = 0;
  for (int turn = 0; turn < 9; ++turn) {
    const long rounds = 10000000;
    const std::clock_t begin = std::clock();  // processor time
    const float out = work(rounds);
    const double rate = 2.0 * lanes * chains * rounds / (double(std::clock() - begin) / CLOCKS_PER_SEC) / 1e9;
    if (rate > best) best = rate;
    if (out == 12345.0f) std::puts("");
  }
  std::printf("%.1f\n", best);
}
"""


def measured_peak(folder):
    """GFLOP/s of one processor in float32: the best of nine turns."""
    source, program = folder / "peak.cpp", folder / "peak"
    source.write_text(PEAK)
    subprocess.run(["c++", "-O3", "-march=native", "-std=c++17", source, "-o", program], check=True)
    return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def parse(text):
    """Lines "object;symbol count" → (object, symbol) → count."""
    out = collections.Counter()
    for line in text.splitlines():
        place, count = line.rsplit(" ", 1)
        thing, symbol = place.split(";", 1)
        out[thing, symbol] += int(count)
    return out


def class_of(thing, symbol):
    return next((name for name, things, symbols in CLASSES if (things and re.search(things, thing)) or (symbols and re.search(symbols, symbol))), "other")


def shares(samples):
    """class → share of all samples."""
    whole, out = sum(samples.values()), collections.Counter()
    if whole == 0:
        raise ValueError("no samples")
    for (thing, symbol), count in samples.items():
        out[class_of(thing, symbol)] += count / whole
    return out


def folded(data):
    """What perf recorded, as lines of `parse`."""
    text = subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym,dso"], check=True, capture_output=True, text=True).stdout
    counts = collections.Counter()
    for line in text.splitlines():
        found = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line)
        if found:
            counts[f"{pathlib.PurePath(found[2]).name if found[2].startswith('/') else found[2]};{found[1]}"] += 1
    return "\n".join(f"{place} {count}" for place, count in counts.items())


def tokens_of(program, model, texts):
    answers = []
    with compare.Lines(program, ["tokenize", "--model", model, "--no-special-tokens"], 1) as lines:
        answers = lines.ask([{"text": text} for text in texts])
    return [len(a["ids"]) for a in answers]


def flops_of(model, tree, scored):
    """Of forward and backward: `tree` tokens pass the layers, `scored` the head."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    shape = shapes.Model(config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"], config["num_attention_heads"],
                       config["num_key_value_heads"], config["vocab_size"], config["tie_word_embeddings"])
    return 6 * (tree * shape.layers * shape.layer_parameters + scored * shape.vocab * shape.hidden)


def job(arguments, folder):
    """(configuration, floating-point operations of a step)"""
    rows = trl_steps.rows_of(arguments.data, trl_dpo.PAIRS + 1)
    common = {"base_model": str(pathlib.Path(arguments.model).resolve()), "learning_rate": 1e-6, "bf16": arguments.dtype == "bfloat16"}
    if arguments.rl == "dpo":
        pairs = trl_dpo.pairs(rows)
        config = {**common, **trl_dpo.configuration(compare.write_rows(folder / "pairs.jsonl", pairs))}
        prompts, *answers = (sum(tokens_of(arguments.program, arguments.model, [p[k] for p in pairs])) for k in ("prompt", "chosen", "rejected"))
        scored = sum(answers) + 2 * len(pairs)  # and their end
        # The reference adds a forward pass, a third of that.
        return config, flops_of(arguments.model, prompts + scored, scored) * 4 / 3
    prompts = [row["question"] + "\n" for row in rows[:trl_grpo.PROMPTS]]
    shutil.copy(trl_grpo.rewards.__file__, folder / "rewards.py")
    model = compare.without_end(arguments.model, folder / "model")
    config = {**common, **trl_grpo.configuration(compare.write_rows(folder / "prompts.jsonl", [{"prompt": p} for p in prompts])), "base_model": model}
    scored = trl_grpo.PROMPTS * trl_grpo.GROUP * trl_grpo.TOKENS
    return config, flops_of(model, sum(tokens_of(arguments.program, model, prompts)) + scored, scored)


def main():
    parser = compare.options(__doc__, peer=False, dtypes=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rl", default="grpo", choices=["grpo", "dpo"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--top", type=int, default=12, help="symbols to print")
    arguments = parser.parse_args()
    arguments.program = str(pathlib.Path(arguments.program).resolve())
    with tempfile.TemporaryDirectory(prefix="rlalgo-profile-") as name:
        folder = pathlib.Path(name)
        peak = measured_peak(folder)
        config, flops = job(arguments, folder)
        data = folder / "perf.data"
        wrapper = folder / "sampled"
        wrapper.write_text(f"#!/bin/sh\nexec perf record -q -e cpu-clock -F 199 -o '{data}' -- '{arguments.program}' \"$@\"\n")
        wrapper.chmod(0o755)
        records, ran = compare.train(wrapper, config, folder, arguments.threads, arguments.steps)
        samples = parse(folded(data))
    print(f"{sum(samples.values()):,} samples\n\nshare  symbol")
    for (thing, symbol), count in samples.most_common(arguments.top):
        print(f"{count / sum(samples.values()):5.1%}  {symbol[:110]} ({thing}): {class_of(thing, symbol)}")
    parts = {k: statistics.median(r.get(f"time/{k}", 0.0) for r in records) for k in ("step", "generate", "score", "train", "optimizer")}
    found = shares(samples)
    said = ", ".join(f"{name} {share:.0%}" for name, share in found.most_common() if share >= 0.005)
    times = f"{parts['step']:.3g}: " + ", ".join(f"{k} {v:.3g}" for k, v in parts.items() if k != "step" and v)
    done = flops * len(records) / 1e9
    rates = done / (ran.processor * found["matrix products"]), done / (ran.processor * (1 - found[ENGINE]))
    bfloat16 = arguments.dtype == "bfloat16"
    row = [f"{arguments.rl}, {trl_steps.name_of(arguments.model)}{', bfloat16' if bfloat16 else ''}", str(arguments.threads), times, said, *map(compare.figure, (*rates, peak)),
           "–" if bfloat16 else ", ".join(f"{rate / peak:.0%}" for rate in rates), datetime.date.today().isoformat()]
    compare.finish(arguments, [row], TABLE)


if __name__ == "__main__":
    main()
