#!/usr/bin/env python3
"""The tables of keys in docs/configuration.md, from the rows of include/rlalgo/config/*_keys.hpp.

  scripts/key_tables.py [--check] [--rlalgo PROGRAM]

Between `<!-- keys: SECTION -->` and `<!-- end of keys -->` stands what `rlalgo keys --markdown SECTION` prints. With --check
nothing is written, and a table that is another one is named. tests/cli/keys_test.py checks.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/configuration.md"
BLOCK = re.compile(r"(<!-- keys: ([a-z ]+) -->\n)(.*?)(<!-- end of keys -->\n)", re.DOTALL)


def tables(text):
    """Section → table, as the page has it."""
    return {match[1]: match[2] for match in (m.groups() for m in BLOCK.finditer(text))}


def printed(program, section):
    return subprocess.run([program, "keys", "--markdown", section], capture_output=True, text=True, check=True, timeout=60).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    options = parser.parse_args()
    text = PAGE.read_text()
    stale = [name for name, table in tables(text).items() if table != printed(options.rlalgo, name)]
    if not options.check:
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + printed(options.rlalgo, m[2]) + m[4], text))
    for name in stale:
        print(f"{PAGE.name}: the table of {name} is {'not what the rows say: run scripts/key_tables.py' if options.check else 'new'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
