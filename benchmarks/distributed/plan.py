#!/usr/bin/env python3
"""Predicts step time and memory per GPU of training on N GPUs from the shape of the model and the speed of the links.

    plan.py [--model 7b | --config CONFIG.json] [--gpus 8,64,1024] [--strategy data,zero1,zero2,sharded,hybrid]
            [--device h100] [--tokens 8192] [--micro-batches 1] [--sequence 4096] [--checkpointing]
    plan.py check        the formulas against the measured points of measured.json and against published ones

Prints one row for each number of GPUs and strategy. What the formulas are, and what they leave out, is in docs/distributed.md
("What N GPUs would do"). `tokens` are of one GPU and one micro-batch. Rates are those of a whole device: what its kernels reach
of the peak is `efficiency`, one number for a model; card.py has it from the shapes of the model's products (card.several). Only the
standard library of Python is needed.
"""

import argparse
import dataclasses
import json
import pathlib
import sys


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    head: int = 0  # size of a head; 0: hidden / heads

    @property
    def head_size(self):
        return self.head or self.hidden // self.heads

    @property
    def layer_parameters(self):
        head = self.head_size
        attention = 2 * self.hidden * head * self.heads + 2 * self.hidden * head * self.kv_heads
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def outer_parameters(self):
        return self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self):
        return self.layers * self.layer_parameters + self.outer_parameters

    def flops(self, tokens, sequence, checkpointing):
        """Of forward and backward: 6 per token and weight that is multiplied, causal attention 6·s·h per token and layer."""
        weights = self.layers * self.layer_parameters + self.vocab * self.hidden
        one = 6 * weights + 6 * self.layers * sequence * self.heads * self.head_size
        return tokens * one * (4 / 3 if checkpointing else 1)


# Shapes of Qwen2.5 (0.5B … 72B), Qwen3, Llama 2 (7B, 13B, 70B) and Llama 3 (with its larger vocabulary).
MODELS = {
    "0.5b": Model(24, 896, 4864, 14, 2, 151936, True),
    "1.5b": Model(28, 1536, 8960, 12, 2, 151936, True),
    "3b": Model(36, 2048, 11008, 16, 2, 151936, True),
    "7b": Model(32, 4096, 11008, 32, 32, 32000),
    "13b": Model(40, 5120, 13824, 40, 40, 32000),
    "llama3-8b": Model(32, 4096, 14336, 32, 8, 128256),
    "llama3-70b": Model(80, 8192, 28672, 64, 8, 128256),
    "14b": Model(48, 5120, 13824, 40, 8, 152064),
    "32b": Model(64, 5120, 27648, 40, 8, 152064),
    "70b": Model(80, 8192, 28672, 64, 8, 32000),
    "qwen3-0.6b": Model(28, 1024, 3072, 16, 8, 151936, True, 128),
    "qwen3-1.7b": Model(28, 2048, 6144, 16, 8, 151936, True, 128),
    "qwen3-4b": Model(36, 2560, 9728, 32, 8, 151936, True, 128),
    "135m": Model(30, 576, 1536, 9, 3, 49152, True),
}


@dataclasses.dataclass(frozen=True)
class Device:
    """flops: of the dtype trained in, per second; bandwidths in bytes/s and one direction: of one GPU within its node, and of a
    whole node to others; latency of one hop in seconds."""

    flops: float
    efficiency: float
    node: int
    within: float
    between: float
    latency: float
    memory: float


DEVICES = {
    "h100": Device(989e12, 0.45, 8, 450e9, 400e9, 10e-6, 80e9),  # NVLink 4, eight 400 Gbit/s adapters
    "a100": Device(312e12, 0.50, 8, 300e9, 200e9, 10e-6, 80e9),  # NVLink 3, eight 200 Gbit/s adapters
    "a100-1nic": Device(312e12, 0.50, 8, 300e9, 25e9, 10e-6, 80e9),  # one 200 Gbit/s adapter a node
}

