#!/usr/bin/env python3
"""Compares what ptxas says of the CUDA kernels with the recorded table; the last line is `N kernels as recorded, N not`.

    kernel_figures.py [--write] [--nvcc PATH]

Compiles cmake/compiled/cuda/kernels.cu for sm_80 and sm_90. No kernel may spill registers to memory. Registers may differ from
tests/cuda/kernel_figures.txt by at most 8 (another nvcc allocates a few more or less), memory of the block and the stack not at
all. A kernel that the table does not have, and one of the table that is not there, is a difference, too: --write records.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/cuda/kernel_figures.txt"
ARCHITECTURES = ("80", "90")
REGISTERS = 8  # may differ


def measure(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", "-O3", "-Xptxas", "-v", f"-I{ROOT / 'include'}", "-c", "-o", f"{folder}/kernels.o",
                   *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES), str(ROOT / "cmake/compiled/cuda/kernels.cu")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernel_figures.py: nvcc failed\n{done.stderr}")
    names = subprocess.run(["c++filt"], input=done.stderr, capture_output=True, text=True, check=True).stdout
    entry = re.compile(r"Compiling entry function '(?:void )?(?P<name>[^\n]+)' for 'sm_(?P<arch>\d+)'\n.*?"
                       r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n.*?"
                       r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)", re.DOTALL)
    out = {}
    for found in entry.finditer(names):
        name = found["name"].split(">(")[0] + ">" if ">(" in found["name"] else found["name"].split("(")[0]
        name = name.replace("rlalgo::cuda::", "").replace(" ", "")
        shared = re.search(r"(\d+) bytes smem", found["rest"])
        out[(name, f"sm_{found['arch']}")] = {
            "registers": int(found["registers"]), "shared": int(shared[1]) if shared else 0, "stack": int(found["stack"]),
            "spills": int(found["stores"]) + int(found["loads"])}
    return out


def recorded():
    out = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, arch, registers, shared, stack = line.split()
            out[(name, arch)] = {"registers": int(registers), "shared": int(shared), "stack": int(stack)}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record what was measured")
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    options = parser.parse_args()
    if not options.nvcc:
        sys.exit("kernel_figures.py: there is no nvcc")
    found = measure(options.nvcc)
    if not found:
        sys.exit("kernel_figures.py: ptxas said nothing of any kernel")
    version = re.search(r"release [\d.]+, (V[\d.]+)", subprocess.run([options.nvcc, "--version"], capture_output=True, text=True).stdout)
    if options.write:
        lines = [f"# What ptxas of nvcc {version[1] if version else '?'} says: kernel, architecture, registers of a thread, bytes of shared memory of a",
                 "# block, bytes of stack. Spills are none. scripts/kernel_figures.py compares; --write writes this."]
        lines += [f"{n} {a} {f['registers']} {f['shared']} {f['stack']}" for (n, a), f in sorted(found.items())]
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    table, wrong = recorded(), []
    for key in sorted(found.keys() | table.keys()):
        now, before, name = found.get(key), table.get(key), " ".join(key)
        if now is None or before is None:
            wrong.append(f"{name}: {'is not compiled any more' if now is None else 'is not in the table'}")
        elif now["spills"]:
            wrong.append(f"{name}: spills {now['spills']} bytes")
        elif abs(now["registers"] - before["registers"]) > REGISTERS or any(now[k] != before[k] for k in ("shared", "stack")):
            wrong.append(f"{name}: {now}, recorded {before}")
    for line in wrong:
        print(f"FAIL {line}")
    print(f"{len(found.keys() | table.keys()) - len(wrong)} kernels as recorded, {len(wrong)} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
