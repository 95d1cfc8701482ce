#!/usr/bin/env python3
"""Compiles every header of include/rlalgo on its own; the last line is `N headers stand alone, N do not`.

    check_headers.py BUILD [--jobs N] [ROOM ...]

BUILD is a configured build folder (its compile_commands.json says how host and torch headers are compiled). Headers of
floors 0-1 see no LibTorch. A header whose definitions are apart (core/compiled.hpp) is compiled with and without them;
a detail/…_impl.hpp includes its header, which includes it, and is not compiled once more. In front of a header comes, already
precompiled, the largest of LEADS that it includes itself (through others), which gives it nothing that it would not have:
that is what most of the time would go to. Exit status: 0 only if all compile without a warning.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
LEADS = {
    "host": ["nlohmann/json.hpp", "rlalgo/data/rollout.hpp"],
    "torch": ["nlohmann/json.hpp", "rlalgo/tensor/tensor.hpp", "rlalgo/loss/policy_gradient.hpp", "rlalgo/model/decoder.hpp",
              "rlalgo/sampler/rows.hpp", "rlalgo/inference/decoder_engine.hpp", "rlalgo/trainer/trainer.hpp",
              "rlalgo/config/run_config.hpp", "rlalgo/config/reader.hpp", "rlalgo/config/language_model.hpp"],
}


def includes(path, known={}):
    if path not in known:
        text = path.read_text(encoding="utf-8")
        known[path] = re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE)
    return known[path]


@functools.cache
def closure(name):
    """Everything that `name` includes through headers of ours, and itself."""
    seen, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if name.startswith("rlalgo/"):
                waiting += includes(INCLUDE / name)
    return seen


def flags(build, target):
    """How CMake compiles the sources of `target`, without input, output, precompiled header and optimisation."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"/{target}.dir/" in entry.get("output", "") or f"/{target}.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            if "-include" in words:
                at = words.index("-include")
                del words[at : at + 2]
            if "-x" in words:
                at = words.index("-x")
                del words[at : at + 2]
            words = words[: words.index("-o")]
            return [w for w in words if not re.fullmatch(r"-O.|-g|-W.*|-DRLALGO_COMPILED", w)]
    sys.exit(f"check_headers.py: {build} has no target {target}; configure it with tests")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("rooms", nargs="*")
    options = parser.parse_intermixed_args()
    build = options.build.resolve()
    folder = build / "headers"
    host_rooms = re.search(r"set\(RLALGO_HOST_ROOMS ([^)]+)\)", (ROOT / "cmake/RlalgoTargets.cmake").read_text())[1].split()
    commands = {"host": flags(build, "test_core"), "torch": flags(build, "rlalgo_pch_checked")}
    common = ["-O0", "-g0", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]
    launcher = ["ccache"] if shutil.which("ccache") else []
    environment = os.environ | {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1",
                                "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}

    def compile_one(source, target, kind, first=()):
        return subprocess.run([*launcher, *commands[kind], *common, "-Winvalid-pch", *first, "-o", str(target), "-c", str(source)],
                              cwd=build, env=environment, capture_output=True, text=True)

    names = sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.hpp") if not p.stem.endswith("_impl"))
    room_of = lambda name: name.split("/")[1] if name.count("/") > 1 else "doors"
    names = [n for n in names if not options.rooms or room_of(n) in options.rooms]
    first = {}  # (kind, header, compiled) -> what stands in front
    wanted = [(kind, header, compiled) for kind, headers in LEADS.items() for header in headers for compiled in (False, True)]

    def precompile(lead):
        kind, header, compiled = lead
        place = folder / "first" / kind / (header.replace("/", "_") + (".compiled" if compiled else ""))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(("#define RLALGO_COMPILED\n" if compiled else "") + f"#include <{header}>\n")
        return lead, place, compile_one(place, f"{place}.gch", kind, ["-x", "c++-header"])

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for lead, place, made in pool.map(precompile, wanted):
            if made.returncode:
                sys.exit(made.stderr)
            first[lead] = ["-include", str(place)]

    def check(name, compiled):
        kind = "host" if room_of(name) in host_rooms else "torch"
        reached = closure(name)
        leads = [h for h in LEADS[kind] if h in reached and h != name and name not in closure(h)]
        lead = first[kind, max(leads, key=lambda h: len(closure(h))), compiled] if leads else []
        source = folder / (name.replace("/", "__") + (".compiled.cpp" if compiled else ".cpp"))
        text = ("#define RLALGO_COMPILED\n" if compiled and not leads else "") + f"#include <{name}>\n"
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        return name, compile_one(source, source.with_suffix(".o"), kind, lead)

    apart = [n for n in names if "#ifndef RLALGO_COMPILED" in (INCLUDE / n).read_text(encoding="utf-8")]
    work = [(n, False) for n in names] + [(n, True) for n in apart]
    bad = set()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, done in pool.map(lambda pair: check(*pair), work):
            if done.returncode or done.stderr.strip():
                bad.add(name)
                print(f"{name}:\n{done.stderr}", flush=True)
    print(f"{len(names) - len(bad)} headers stand alone, {len(bad)} do not")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
