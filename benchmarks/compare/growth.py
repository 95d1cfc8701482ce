#!/usr/bin/env python3
"""How cost grows: a GRPO step's tokens/s and peak memory against length, group size, vocabulary and model, each with the fitted
exponent, and the time of starting against the size of the checkpoint.

    benchmarks/compare/growth.py [--axes length,group,vocabulary,model,start] [--long] [--large] [--threads 2] [--table benchmarks/measurements.md]

Models have random weights and the shape that an axis asks for; their end id is one that is never drawn, so every completion has its
full length. One axis varies, the others stay at: 0.7M parameters, 4 completions, 128 tokens, 447 words. Rates are the
best of the steps after the first, of which there are 2 to 16 by their size; processor seconds of a step are what these take more than a run of one step, through their number, which other
programs change little; peak is the resident memory of the process. The exponent e is of a straight line through the logarithms: cost ~ size^e. "start" is the whole
process of `rlalgo score` on one line, from a warm file. --long goes to 8,192 tokens, --large to 0.5B parameters (12 GB).
"""
import array
import datetime
import json
import math
import pathlib
import random
import shutil
import sys
import tempfile

import compare

sys.path.insert(0, str(compare.ROOT / "benchmarks/distributed"))
import shapes  # noqa: E402

TABLE = compare.Table("growth", ("axis", "size", "threads", "generating, tokens/s", "training, tokens/s", "processor seconds of a step", "peak, MB", "date"), 3)
TOKENIZER = compare.ROOT / "examples/quickstart/model"
TINY = dict(layers=4, hidden=128, intermediate=320, heads=4, kv_heads=2, vocab=447, tied=True)
MODELS = {"0.7M": shapes.Model(**TINY), "8M": shapes.Model(6, 256, 768, 4, 2, 8192, True), "30M": shapes.Model(10, 384, 1024, 6, 2, 32768, True),
          "135M": shapes.MODELS["135m"], "0.5B": shapes.MODELS["0.5b"]}
NEVER = 1.0  # of the first column of the embedding: what keeps the end id from being drawn


def fit(sizes, costs):
    """(e, c) of cost = c·size^e: least squares in logarithms."""
    if len(set(sizes)) < 2 or len(sizes) != len(costs):
        raise ValueError(f"no line through {list(zip(sizes, costs))}")
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)
    return slope, math.exp(my - slope * mx)


def tensors(shape):
    """name → shape, of a Llama checkpoint with tied embeddings."""
    h, head = shape.hidden, shape.hidden // shape.heads
    out = {"model.embed_tokens.weight": [shape.vocab, h], "model.norm.weight": [h]}
    for i in range(shape.layers):
        for name, rows, columns in (("self_attn.q_proj", h, h), ("self_attn.k_proj", head * shape.kv_heads, h), ("self_attn.v_proj", head * shape.kv_heads, h),
                                    ("self_attn.o_proj", h, h), ("mlp.gate_proj", shape.intermediate, h), ("mlp.up_proj", shape.intermediate, h),
                                    ("mlp.down_proj", h, shape.intermediate)):
            out[f"model.layers.{i}.{name}.weight"] = [rows, columns]
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"model.layers.{i}.{name}.weight"] = [h]
    return out


def make_model(folder, shape, seed=0):
    """A checkpoint with float32 weights of deviation 0.02 from a table of 2¹⁸ normal numbers. The first column of the embedding is 1, and
    −1 for the end id: its logit is tens below all others. → the directory"""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    table = array.array("f", [draw.gauss(0, 0.02) for _ in range(1 << 18)])
    if sys.byteorder == "big":
        raise NotImplementedError("weights are written as this processor has them; safetensors are little-endian")
    settings = json.loads((TOKENIZER / "config.json").read_text())
    end = settings["eos_token_id"]
    header, offset = {}, 0
    for name, size in tensors(shape).items():
        count = size[0] * (size + [1])[1]
        header[name] = {"dtype": "F32", "shape": size, "data_offsets": [offset, offset + 4 * count]}
        offset += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, size in tensors(shape).items():
            if len(size) == 1:
                array.array("f", [1.0] * size[0]).tofile(file)
                continue
            for row in range(size[0]):
                at = draw.randrange(len(table) - size[1])
                values = table[at:at + size[1]]
                if name.startswith("model.embed"):
                    values[0] = -NEVER if row == end else NEVER
                values.tofile(file)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
              "hidden_size": shape.hidden, "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
              "num_key_value_heads": shape.kv_heads, "head_dim": shape.hidden // shape.heads, "vocab_size": shape.vocab, "tie_word_embeddings": True,
              "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "torch_dtype": "float32", "eos_token_id": end,
              "pad_token_id": settings["pad_token_id"]}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    return str(folder)


