#!/usr/bin/env python3
"""What it costs to include a header: processor time and peak memory of a file that includes nothing else, -O0.

    include_cost.py BUILD [--rounds N] [--before TREE] HEADER[=HEADER_BEFORE] ...

BUILD is a configured build folder (include paths and definitions come from its compile_commands.json). Each header is
compiled header-only and, where that differs, with RLALGO_COMPILED. --before: another checkout whose header (of the same
name, unless given after =) is compiled in turns with ours. The least of N rounds (default 3) counts; the figures are of
one run on one machine, so compare columns, not days.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def flags(build):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/rlalgo_pch_checked.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            while "ccache" not in words[0] and not words[0].endswith(("c++", "g++")) and "++" not in words[0]:
                del words[0]
            if "ccache" in words[0]:
                del words[0]
            kept = [words[0]]
            for before, word in zip(words, words[1:]):
                if word.startswith(("-I", "-D", "-std=")) or word == "-isystem" or before == "-isystem":
                    kept.append(word)
            return [w for w in kept if w != "-DRLALGO_COMPILED"]
    sys.exit(f"include_cost.py: {build} has no target rlalgo_pch_checked; configure it with tests")


def cost(command):
    """(seconds of processor time, MB at the peak) of a child."""
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"include_cost.py: {shlex.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("headers", nargs="+")
    options = parser.parse_args()
    base = flags(options.build.resolve())
    print("header                              before        header-only   compiled")
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder, "one.cpp"), pathlib.Path(folder, "one.o")

        def measured(tree, header, *more):
            source.write_text(f"#include <rlalgo/{header}>\n")
            command = [w.replace(str(ROOT / "include"), str(tree / "include")) for w in base]
            return cost([*command, *more, "-O0", "-w", "-c", str(source), "-o", str(out)])

        for name in options.headers:
            header, _, earlier = name.partition("=")
            least = {}
            for _ in range(options.rounds):
                runs = {"header-only": (ROOT, header), "compiled": (ROOT, header, "-DRLALGO_COMPILED")}
                if options.before and earlier != "-":
                    runs["before"] = (options.before.resolve(), earlier or header)
                for column, arguments in runs.items():
                    found = measured(*arguments)
                    least[column] = min(least.get(column, found), found)
            cells = [f"{s:5.1f} s {m:4.0f} MB" for s, m in (least[c] for c in ("before", "header-only", "compiled") if c in least)]
            print(f"{header:35} {'' if 'before' in least else '-' + ' ' * 13}{'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