STRATEGIES = ("data", "zero1", "zero2", "sharded", "hybrid")


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Of one parameter: in the passes, its gradient, and what the optimizer keeps (f32 master and two moments)."""

    weight: int = 2
    gradient: int = 4
    optimizer: int = 12


def ring(volume, ranks, bandwidth, latency):
    """Seconds of a reduce-scatter or an all-gather of `volume` bytes: (n − 1)/n of them leave each rank in n − 1 hops."""
    return 0.0 if ranks == 1 else volume * (ranks - 1) / ranks / bandwidth + (ranks - 1) * latency


def link(device, ranks):
    """A ring over several nodes goes as fast as its slowest link."""
    return device.within if ranks <= device.node else min(device.within, device.between)


def shards(strategy, gpus, device):
    return {"data": 1, "hybrid": min(gpus, device.node)}.get(strategy, gpus)


def states(parameters, strategy, n, size=Bytes()):
    """Bytes of weights, gradients and optimizer of one GPU, sharded over n."""
    return {"weights": size.weight * parameters / (n if strategy in ("sharded", "hybrid") else 1),
            "gradients": size.gradient * parameters / (1 if strategy in ("data", "zero1") else n),
            "optimizer": size.optimizer * parameters / (1 if strategy == "data" else n)}


def memory(model, strategy, gpus, device, tokens, checkpointing, size=Bytes()):
    """Bytes of one GPU: states, the layers that are gathered at a time with the gradient of one, activations."""
    n = shards(strategy, gpus, device)
    gathered = 0
    if strategy in ("sharded", "hybrid") and n > 1:
        gathered = size.weight * (2 * model.layer_parameters + model.outer_parameters) + size.gradient * model.layer_parameters
    # Korthikanti et al. 2022, equation 1 without the attention matrix, which no kernel of today writes; 2 bytes a number.
    layer = 34 * tokens * model.hidden
    activations = model.layers * 2 * tokens * model.hidden + layer if checkpointing else model.layers * layer
    return {**states(model.parameters, strategy, n, size), "gathered": gathered, "activations": activations}


def communication(model, strategy, gpus, device, micro_batches, size=Bytes()):
    """Seconds on the links in a step: (under forward passes, under backward passes, after them)."""
    p, speed = model.parameters, link(device, gpus)
    gradients, weights = size.gradient * p, size.weight * p
    if gpus == 1:
        return 0.0, 0.0, 0.0
    if strategy == "data":
        return 0.0, 2 * ring(gradients, gpus, speed, device.latency), 0.0
    if strategy in ("zero1", "zero2"):
        passes = micro_batches if strategy == "zero2" else 1
        return 0.0, passes * ring(gradients, gpus, speed, device.latency), ring(weights, gpus, speed, device.latency)
    n = shards(strategy, gpus, device)
    speed = link(device, n)
    # A ring for each layer: its bandwidth term is that of all, its hops are paid for each of them.
    hops = (model.layers - 1) * (n - 1) * device.latency
    gather = ring(weights, n, speed, device.latency) + hops
    scatter = ring(gradients, n, speed, device.latency) + hops
    across = 0.0
    if gpus > n:  # the same shard of all nodes is summed, by all GPUs of a node at a time
        across = 2 * ring(gradients / n, gpus // n, device.between / n, device.latency)
    return micro_batches * gather, micro_batches * (gather + scatter) + across, 0.0


def predict(model, strategy, gpus, device, tokens, sequence, micro_batches=1, checkpointing=False, overlap=True, size=Bytes()):
    compute = micro_batches * model.flops(tokens, sequence, checkpointing) / (device.flops * device.efficiency)
    forward = compute * (1 / 4 if checkpointing else 1 / 3)
    backward = compute - forward
    ahead, behind, after = communication(model, strategy, gpus, device, micro_batches, size)
    if overlap:
        # The sum of whole gradients goes under the backward of the last micro-batch alone.
        under = backward if strategy in ("sharded", "hybrid", "zero2") else backward / micro_batches
        step = max(forward, ahead) + max(under, behind) + (backward - under) + after
    else:
        step = compute + ahead + behind + after
    used = memory(model, strategy, gpus, device, tokens, checkpointing, size)
    links = ahead + behind + after
    return {"gpus": gpus, "strategy": strategy, "step": step, "compute": compute, "links": links,
            "exposed": step - compute, "memory": sum(used.values()), "parts": used,
            "tokens_per_second": gpus * tokens * micro_batches / step,
            "fits": sum(used.values()) <= device.memory}


def measured_device(point):
    """A machine of one node whose rates are those of a run on one rank and of a sum over two."""
    return Device(point["flops"], 1.0, 1 << 20, point["bandwidth"], point["bandwidth"], point["latency"], float("inf"))


def fitted(device, run, size):
    """The device with the efficiency at which a published run has its rate."""
    low, high = 0.01, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(dataclasses.replace(device, efficiency=middle), run, size) < run["rate"] else (low, middle)
    return dataclasses.replace(device, efficiency=low)


def planned(device, run, size):
    return predict(MODELS[run["model"]], run["strategy"], run["gpus"], device, run["batch"] * run["sequence"], run["sequence"], 1,
                   run["checkpointing"], size=size)


def rate_of(device, run, size):
    """Tokens per second and GPU."""
    return planned(device, run, size)["tokens_per_second"] / run["gpus"]


def check_published(sets, out=print):
    """Of each set the first run says what its kernels reach of the peak; the others are predicted. The largest deviation."""
    worst = 0.0
    for one in sets:
        size = Bytes(*one["bytes"])
        device = fitted(Device(**one["device"], efficiency=0.5), one["runs"][0], size)
        out(f"{one['source']}: {device.efficiency:.0%} of the peak")
        for i, run in enumerate(one["runs"]):
            off = rate_of(device, run, size) / run["rate"] - 1
            worst = max(worst, abs(off))
            out(f"  {run['model']}, {run['gpus']} GPUs, {run['strategy']}, batch {run['batch']}: predicted {rate_of(device, run, size):,.0f}, "
                f"published {run['rate']:,} tokens/s and GPU ({'fitted' if i == 0 else f'{off:+.1%}'})")
        known = [run for run in one["runs"] if "gib" in run]
        for first, second in zip(known, known[1:]):
            published = first["gib"] - second["gib"]
            found = (planned(device, first, size)["memory"] - planned(device, second, size)["memory"]) / 2**30
            worst = max(worst, abs(found / published - 1))
            out(f"  memory, {first['gpus']} to {second['gpus']} GPUs: predicted {found:.1f} GiB less, published {published:.1f} ({found / published - 1:+.1%})")
    return worst


def check(points, out=print):
    """Prints prediction beside measurement; the largest relative deviation of the step times."""
    worst = check_published(points["published"], out)
    for point in points["measured"]:
        model = MODELS[point["model"]]
        device = measured_device(point)
        size = Bytes(4, 4, 8)  # f32: no second copy of the weights
        for run in point["runs"]:
            found = predict(model, "data", run["ranks"], device, run["tokens"], run["sequence"], run["micro_batches"],
                            overlap=False, size=size)
            off = found["step"] / run["seconds"] - 1
            worst = max(worst, abs(off))
            out(f"{point['name']}, {run['ranks']} ranks: predicted {found['step']:.3f} s, measured {run['seconds']:.3f} s "
                f"({off:+.1%}); gradients {4 * model.parameters / 1e6:.0f} MB, the saved model's tensors {run['bytes'] / 1e6:.0f} MB")
    # Rajbhandari et al. 2020, figure 1: 7.5 billion parameters, 64 GPUs, 2 + 2 + 12 bytes a parameter, GB.
    for strategy, published in (("data", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("sharded", 1.9)):
        found = sum(states(7.5e9, strategy, 64, Bytes(2, 2, 12)).values()) / 1e9
        out(f"ZeRO, figure 1, {strategy}: predicted {found:.1f} GB, published {published} GB")
        worst = max(worst, abs(round(found, 1) / published - 1))
    return worst


def read_config(path):
    c = json.loads(pathlib.Path(path).read_text())
    return Model(c["num_hidden_layers"], c["hidden_size"], c["intermediate_size"], c["num_attention_heads"],
                 c.get("num_key_value_heads", c["num_attention_heads"]), c["vocab_size"], c.get("tie_word_embeddings", False),
                 c.get("head_dim") or 0)


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent
    if arguments[:1] == ["check"]:
        worst = check(json.loads((here / "measured.json").read_text()))
        print(f"largest deviation {worst:.1%}")
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="7b", choices=sorted(MODELS))
    parser.add_argument("--config", help="config.json of a Llama or Qwen model")
    parser.add_argument("--gpus", default="8,64,512,1024")
    parser.add_argument("--strategy", default=",".join(STRATEGIES))
    parser.add_argument("--device", default="h100", choices=sorted(DEVICES))
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true")
    given = parser.parse_args(arguments)
    model = read_config(given.config) if given.config else MODELS[given.model]
    print(f"{model.parameters / 1e9:.2f}B parameters, {given.device}, {given.tokens} tokens a GPU and micro-batch\n")
    print("| GPUs | strategy | step, s | of it exposed | tokens/s | GB a GPU | fits |\n|---|---|---|---|---|---|---|")
    for gpus in [int(text) for text in given.gpus.split(",")]:
        for strategy in given.strategy.split(","):
            if strategy not in STRATEGIES:
                parser.error(f"--strategy: {strategy}; one of {', '.join(STRATEGIES)}")
            r = predict(model, strategy, gpus, DEVICES[given.device], given.tokens, given.sequence, given.micro_batches,
                        given.checkpointing)
            print(f"| {gpus} | {strategy} | {r['step']:.3f} | {r['exposed'] / r['step']:.0%} | {r['tokens_per_second']:,.0f} | "
                  f"{r['memory'] / 1e9:.1f} | {'yes' if r['fits'] else 'no'} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
