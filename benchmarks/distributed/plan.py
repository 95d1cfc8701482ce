#!/usr/bin/env python3
"""Predicts step time and memory per GPU of training on N GPUs from the shape of the model and the speed of the links.

    plan.py [--model 7b | --config CONFIG.json] [--gpus 8,64,1024] [--strategy data,zero1,zero2,sharded,hybrid]
            [--device h100] [--tokens 8192] [--micro-batches 1] [--sequence 4096] [--checkpointing]
    plan.py table        all sizes on 1 to 512 cards, FSDP
    plan.py check        the model against the measured points of measured.json and against published runs

Prints one row for each number of GPUs and strategy. `tokens` are of one GPU and one micro-batch. What one card needs is card.py's
to say, from counted operations and bytes and the shapes of the products; the links are counted here. What the formulas are, and what
they leave out, is in README.md beside this. Only the standard library of Python is needed.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

import card
from shapes import MODELS, read_config


@dataclasses.dataclass(frozen=True)
class Device:
    """A card and its links: bandwidths in bytes/s and one direction, of one GPU within its node, and of a whole node to others; latency
    of one hop in seconds."""

    card: card.Card
    node: int
    within: float
    between: float
    latency: float

    @property
    def memory(self):
        return self.card.memory


DEVICES = {
    "h100": Device(card.CARDS["h100"], 8, 450e9, 400e9, 10e-6),  # NVLink 4, eight 400 Gbit/s adapters
    "h200": Device(card.CARDS["h200"], 8, 450e9, 400e9, 10e-6),
    "a100": Device(card.CARDS["a100"], 8, 300e9, 200e9, 10e-6),  # NVLink 3, eight 200 Gbit/s adapters
    "a100-1nic": Device(card.CARDS["a100"], 8, 300e9, 25e9, 10e-6),  # one 200 Gbit/s adapter a node
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
    return {**states(model.parameters, strategy, n, size), "gathered": gathered,
            "activations": card.activations(model, tokens, checkpointing)}


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


def predict(model, strategy, gpus, device, tokens, sequence, micro_batches=1, checkpointing=False, overlap=True, size=Bytes(), again=True):
    """`checkpointing`: the share of the layers that are computed again (true: all); `again`: whether logits are."""
    one = card.train(model, device.card, tokens, sequence, checkpointing=checkpointing, again=again)
    forward, backward = micro_batches * one["forward"], micro_batches * (one["passes"] - one["forward"])
    update = one["optimizer"] / (1 if strategy == "data" else shards(strategy, gpus, device))
    compute = forward + backward + update
    ahead, behind, after = communication(model, strategy, gpus, device, micro_batches, size)
    if overlap:
        # The sum of whole gradients goes under the backward of the last micro-batch alone.
        under = backward if strategy in ("sharded", "hybrid", "zero2") else backward / micro_batches
        step = max(forward, ahead) + max(under, behind) + (backward - under) + update + after
    else:
        step = compute + ahead + behind + after
    used = memory(model, strategy, gpus, device, tokens, checkpointing, size)
    links = ahead + behind + after
    return {"gpus": gpus, "strategy": strategy, "step": step, "compute": compute, "links": links,
            "exposed": step - compute, "memory": sum(used.values()), "parts": used,
            "tokens_per_second": gpus * tokens * micro_batches / step,
            "fits": sum(used.values()) <= device.memory}


def measured_device(point):
    """A machine of one node whose rates are those of a run on one rank and of a sum over two: every operation takes as long, bytes none."""
    one = card.Card(point["flops"], 1e30, float("inf"), products=1.0, attention=1.0, stream=1.0, launch=0.0)
    return Device(one, 1 << 20, point["bandwidth"], point["bandwidth"], point["latency"])


def published_device(one):
    """A known card with the source's links, and what it says otherwise of the card."""
    return Device(dataclasses.replace(card.CARDS[one["card"]], **one.get("differs", {})), **one["links"])


def planned(device, run, size):
    return predict(MODELS[run["model"]], run["strategy"], run["gpus"], device, run["batch"] * run["sequence"], run["sequence"],
                   run.get("micro_batches", 1), run.get("recomputed", 0.0), size=size, again=False)


def check_published(sets, out=print):
    """What published programs reach of the rate that is predicted, by source: nothing is fitted."""
    reached = {}
    for one in sets:
        size, device = Bytes(*one["bytes"]), published_device(one)
        out(one["source"])
        shares = []
        for run in one["runs"]:
            found = planned(device, run, size)
            rate = found["tokens_per_second"] / run["gpus"]
            shares.append(run["rate"] / rate)
            out(f"  {run['model']}, {run['gpus']} cards, {run['strategy']}, {run['batch']} x {run['sequence']} tokens"
                f"{', recomputed' if run.get('recomputed') else ''}: predicted {rate:,.0f}, published {run['rate']:,} tokens/s and card "
                f"({shares[-1]:.0%} of it)")
        known = [run for run in one["runs"] if "gib" in run]
        for first, second in zip(known, known[1:]):
            published = first["gib"] - second["gib"]
            less = (planned(device, first, size)["memory"] - planned(device, second, size)["memory"]) / 2**30
            out(f"  memory, {first['gpus']} to {second['gpus']} cards: predicted {less:.1f} GiB less, published {published:.1f} ({less / published - 1:+.1%})")
        out(f"  in the middle {statistics.median(shares):.0%}")
        reached[one["source"]] = shares
    return reached


def check_measured(points, out=print):
    """Prints prediction beside what was measured here, and beside ZeRO's figure; the largest relative deviation."""
    worst = 0.0
    for point in points:
        model = MODELS[point["model"]]
        device = measured_device(point)
        size = Bytes(4, 4, 8)  # f32: no second copy of the weights
        for run in point["runs"]:
            found = predict(model, "data", run["ranks"], device, run["tokens"], run["sequence"], run["micro_batches"],
                            overlap=False, size=size, again=False)
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


def check(points, out=print):
    shares = [share for one in check_published(points["published"], out).values() for share in one]
    out(f"published runs reach {min(shares):.0%} to {max(shares):.0%} of what is predicted, {statistics.median(shares):.0%} in the middle")
    worst = check_measured(points["measured"], out)
    out(f"largest deviation of what was measured here {worst:.1%}")
    return shares, worst


def table(out=print, device=DEVICES["h100"], tokens=16384, sequence=4096):
    """Sizes by numbers of cards, FSDP with recomputation."""
    counts = (1, 8, 64, 512)
    out("| model | " + " | ".join(f"{n} cards" if n > 1 else "1 card" for n in counts) + " |\n|---|" + "---|" * len(counts))
    for name in ("0.5b", "1.5b", "7b", "14b", "32b", "70b"):
        cells = []
        for gpus in counts:
            r = predict(MODELS[name], "sharded", gpus, device, tokens, sequence, 1, True)
            cells.append(f"{r['step']:.2g} s, {r['tokens_per_second'] / gpus:,.0f} tokens/s and card, {r['memory'] / 1e9:.0f} GB"
                         + (" (links)" if r["exposed"] > 0.1 * r["step"] else "") if r["fits"]
                         else f"does not fit ({r['memory'] / 1e9:.0f} GB)")
        out(f"| {name.upper()} | " + " | ".join(cells) + " |")


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent
    if arguments[:1] == ["check"]:
        check(json.loads((here / "measured.json").read_text()))
        return 0
    if arguments[:1] == ["table"]:
        table()
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
