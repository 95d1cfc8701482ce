#!/usr/bin/env python3
"""How busy generators and trainer are, simulated: lengths from a long tail, token and step times as measured (docs/async.md).

  synchronous   generate a batch, then train on it, on separate devices
  colocated     the same on one set of devices, which train when they do not generate
  batch ahead   a batch is generated while the last one is trained on (prefetch_depth 1)
  in flight     generators take the next prompt as soon as a slot is free, through updates of the weights; completions that an update
                finds half done go on

  python3 benchmarks/overlap_simulation.py [--rows-per-generator 4] [--median 400] [--sigma 1.0] [--token-seconds 0.01] [--train-share 1]
"""
import argparse
import heapq
import random


def makespan(lengths, slots):
    """Seconds-in-tokens until `slots`, each with one completion at a time, in order, have made all."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-per-generator", type=int, default=4)
    parser.add_argument("--median", type=float, default=400, help="tokens")
    parser.add_argument("--sigma", type=float, default=1.0, help="of the logarithm of a length")
    parser.add_argument("--longest", type=float, default=8192, help="tokens; longer ones are cut")
    parser.add_argument("--token-seconds", type=float, default=0.01)
    parser.add_argument("--train-share", type=float, default=1.0, help="a training step, in mean work of a generator for one batch")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    names = ("synchronous", "colocated", "batch ahead", "in flight")
    print("| generators | " + " | ".join(f"{name}: generators busy, steps/h" for name in names) + " |")
    print("|---|" + "---|" * len(names))
    for generators in (8, 16, 32, 64, 128, 256, 512):
        draw = random.Random(generators)
        total = dict.fromkeys(names, 0.0)
        work = 0.0
        for _ in range(options.steps):
            lengths = [min(options.longest, options.median * draw.lognormvariate(0, options.sigma))
                       for _ in range(generators * options.rows_per_generator)]
            each = sum(lengths) / generators  # Σ L / N
            train = options.train_share * each
            whole = makespan(lengths, generators)
            work += each
            total["synchronous"] += whole + train
            total["colocated"] += whole + train / 2  # twice the devices train
            total["batch ahead"] += max(whole, train)
            total["in flight"] += max(each, train)
        cells = []
        for name in names:
            rate = 3600 * options.steps / (total[name] * options.token_seconds)
            cells.append(f"{100 * work / total[name]:.0f}%, {rate:.0f}")
        print(f"| {generators} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
