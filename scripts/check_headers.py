#!/usr/bin/env python3
"""Compiles every header of include/rlalgo on its own by clang; the last line is `N headers stand alone, N do not`.

    check_headers.py BUILD [--jobs N] [--force] [--slowest N] [ROOM ...]

BUILD is a configured build folder (its compile_commands.json says which include paths and definitions host and torch
headers have; headers of floors 0-2 see no LibTorch). Everything is compiled with RLALGO_COMPILED (core/compiled.hpp), and
definitions that are apart (detail/…_impl.hpp) like any other header: so each text is compiled once. Header-only, a header
includes its definitions at its end; that no order of includes breaks there is check_architecture.py's `order`, and
syntax_check.py compiles all doors that way.

Every header is precompiled on top of the precompiled form of the largest header that it includes itself (through others),
which gives it nothing that it would not have: each header is parsed about once, not once for every header that reaches
it. What passed is remembered under ~/.cache/rlalgo by a digest of all that it read, for any clone; --force forgets.
Exit status: 0 only if all compile without a warning.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
PASSED = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rlalgo/headers"
# Headers of others that cost as much as tens of ours; precompiled too.
HEAVY = {"ATen/ATen.h": 40, "nlohmann/json.hpp": 30, "boost/asio.hpp": 30, "boost/beast.hpp": 30, "Eigen/Dense": 20,
         "yaml-cpp/yaml.h": 10}


@functools.cache
def includes(name):
    text = (INCLUDE / name).read_text(encoding="utf-8")
    text = re.sub(r"^#ifndef RLALGO_COMPILED\n.*?^#endif", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(^#ifdef RLALGO_COMPILED\n.*?)^#else\n.*?^#endif", r"\1", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE)


@functools.cache
def closure(name):
    """Everything that `name` includes through headers of ours, and itself."""
    seen, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if name.startswith("rlalgo/"):
                waiting += includes(name)
    return frozenset(seen)


@functools.cache
def base(name):
    """The header to precompile in front of `name`, or None."""
    inside = [h for h in closure(name) if h != name and (h in HEAVY or h.startswith("rlalgo/"))]
    inside = [h for h in inside if name not in closure(h)]
    return max(inside, key=lambda h: (sum(HEAVY.get(i, 1) for i in closure(h)), h), default=None)


def flags(build, target):
    """Include paths, definitions and language of the sources of `target`."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"/{target}.dir/" in entry.get("output", "") or f"/{target}.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            kept = [w for before, w in zip(words, words[1:])
                    if w.startswith(("-I", "-D", "-std=")) or w == "-isystem" or before == "-isystem"]
            return [*(w for w in kept if w != "-DRLALGO_COMPILED"), "-DRLALGO_COMPILED"]
    sys.exit(f"check_headers.py: {build} has no target {target}; configure it with tests")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="name the N that took longest")
    parser.add_argument("rooms", nargs="*")
    options = parser.parse_intermixed_args()
    build = options.build.resolve()
    folder = build / "headers"
    compiler = shutil.which("clang++-16") or shutil.which("clang++")
    if not compiler:
        sys.exit("check_headers.py: there is no clang++ (scripts/setup.sh --clang)")
    host_rooms = re.search(r"set\(RLALGO_HOST_ROOMS ([^)]+)\)", (ROOT / "cmake/RlalgoTargets.cmake").read_text())[1].split()
    known = {"host": flags(build, "test_core"), "torch": flags(build, "rlalgo_pch_checked")}
    common = ["-O0", "-g0", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Xclang", "-fno-pch-timestamp",
              "-fno-crash-diagnostics", "-fpch-instantiate-templates"]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout

    @functools.cache
    def stamp(name, kind):
        """What an include of a library's header would find, told by size and time."""
        paths = [w.removeprefix("-I") for w in known[kind] if w.startswith(("/", "-I"))] + ["/usr/include"]
        found = next((p for p in (pathlib.Path(d, name) for d in paths) if p.is_file()), None)
        return f"{name} {found.stat().st_size} {found.stat().st_mtime_ns}" if found else name

    def digest(name, kind):
        parts = [pathlib.Path(__file__).read_text(), version, *[w.replace(str(ROOT), "") for w in known[kind] + common], kind]
        for h in sorted(closure(name)):
            parts.append((INCLUDE / h).read_text(encoding="utf-8") if h.startswith("rlalgo/") else stamp(h, kind))
        return hashlib.sha256("\0".join([name, *parts]).encode()).hexdigest()

    names = sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.hpp"))
    room_of = lambda name: name.split("/")[1] if name.count("/") > 1 else "doors"
    names = [n for n in names if not options.rooms or room_of(n) in options.rooms]
    kind_of = lambda name: "host" if room_of(name) in host_rooms else "torch"
    wanted = [(n, kind_of(n)) for n in names]
    marks = {work: PASSED / digest(*work) for work in wanted}
    wanted = [work for work in wanted if options.force or not marks[work].exists()]

    PASSED.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    done = {}  # (header, kind) -> the future of (precompiled forms, largest first, and what was said)
    seconds = {}
    needed = set()  # what something else stands on
    for name, kind in wanted:
        while name := base(name):
            needed.add((name, kind))

    def compile_one(work, below, needed):
        name, kind = work
        unders = [*below.result()[0], None] if below else [None]
        source = folder / ("".join([kind, "__", name.replace("/", "__"), ".hxx"]))
        source.write_text(f"#include <{name}>\n")
        target = source.with_suffix(".pch")
        begin = time.monotonic()
        at = 0
        while True:
            under = unders[at]
            command = [compiler, *known[kind], *common, *(["-include-pch", str(under)] if under else []), "-x", "c++-header", str(source),
                       *(["-o", str(target)] if needed else ["-fsyntax-only"])]
            made = subprocess.run(command, cwd=build, capture_output=True, text=True)
            if made.returncode == 0 and not made.stderr.strip() or under is None:
                break
            # clang 16 cannot read some of what it precompiled itself and breaks down: the next smaller one then. It also
            # loses macros of the standard library: what is said counts only where nothing stood in front.
            at = at + 1 if made.returncode not in (0, 1) else len(unders) - 1
        seconds[work] = time.monotonic() - begin
        kept = [u for u in unders[at:] if u]
        # After an error, what stands on this header is compiled without it and says for itself whether it is whole.
        said = made.stderr.strip()
        if not said and work in marks:
            marks[work].touch()
        return ([target, *kept] if needed and made.returncode == 0 else kept), said

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def ask(work):  # bases are asked for first, so that no thread waits for what has not begun
            if work not in done:
                name, kind = work
                below = base(name)
                before = ask((below, kind)) if below else None
                done[work] = pool.submit(compile_one, work, before, work in needed)
            return done[work]

        for work in sorted(wanted, key=lambda w: (len(closure(w[0])), w)):
            ask(work)
        bad = set()
        for work in wanted:
            said = done[work].result()[1]
            if said:
                bad.add(work[0])
                print(f"{work[0]}:\n{said}", flush=True)
    shutil.rmtree(folder)
    for work in sorted(seconds, key=seconds.get, reverse=True)[:options.slowest]:
        print(f"{seconds[work]:8.1f} s  {' '.join(work)}")
    print(f"{len(names) - len(bad)} headers stand alone, {len(bad)} do not")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
