#!/usr/bin/env python3
"""Writes the Python programs of python/ into headers: include/rlalgo/remote/detail/<name>_source.hpp.

    embed_python.py            writes them
    embed_python.py --check    fails when one is not what it would write

The library is header-only: whoever puts include/ on the include path runs no build step of ours, so the headers are in the
repository. scripts/check_architecture.py compares. Left out: the module's docstring, and the line `from host import …` of a
program, which host.py stands before.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def embedded(source):
    text = re.sub(r'\A""".*?"""\n+', "", source, flags=re.DOTALL)
    text = re.sub(r"^from host import .*\n+", "", text, flags=re.MULTILINE)
    if ')PYTHON"' in text:
        raise SystemExit('embed_python.py: a program contains )PYTHON"')
    return text


def header(path):
    return f"""// python/{path.name} as text; written by scripts/embed_python.py, edit that file.
#pragma once

namespace rlalgo::remote::detail {{

inline constexpr const char* {path.stem}_source = R"PYTHON(
{embedded(path.read_text(encoding="utf-8"))})PYTHON";

}}  // namespace rlalgo::remote::detail
"""


def headers(root):
    """Path of each header → its text."""
    folder = root / "include/rlalgo/remote/detail"
    return {folder / f"{path.stem}_source.hpp": header(path) for path in sorted((root / "python").glob("*.py"))}


def stale(root):
    """The headers that differ from what would be written."""
    return [path for path, text in headers(root).items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main():
    if sys.argv[1:] == ["--check"]:
        for path in stale(ROOT):
            print(f"{path.relative_to(ROOT)} is not what scripts/embed_python.py writes: run it")
        return 1 if stale(ROOT) else 0
    for path, text in headers(ROOT).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
