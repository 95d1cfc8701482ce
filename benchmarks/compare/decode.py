"""What transformers_generate.py and vllm_decode.py share: completions of given ids by `rlalgo generate` beside the peer's, and
whether their greedy texts are equal.

Both sides get the same prompts of random ids and make the same number of tokens (no end id stops them). Two float32
implementations round differently, so two tokens whose logits are nearly equal may change places, and what follows them is
another text; that is no error. Where two texts part, the peer's own logits of the two tokens must be within `tie`, computed in one
pass: which of the two it prefers there may be other than in its cached decoding.
"""
import json
import pathlib
import random
import sys
import time

import compare


def without_tokenizer(model, folder):
    """Weights and shape, and no end id: `rlalgo generate` takes ids and stops at the length."""
    model, folder = pathlib.Path(model).resolve(), pathlib.Path(folder)
    folder.mkdir(parents=True)
    for file in model.glob("model*.safetensors*"):
        (folder / file.name).symlink_to(file)
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None}))
    return str(folder)


def stored_dtype(model):
    """Of the first tensor of a checkpoint: "float32", "bfloat16" …"""
    file = sorted(pathlib.Path(model).glob("model*.safetensors"))[0]
    with open(file, "rb") as data:
        header = json.loads(data.read(int.from_bytes(data.read(8), "little")))
    found = next(value["dtype"] for name, value in header.items() if name != "__metadata__")
    return {"F32": "float32", "BF16": "bfloat16"}.get(found, found)