def step(arguments, folder, model, group, length):
    """Seconds of generating, of training, of the processor, and peak bytes, of one step."""
    data = compare.write_rows(folder / "prompts.jsonl", [{"prompt": "2 friends bring 5 buttons each. How many buttons do they bring together?"}])
    shutil.copy(pathlib.Path(compare.__file__).with_name("rewards.py"), folder / "rewards.py")
    config = {"base_model": model, "rl": "grpo", "datasets": [{"path": data, "type": {"field_prompt": "prompt", "plain": True}}], "learning_rate": 1e-12,
              "sequence_len": 2 * length + 64, "micro_batch_size": group,
              "trl": {"num_generations": group, "max_completion_length": length, "temperature": 1.0, "loss_type": "grpo", "reward_funcs": ["rewards.even_ids"]}}
    one = compare.train(arguments.program, config, folder, arguments.threads, 1)[1]
    more = max(2, min(16, 4096 // (group * length)))
    records, many = compare.train(arguments.program, config, folder, arguments.threads, 1 + more)
    compare.close("lengths of completions", records[-1]["completions/mean_length"], length, 1e-3)
    part = lambda name: min(r[name] for r in records[1:])
    return part("time/generate"), part("time/train"), max(0.005, many.processor - one.processor) / more, many.peak


def sizes_of(arguments):
    tiny = MODELS["0.7M"]
    lengths = [128, 256, 512, 1024, 2048] + ([4096, 8192] if arguments.long else [])
    words = lambda count: shapes.Model(**{**TINY, "vocab": count})
    return {"length": [(n, f"{n:,} tokens", tiny, 4, n) for n in lengths],
            "group": [(n, f"{n} completions", tiny, n, 128) for n in (2, 4, 8, 16, 32, 64)],
            "vocabulary": [(n, f"{n:,} words", words(n), 4, 128) for n in (32000, 64000, 128000, 152000)],
            "model": [(m.parameters, name, m, 4, 32 if m.parameters > 1e7 else 128) for name, m in MODELS.items() if m.parameters < 2e8 or arguments.large]}


def measure(arguments, axis, sizes, folder):
    today, rows, found = datetime.date.today().isoformat(), [], []
    for size, label, shape, group, length in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            place = pathlib.Path(place)
            model = make_model(place / "model", shape)
            runs = [step(arguments, place, model, group, length) for _ in range(arguments.repeats)]
        generate, train, processor = (min(r[i] for r in runs) for i in (0, 1, 2))
        tokens, peak = group * length, max(r[3] for r in runs)
        work = tokens if axis == "model" else 1
        found.append((size, generate / work, train / work, processor / work, peak))
        rows.append([axis, label, str(arguments.threads), compare.figure(tokens / generate), compare.figure(tokens / train), compare.figure(processor),
                     f"{peak / 1e6:,.0f}", today])
        print(compare.line_of(rows[-1], TABLE), flush=True)
    exponents = [fit([f[0] for f in found], [f[i] for f in found])[0] for i in (1, 2, 3, 4)]
    what = "cost of a token" if axis == "model" else "cost of a step"
    rows.append([axis, f"exponent ({what})", str(arguments.threads), *(f"{e:.2f}" for e in exponents), today])
    print(compare.line_of(rows[-1], TABLE), flush=True)
    return rows


def start(arguments, folder):
    today, rows, found = datetime.date.today().isoformat(), [], []
    for name, shape in MODELS.items():
        if shape.parameters > 2e8 and not arguments.large:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as place:
            model = make_model(pathlib.Path(place) / "model", shape)
            line = compare.write_rows(pathlib.Path(place) / "line.jsonl", [{"ids": [1, 2]}])
            runs = []
            for _ in range(arguments.repeats + 1):
                with open(line) as given:
                    runs.append(compare.run_ours(arguments.program, ["score", "--model", model], arguments.threads, stdin=given))
            size = (pathlib.Path(model) / "model.safetensors").stat().st_size
        seconds, processor = (compare.Spread.of(getattr(r, what) for r in runs[1:]) for what in ("seconds", "processor"))
        found.append((size, processor.least))
        rows.append(["start", f"{name}, {size / 1e6:,.0f} MB", str(arguments.threads), f"{seconds} s to the first score", "–", str(processor),
                     f"{runs[-1].peak / 1e6:,.0f}", today])
        print(compare.line_of(rows[-1], TABLE), flush=True)
    rows.append(["start", "exponent", str(arguments.threads), "–", "–", f"{fit(*zip(*found))[0]:.2f}", "–", today])
    return rows


def main():
    parser = compare.options(__doc__, peer=False, dtypes=False, repeats=2)
    parser.add_argument("--axes", default="length,group,vocabulary,model,start")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rlalgo-growth-") as folder:
        for axis in arguments.axes.split(","):
            rows += start(arguments, folder) if axis == "start" else measure(arguments, axis, sizes_of(arguments)[axis], folder)
    compare.finish(arguments, rows, TABLE)


if __name__ == "__main__":
    main()
