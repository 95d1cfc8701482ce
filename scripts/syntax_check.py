#!/usr/bin/env python3
"""Compiles the lessons and the tests of the doors with another compiler, without writing objects.

    syntax_check.py BUILD [COMPILER]      COMPILER: default clang++-16, else clang++

Include paths and definitions are those of the lessons in BUILD/compile_commands.json; any warning fails. One translation
unit: what the programs include, then each program in a namespace of its own, where its includes find nothing left to do (as
cmake/RlalgoUnits.cmake does). Every header on its own is compiled by check_headers.py.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def flags_of_lessons(build):
    for command in json.loads((build / "compile_commands.json").read_text()):
        if re.search(r"examples/01_\w+/main\.cpp$", command["file"]):
            words = shlex.split(command["command"])
            kept = []
            for word, before in zip(words[1:], words):
                if word.startswith(("-I", "-D", "-std=")) or before in ("-isystem", "-I") or word == "-isystem":
                    kept.append(word)
            return kept
    sys.exit(f"syntax_check.py: {build}/compile_commands.json has no lesson")


def namespace(program):
    return re.sub(r"\W", "_", str(program.relative_to(ROOT)))


def unit(programs):
    lines, bodies = [], []
    for program in programs:
        for line in program.read_text(encoding="utf-8").splitlines():
            if line.startswith("#include "):
                near = re.match(r'#include "(.+)"', line)
                lines.append(f'#include "{program.parent / near[1]}"' if near else line)
        bodies.append(f'namespace {namespace(program)} {{\n#include "{program}"\n}}\n')
    return "\n".join([*dict.fromkeys(lines), "", *bodies])


def main():
    build = pathlib.Path(sys.argv[1])
    compiler = sys.argv[2] if len(sys.argv) > 2 else shutil.which("clang++-16") or shutil.which("clang++")
    if not compiler:
        sys.exit("syntax_check.py: there is no clang++ (Debian: clang-16)")
    programs = [*sorted(ROOT.glob("examples/[0-9][0-9]_*/main.cpp")), *sorted(ROOT.glob("tests/doors/*_test.cpp"))]
    source = build / "syntax_check.cpp"
    source.write_text(unit(programs))
    command = [compiler, *flags_of_lessons(build), f"-I{ROOT / 'tests'}", "-Wall", "-Wextra", "-Werror",
               "-Wno-missing-field-initializers", "-fsyntax-only", str(source)]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
