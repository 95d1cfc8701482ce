#!/usr/bin/env python3
"""Where a build's time went: processor-bound seconds of each job, summed by part, from Ninja's log.

    build_times.py BUILD [--slowest N]

A table of parts (precompiled headers, compiled library, command line, lessons and programs, tests of each room, links,
consumers and other commands), then the N slowest jobs (default 8). Seconds are of jobs, wall time each: with two jobs at
once the build takes half of the sum. A job that ran more than once counts with its last run.
"""

import argparse
import collections
import pathlib
import re

PARTS = [
    (r"\.gch$|rlalgo_pch", "precompiled headers"),
    (r"rlalgo_compiled", "compiled library"),
    (r"examples/CMakeFiles/rlalgo", "command line"),
    (r"examples/CMakeFiles/", "lessons and programs"),
    (r"tests/CMakeFiles/test_(\w+)\.dir/", "tests of {}/"),
    (r"tests/CMakeFiles/|compile_fail", "tests, other"),
    (r"consumer/", "consumers"),
    (r"^bin/|\.a$|\.so", "links"),
]


def jobs(log):
    found = {}
    for line in log.read_text().splitlines():
        fields = line.split("\t")
        if len(fields) == 5:
            found[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return found


def part_of(output):
    for pattern, name in PARTS:
        match = re.search(pattern, output)
        if match:
            return name.format(*match.groups())
    return "other"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--slowest", type=int, default=8)
    options = parser.parse_args()
    found = jobs(options.build / ".ninja_log")
    sums, counts = collections.Counter(), collections.Counter()
    for output, seconds in found.items():
        sums[part_of(output)] += seconds
        counts[part_of(output)] += 1
    print(f"{'part':28} {'jobs':>5} {'seconds':>8}")
    for part, seconds in sums.most_common():
        print(f"{part:28} {counts[part]:5} {seconds:8.0f}")
    print(f"{'all':28} {len(found):5} {sum(found.values()):8.0f}")
    for output, seconds in sorted(found.items(), key=lambda job: -job[1])[: options.slowest]:
        print(f"  {seconds:6.1f} s  {output}")


if __name__ == "__main__":
    main()