def prompts(count, length, words, seed):
    draw = random.Random(seed)
    return [[draw.randrange(words // 50, words) for _ in range(length)] for _ in range(count)]


def parting(ours, theirs):
    """The first place where two texts differ, or None."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None if len(ours) == len(theirs) else min(len(ours), len(theirs)))


ROUNDING = 0.25  # nats: a step of bfloat16 in logits of 32 to 64


def check_texts(asked, ours, theirs, margin, tie, exact=None):
    """→ "63 of 64 texts equal, …". `margin(prompt + text before, token of ours, token of theirs)`: the peer's logit of its own token
    minus that of ours. `exact(prompt + text before, token of ours)`: by how many nats float32's own token is ahead of it. The peer's bfloat16 may go astray
    where ours is float32's to rounding: there are prompts of random tokens where that token is thousands of places away, or a tie is 1.5 apart."""
    equal, astray, widest = 0, 0, 0.0
    for prompt, mine, other in zip(asked, ours, theirs):
        compare.same("numbers of tokens", len(mine), len(other))
        place = parting(mine, other)
        if place is None:
            equal += 1
            continue
        gap = margin(prompt + other[:place], mine[place], other[place])
        if abs(gap) <= tie:
            widest = max(widest, abs(gap))
        elif exact is not None and exact(prompt + other[:place], mine[place]) <= ROUNDING:
            astray += 1
        else:
            raise compare.Different(f"greedy texts part at token {place}: ours {mine[place]}, the peer's {other[place]}, whose logits are {gap:.3g} "
                                    f"apart there (a tie is {tie:g})")
    return (f"{equal} of {len(asked)} greedy texts equal" + (f", others part at logits ≤ {widest:.1g} apart" if equal + astray < len(asked) else "") +
            (f", {astray} where ours is float32's token to {ROUNDING} nats and the peer's logits are not" if astray else ""))


def parser(description):
    out = compare.options(description)
    out.add_argument("--model", required=True, help="a checkpoint directory with float32 weights")
    out.add_argument("--model-bfloat16", help="the same in bfloat16")
    out.add_argument("--sequences", default="1,16,64")
    out.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    out.add_argument("--tokens", type=int, default=128, help="of a completion")
    out.add_argument("--tie", type=float, default=2e-3, help="logits this close are equal in float32 (in bfloat16: 1)")
    return out


def run(arguments, script, name, goal, folder, environment=None):
    """All dtypes and counts of sequences, a row each as soon as it is there: what fails later costs none of those before. The peer's worker knows `generate` (ids → tokens, seconds) and `margin`."""
    for dtype in compare.dtypes(arguments.dtypes):
        model = arguments.model if dtype == "float32" else arguments.model_bfloat16
        if model is None:
            raise SystemExit("bfloat16 needs --model-bfloat16, or choose --dtypes float32")
        bare = without_tokenizer(model, pathlib.Path(folder) / dtype)
        words = json.loads((pathlib.Path(bare) / "config.json").read_text())["vocab_size"]
        compare.same("the dtypes asked for and stored", stored_dtype(bare), dtype)
        counts = [int(s) for s in arguments.sequences.split(",")]
        with compare.Worker(script, arguments.python, arguments.threads, ["--model", bare, "--dtype", dtype], environment) as worker, \
                compare.Lines(arguments.program, ["generate", "--model", bare, "--dtype", dtype, "--batch", max(counts)], arguments.threads) as engine:
            print(f"{name} {dtype}: both are loaded; timing", file=sys.stderr, flush=True)
            for count in counts:
                yield one(arguments, pathlib.Path(script).name, name, goal, dtype, count, words, worker, engine, bare)


def one(arguments, script, name, goal, dtype, count, words, worker, engine, bare):
    def greedy(prompt):
        return {"ids": prompt, "max_new_tokens": arguments.tokens, "temperature": 0}

    def ours(given, tokens=arguments.tokens):
        begin, before = time.perf_counter(), compare.processor_seconds(engine.process.pid)
        answers = engine.ask([{**greedy(p), "max_new_tokens": tokens} for p in given])
        return time.perf_counter() - begin, [a["ids"] for a in answers], compare.processor_seconds(engine.process.pid) - before

    def theirs(given, tokens=arguments.tokens):
        reply = worker.ask(do="generate", prompts=given, tokens=tokens)
        return reply["seconds"], reply["ids"], reply["processor"]

    warm = prompts(count, arguments.prompt, words, 10**6)
    ours(warm, 4)
    theirs(warm, 4)
    # Every pair of turns has new prompts: a prefix cache finds nothing.
    todo = {0: iter(range(arguments.repeats)), 1: iter(range(arguments.repeats))}
    given = [prompts(count, arguments.prompt, words, seed) for seed in range(arguments.repeats)]
    with compare.Others({worker.process.pid, engine.process.pid}) as others:
        mine, peers = compare.interleaved(lambda: ours(given[next(todo[0])]), lambda: theirs(given[next(todo[1])]), arguments.repeats)
    margin = lambda ids, a, b: worker.ask(do="margin", ids=ids, ours=a, theirs=b)["margin"]
    tie = arguments.tie if dtype == "float32" else max(arguments.tie, 1.0)

    def in_float32(ids, token):
        with compare.Lines(arguments.program, ["generate", "--model", bare, "--dtype", "float32"], arguments.threads) as wide:
            best = wide.ask([{"ids": ids, "max_new_tokens": 1, "temperature": 0}])[0]["ids"][0]
        with compare.Lines(arguments.program, ["score", "--model", bare, "--dtype", "float32", "--batch", 1], arguments.threads) as wide:
            ahead, ours = (answer["log_probs"][-1] for answer in wide.ask([{"ids": ids + [best]}, {"ids": ids + [token]}]))
        return ahead - ours

    checked = check_texts(sum(given, []), sum((m[1] for m in mine), []), sum((p[1] for p in peers), []), margin, tie, in_float32 if dtype != "float32" else None)
    rate = [[count * arguments.tokens / seconds for seconds, *_ in side] for side in (mine, peers)]
    row = compare.Row(script, f"{name}: {count} × {arguments.tokens} tokens", dtype, arguments.threads, compare.Spread.of(rate[0]), compare.Spread.of(rate[1]),
                      compare.times_as_fast(*rate, more_is_better=True),
                      compare.times_as_fast(*([turn[2] for turn in side] for side in (mine, peers)), more_is_better=False), "tokens/s", goal, checked, others.processors, worker.hello["versions"])
    print(f"{row.what} {dtype}: {row.ours} and {row.theirs} tokens/s, {row.ratio} times as fast, by processor time {row.processor}; {checked}", flush=True)
    return row
