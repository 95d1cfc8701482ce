#!/usr/bin/env python3
"""What one GPU needs for a step and for a token, from counted operations and bytes; nothing of it was measured on a card by us.

    card.py [--model 0.5b] [--card h100] [--tokens 16384 --sequence 1024] [--lora 16] [--batch 64 --context 600]
    card.py check        the formulas against published runs of other programs on one card

plan.py adds the links of several cards, and has published runs of those.

Seconds of a part = the largest of its arithmetic, its bytes, and its launches:
  products     2 per token and weight forward, 4 backward (2 where the weight is frozen), 2 more with recomputation; each by its shape:
               tiles in whole waves over the card's multiprocessors, sums cut in pieces where tiles are few, or its bytes
  attention    causal, 2·s·w forward per token and layer (w: heads times head size), 4 backward, 2 more with recomputation
  head         8 per token with a loss, hidden and vocabulary element: forward, logits again, both gradients; 6 where it is frozen;
               and 22 bytes a logit: written and read in float32 twice, its gradient written and read twice in bfloat16
  between      what stands between the products: `passes` reads or writes of a token's activations a layer, in bytes
  optimizer    AdamW over bfloat16 weights with float32 masters: 30 bytes a trained weight are read or written
  token step   weights and keys and values that are read, and `layer_gap` a layer that kernels of a captured graph need at least
What is published is compared in check(); its deviation is the error of what is predicted. Only the standard library is needed.
"""

import argparse
import dataclasses
import sys

import shapes


@dataclasses.dataclass(frozen=True)
class Card:
    """flops, bytes: peaks per second. products, attention, stream: the shares of them that kernels reach, products while every
    multiprocessor has a tile. processors: of these; 0: every shape of a product reaches that share. launch: seconds of the host for an
    operator that is launched by itself. layer_gap: seconds of a layer of a captured token step beyond its bytes."""

    flops: float
    bandwidth: float
    memory: float
    products: float = 0.72
    attention: float = 0.40
    stream: float = 0.85
    launch: float = 4e-6
    layer_gap: float = 45.7e-6
    processors: int = 0


CARDS = {
    "h100": Card(989e12, 3.35e12, 80e9, processors=132),  # SXM, HBM3
    "h100-pcie": Card(756e12, 2.0e12, 80e9, processors=114),
    "h200": Card(989e12, 4.8e12, 141e9, processors=132),
    "a100": Card(312e12, 2.04e12, 80e9, products=0.80, attention=0.55, processors=108),
}

# Rows and columns of a tile, and the share of the rate of the largest that its multiprocessor reaches.
TILES = ((128, 256, 1.0), (128, 128, 0.85), (64, 128, 0.65))
FILL = 256  # of a tile: before its first and after its last product as much time as so many more elements of the sum take

# Operators of a layer, forward and backward, of a micro-batch, as tests/far/layer_test.cpp counts them of Qwen3: of LibTorch, and with all
# kernels.
OPERATORS = {"operators": 339, "kernels": 36}


def width(model):
    return model.heads * model.head_size


