#!/usr/bin/env python3
"""Builds and runs tests/consumer as a stranger would, and writes `ok consumer/WAY` or `FAIL consumer/WAY: why`.

    consumer.py find_package|add_subdirectory BUILD RESULT CMAKE COMPILER TORCH_ROOT

find_package: installs BUILD into a new folder first and finds it there. Exits 0 either way: a consumer that does not
build is a failed test, not a failed build.
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    way, build, result, cmake, compiler, torch_root = sys.argv[1:]
    work = pathlib.Path(result).with_suffix("")
    prefix, tree = work / "prefix", work / "build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    configure = [cmake, "-S", ROOT / "tests/consumer", "-B", tree, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}",
                 f"-DRLALGO_TORCH_ROOT={torch_root}", "-DCMAKE_BUILD_TYPE=Debug"]
    if way == "find_package":
        steps = [[cmake, "--install", build, "--prefix", prefix, "--component", "Development"],
                 [*configure, f"-DCMAKE_PREFIX_PATH={prefix}"]]
    else:
        steps = [[*configure, f"-DRLALGO_SOURCE={ROOT}"]]
    steps += [[cmake, "--build", tree], [tree / "consumer"]]
    verdict = f"ok consumer/{way}\n"
    for step in steps:
        step = [str(word) for word in step]
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        if done.returncode:
            verdict = f"FAIL consumer/{way}: {' '.join(step)}\n{done.stdout}\n"
            break
    pathlib.Path(result).write_text(verdict)


if __name__ == "__main__":
    main()