def product(card, rows, columns, inner):
    """Seconds of [rows, inner] times [inner, columns] in bfloat16: the best of the tiles and of the pieces that sums are cut in."""
    size = 2 * (rows * inner + inner * columns + rows * columns)
    rate, stream = card.flops * card.products, card.bandwidth * card.stream
    if card.processors == 0:
        return 2 * rows * columns * inner / rate
    found = []
    for height, width_, share in TILES:
        for pieces in (1, 2, 4, 8, 16):
            waves = -(-(-(-rows // height) * -(-columns // width_) * pieces) // card.processors)
            busy = waves * 2 * height * width_ * (-(-inner // pieces) + FILL) * card.processors / (rate * share)
            found.append(max(busy, (size + (8 * pieces * rows * columns if pieces > 1 else 0)) / stream))
    return min(found)


def maps(model):
    """(outputs, inputs) of the products of a layer: q, k and v are one, gate and up another."""
    head = model.head_size
    return [(head * (model.heads + 2 * model.kv_heads), model.hidden), (model.hidden, width(model)),
            ((2 if model.gated else 1) * model.intermediate, model.hidden), (model.hidden, model.intermediate)]


def layer_products(model, card, tokens):
    """Seconds of a layer's products: forward, of the gradients of inputs, of those of weights."""
    return (sum(product(card, tokens, outs, ins) for outs, ins in maps(model)),
            sum(product(card, tokens, ins, outs) for outs, ins in maps(model)),
            sum(product(card, outs, ins, tokens) for outs, ins in maps(model)))


def head_parts(card, tokens, hidden, vocab, frozen=False, logit_bytes=22, again=True):
    """Seconds forward and backward; `again`: logits are not kept."""
    logits, inputs, weights = product(card, tokens, vocab, hidden), product(card, tokens, hidden, vocab), product(card, vocab, hidden, tokens)
    bytes_ = logit_bytes * tokens * vocab / (card.bandwidth * card.stream)
    return logits + bytes_ / 3, (logits if again else 0) + inputs + (0 if frozen else weights) + bytes_ * 2 / 3


def head_seconds(card, tokens, hidden, vocab, frozen=False, logit_bytes=22):
    return sum(head_parts(card, tokens, hidden, vocab, frozen, logit_bytes))


def layer_flops(model, tokens):
    """Of the products of one layer forward."""
    return 2 * tokens * (model.layer_parameters - 2 * model.hidden)


def lora_parameters(model, rank):
    """Of adapters on all seven maps of a layer."""
    head = model.head_size
    ins_outs = [(model.hidden, width(model)), (model.hidden, head * model.kv_heads), (model.hidden, head * model.kv_heads),
                (width(model), model.hidden), (model.hidden, model.intermediate), (model.hidden, model.intermediate),
                (model.intermediate, model.hidden)]
    return model.layers * sum(rank * (i + o) for i, o in ins_outs)


def train(model, card, tokens, sequence, lora=0, checkpointing=False, operators=OPERATORS["kernels"], scored=1.0, passes=30, again=True):
    """Seconds of one step of one micro-batch by parts; `scored`: the share of its tokens that has a loss; `checkpointing`: the share of
    the layers that are computed again (true: all), `again`: whether logits are. "forward" is of all parts, "passes" forward and
    backward, neither of them less than the host needs to launch."""
    forward, inputs, weights = layer_products(model, card, tokens)
    adapters = lora_parameters(model, lora) if lora else 0
    trained = adapters if lora else model.parameters
    rate, stream = card.flops * card.products, card.bandwidth * card.stream
    attention = tokens * sequence * width(model) * model.layers * 2 / (card.flops * card.attention)  # forward
    between = model.layers * passes * 2 * tokens * model.hidden / stream  # forward and backward
    head, head_back = head_parts(card, tokens * scored, model.hidden, model.vocab, bool(lora), again=again)
    seconds = {
        "products": (forward * (1 + checkpointing) + inputs + (0 if lora else weights)) * model.layers + 6 * tokens * adapters / rate,
        "attention": attention * (3 + checkpointing),
        "head": head + head_back,
        "between": between * (1 + checkpointing / 3),
        "optimizer": 30 * trained / stream,
    }
    host = operators * model.layers * card.launch
    device = sum(seconds.values()) - seconds["optimizer"]
    ahead = forward * model.layers + 2 * tokens * adapters / rate + attention + head + between / 3
    whole = max(device, host)
    return {**seconds, "host": host, "forward": ahead * whole / device, "passes": whole, "step": max(device + seconds["optimizer"], host)}


def activations(model, tokens, checkpointing=False):
    """Bytes. Korthikanti et al. 2022, equation 1 without the attention matrix, which no kernel of today writes; 2 bytes a number.
    `checkpointing`: the share of the layers of which the input alone is kept, while one of them is computed again."""
    layer = 34 * tokens * model.hidden
    return model.layers * (checkpointing * 2 * tokens * model.hidden + (1 - checkpointing) * layer) + (layer if checkpointing else 0)


def train_memory(model, tokens, lora=0, checkpointing=False):
    """Bytes: weights, gradients, masters and moments, activations, one tile of logits."""
    trained = lora_parameters(model, lora) if lora else model.parameters
    return 2 * model.parameters + (2 * trained if lora else 0) + 16 * trained + activations(model, tokens, checkpointing) + 256e6


def token_step(model, card, batch, context):
    """Seconds of one token of each of `batch` rows that see `context` tokens."""
    weights = 2 * (model.layers * model.layer_parameters + model.vocab * model.hidden)
    pages = 4 * batch * context * model.layers * model.kv_heads * model.head_size
    arithmetic = (model.layers * layer_flops(model, batch) + 2 * batch * model.vocab * model.hidden) / (card.flops * card.products)
    return max((weights + pages) / (card.bandwidth * card.stream), arithmetic) + model.layers * card.layer_gap


def prefill(model, card, tokens, sequence):
    attention = 2 * tokens * sequence * width(model) * model.layers
    return model.layers * layer_products(model, card, tokens)[0] + attention / (card.flops * card.attention)


def serve(model, card, requests, prompt, new, rows=256):
    """Seconds of so many requests, `rows` at a time."""
    steps = new * -(-requests // rows)
    return prefill(model, card, requests * prompt, prompt) + steps * token_step(model, card, min(rows, requests), prompt + new / 2)


def online_step(model, card, prompts, group, prompt, new, operators=OPERATORS["kernels"], lora=0):
    """Seconds of a GRPO step: prompts are read once, completions drawn together, old log-probs are those of drawing."""
    rows = prompts * group
    drawn = prefill(model, card, prompts * prompt, prompt) + new * token_step(model, card, rows, prompt + new / 2)
    trained = train(model, card, prompts * prompt + rows * new, prompt + new, lora, operators=operators,
                    scored=rows * new / (prompts * prompt + rows * new))
    return {"generate": drawn, "train": trained["step"], "step": drawn + trained["step"]}


# (what, published seconds, source, prediction)
def published():
    m, h100, pcie = shapes.MODELS, CARDS["h100"], CARDS["h100-pcie"]
    return [
        ("Qwen2.5-0.5B, a token at batch 1, vLLM on H100 PCIe (fits layer_gap)", 1.68e-3, "vllm#53060", token_step(m["0.5b"], pcie, 1, 600)),
        ("Qwen2.5-0.5B, a token at batch 32, the same", 2.15e-3, "vllm#53060", token_step(m["0.5b"], pcie, 32, 600)),
        ("Qwen3-1.7B, a token at batch 1, the same", 3.20e-3, "vllm#53060", token_step(m["qwen3-1.7b"], pcie, 1, 600)),
        ("Qwen3-4B, 1,500 requests of 512 to 128 tokens, vLLM on H100", 35.9, "vllm#38479", serve(m["qwen3-4b"], h100, 1500, 512, 128)),
        ("Qwen3-0.6B, full step of 2 x 16,384 tokens, prime-rl on H100", 1.99, "prime-rl",
         train(m["qwen3-0.6b"], h100, 32768, 16384, checkpointing=True)["step"]),
        ("Qwen3-4B, LoRA 16, 2 x 16,384 tokens, prime-rl on H100", 5.26, "prime-rl",
         train(m["qwen3-4b"], h100, 32768, 16384, lora=16, checkpointing=True)["step"]),
        ("head, 8,192 tokens, hidden 4,096, vocabulary 131,072, forward and backward, Liger on H100", 50.4e-3, "Liger",
         head_seconds(h100, 8192, 4096, 131072)),
    ]


def check(out=print):
    """Prints prediction beside what is published; the deviations."""
    off = []
    for what, seconds, source, found in published():
        off.append(found / seconds - 1)
        out(f"{what}: predicted {found * 1e3:,.2f} ms, published {seconds * 1e3:,.2f} ({source}; {off[-1]:+.0%})")
    return off


def main(arguments):
    if arguments[:1] == ["check"]:
        print(f"largest deviation {max(abs(one) for one in check()):.0%}")
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="0.5b", choices=sorted(shapes.MODELS))
    parser.add_argument("--card", default="h100", choices=sorted(CARDS))
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--lora", type=int, default=0)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--operators", default="kernels", choices=sorted(OPERATORS))
    parser.add_argument("--batch", default="1,64,256")
    parser.add_argument("--context", type=int, default=600)
    given = parser.parse_args(arguments)
    model, card = shapes.MODELS[given.model], CARDS[given.card]
    parts = train(model, card, given.tokens, given.sequence, given.lora, given.checkpointing, OPERATORS[given.operators])
    print(f"{given.model} on {given.card}, computed, not measured. A step of {given.tokens} tokens of {given.sequence}:")
    for name, seconds in parts.items():
        print(f"  {name:10} {seconds * 1e3:9.2f} ms")
    print(f"  memory     {train_memory(model, given.tokens, given.lora, given.checkpointing) / 2**30:9.1f} GiB")
    for batch in [int(text) for text in given.batch.split(",")]:
        print(f"  a token of {batch} rows at {given.context}: {token_step(model, card, batch, given.context) * 1e3:.2f} ms")
    grpo = online_step(model, card, 8, 8, 256, 512, OPERATORS[given.operators], given.lora)
    print(f"  GRPO, 8 x 8 completions of 512: generate {grpo['generate']:.2f} s, train {grpo['train']:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
