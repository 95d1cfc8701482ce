#!/usr/bin/env python3
"""Runs the tests of a build folder. Its last lines name what was not run here, and say `N passed, N failed`.

    run_tests.py BUILD [--force] [--timeout SECONDS] [--jobs N] [NAME ...]
    run_tests.py BUILD --targets [NAME ...]     prints the build targets that the tests need

BUILD/tests.txt (written by CMake) names the programs, one a line: kind, name, build target, path.
    catch   a Catch2 program; its test cases are counted. One without an assertion fails, unless it says why it is
            not run here (tests/support/not_run.hpp: `not run NAME: why`, or `partly run NAME: why`)
    cli     the rlalgo program; each tests/cli/*_test.py is run as `python3 FILE --rlalgo PATH` and prints one line
            `ok NAME` or `FAIL NAME: why` per case, or `not run NAME: why` where something it needs is not here
    result  a file of such lines, written by the build (compile-fail cases, consumer projects)
    built   a program that need not run here; it counts as one test when it was built. The lessons (example_NN_…) are
            run: tests/support/run_lesson.py
The architecture check (scripts/check_architecture.py) and tests/architecture/*_test.py print such lines, too; their
name is `architecture`. So do tests/python/*_test.py, of the programs in python/; their name is `python`.

A program that passed and has not changed since (nor the fixtures under tests/ and examples/) is not run again; its
cases are counted as before. --force runs everything. What was not run counts neither as passed nor as failed; it is
written to BUILD/not-run.txt, too. Exit status: 0 only if something passed and nothing failed.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONG = 10  # seconds: a test case that takes more is named, and says in its file why it must
SOURCE_SUFFIXES = {".cpp", ".hpp", ".txt", ".pyc", ".md"}


@dataclasses.dataclass
class Program:
    kind: str
    name: str  # what the user types
    target: str
    path: pathlib.Path
    label: str = ""  # what the report shows


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    output: str = ""
    seconds: float = 0.0
    unchanged: bool = False


def read_programs(build):
    programs = []
    for line in (build / "tests.txt").read_text().splitlines():
        kind, name, target, path = line.split(" ", 3)
        if kind == "built" and re.match(r"example_\d\d_", target):
            kind = "lesson"
        if kind != "cli":
            apart = kind in ("result", "built", "lesson") or target != f"test_{name}"  # several programs of one room
            label = f"{name}/{pathlib.Path(path).stem}" if apart else name
            programs.append(Program(kind, name, target, pathlib.Path(path), label))
            continue
        for file in sorted((ROOT / "tests/cli").glob("*_test.py")):
            programs.append(Program(kind, name, target, pathlib.Path(path), f"cli/{file.stem.removesuffix('_test')}"))
    for file in [ROOT / "scripts/check_architecture.py", *sorted((ROOT / "tests/architecture").glob("*_test.py"))]:
        programs.append(Program("script", "architecture", "", file, file.stem))
    for file in sorted((ROOT / "tests/python").glob("*_test.py")):
        programs.append(Program("script", "python", "", file, f"python/{file.stem.removesuffix('_test')}"))
    return programs


def select(programs, names):
    known = sorted({p.name for p in programs})
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f"run_tests.py: no tests named {', '.join(unknown)}; there are: {' '.join(known)}")
    return [p for p in programs if not names or p.name in names]


def stamp_of(path):
    status = path.stat()
    return f"{path}:{status.st_mtime_ns}:{status.st_size}\n"


def fixtures_stamp():
    """What tests read beside their own program: every file under tests/ and examples/ that is not compiled."""
    digest = hashlib.sha256()
    for folder in ("tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in SOURCE_SUFFIXES and path.suffix != ".py":
                digest.update(stamp_of(path).encode())
    return digest.hexdigest()


def machine():
    """What decides which cases of a program are run: the processor, the user, NVIDIA's driver."""
    cpu = pathlib.Path("/proc/cpuinfo")
    flags = re.search(r"^flags.*$", cpu.read_text(), re.MULTILINE) if cpu.exists() else None
    driver = os.path.exists("/dev/nvidiactl")
    return f"{flags[0] if flags else ''} {os.environ.get('RLALGO_CPU', '')} {os.geteuid()} {driver}"


def fingerprint(program, fixtures):
    digest = hashlib.sha256((fixtures + machine()).encode())
    files = [program.path]
    if program.kind == "cli":
        files = sorted(p for p in program.path.parent.iterdir() if not p.name.startswith(("test_", "bench_")))
        files += sorted(p for folder in ("tests", "examples") for p in (ROOT / folder).rglob("*.py"))
    for file in files:
        digest.update(stamp_of(file).encode())
    return digest.hexdigest()


def count_catch(text, status):
    """Catch2's console summary: `All tests passed (A assertions in T test cases)`, or `test cases: T | P passed | …`."""
    absent = len(re.findall(r"^not run \S", text, re.MULTILINE))  # Catch2 2 counts them as passed
    match = re.search(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)", text)
    if match and status == 0:
        return int(match.group(1)) - absent, 0
    match = re.search(r"^test cases:(.*)$", text, re.MULTILINE)
    numbers = dict((w, int(n)) for n, w in re.findall(r"(\d+) (passed|failed|skipped)", match.group(1))) if match else {}
    failed = numbers.get("failed", 0)
    return numbers.get("passed", 0) - absent, failed if failed or status == 0 else 1


def count_lines(text, status):
    passed = len(re.findall(r"^ok \S", text, re.MULTILINE))
    failed = len(re.findall(r"^FAIL \S", text, re.MULTILINE))
    return passed, failed if failed or status == 0 else 1


def not_run(text):
    """The cases that this machine could not test, or not whole, with the reasons."""
    return re.findall(r"^(?:not|partly) run \S.*", text, re.MULTILINE)


def command_of(program):
    if program.kind == "catch":
        return [str(program.path), "--min-duration", str(LONG), "-w", "NoAssertions"], count_catch
    if program.kind == "cli":
        file = ROOT / "tests/cli" / f"{program.label.removeprefix('cli/')}_test.py"
        return [sys.executable, str(file), "--rlalgo", str(program.path)], count_lines
    if program.kind == "lesson":
        return [sys.executable, str(ROOT / "tests/support/run_lesson.py"), str(program.path)], count_lines
    return [sys.executable, str(program.path)], count_lines  # script


def run(program, scratch, timeout):
    start = time.monotonic()
    if program.kind == "result":
        text = program.path.read_text()
        passed, failed = count_lines(text, 0)
        return Outcome(passed, failed, text)
    if program.kind == "built":
        return Outcome(1, 0)
    command, count = command_of(program)
    folder = scratch / program.label.replace("/", "_")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # One OpenMP thread each: the programs run side by side.
    environment = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | os.environ | {"TMPDIR": str(folder)}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)
        text, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        text, status = (late.stdout or b"").decode(errors="replace") + f"\nFAIL {program.label}: still running after {timeout} s", 1
    passed, failed = count(text, status)
    if failed == 0 and passed == 0 and not not_run(text):
        failed, text = 1, text + f"\nFAIL {program.label}: no test ran"
    if status < 0:
        text += f"\n{program.label} was ended by signal {-status}"
    if failed == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(passed, failed, text, time.monotonic() - start)


def build_again(build, target):
    """Why a target cannot be built, or None. Called only after a build with errors, to find out whose they are."""
    done = subprocess.run(["ninja", "-C", str(build), "-j", "1", target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if done.returncode == 0 else done.stdout[-4000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--targets", action="store_true", help="print the build targets of the tests and stop")
    parser.add_argument("--force", action="store_true", help="run programs that have not changed, too")
    parser.add_argument("--check-built", action="store_true", help="the build had errors: find out whose they are")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one program")
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count())  # many wait: for servers, deadlines, children
    arguments = parser.parse_intermixed_args()
    build = arguments.build.resolve()

    begin = time.monotonic()
    programs = select(read_programs(build), arguments.names)
    if arguments.targets:
        print("\n".join(sorted({p.target for p in programs if p.target})))
        return 0

    fixtures = fixtures_stamp()
    memory_file = build / "test-results.json"
    memory = json.loads(memory_file.read_text()) if memory_file.exists() else {}
    total = Outcome()
    absent = []
    targets = sorted({p.target for p in programs if p.target}) if arguments.check_built else []
    unbuilt = {target: why for target in targets if (why := build_again(build, target))}

    def one(program):
        if program.target in unbuilt or program.target and not program.path.exists():
            why = unbuilt.get(program.target, "")
            return program, Outcome(failed=1, output=f"FAIL {program.label}: {program.target} was not built\n{why}"), ""
        if program.kind not in ("catch", "cli", "lesson"):
            return program, run(program, build / "test-scratch", arguments.timeout), ""
        mark = fingerprint(program, fixtures)
        last = memory.get(program.label)
        if last and last["fingerprint"] == mark and not arguments.force:
            return program, Outcome(passed=last["passed"], output="\n".join(last.get("not_run", [])), unchanged=True), mark
        return program, run(program, build / "test-scratch", arguments.timeout), mark

    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, p) for p in programs]):
            program, outcome, mark = future.result()
            total.passed += outcome.passed
            total.failed += outcome.failed
            memory.pop(program.label, None)
            here = not_run(outcome.output)
            absent += [f"{program.label}: {line}" for line in here]
            # What a case of a script needs may be installed by then; what one of a program needs, machine() knows.
            if mark and outcome.failed == 0 and (not here or program.kind == "catch"):
                memory[program.label] = {"fingerprint": mark, "passed": outcome.passed, "not_run": here}
            if outcome.failed:
                print(f"----- {program.label} -----\n{outcome.output.strip()}\n-----")
            note = "unchanged" if outcome.unchanged else f"{outcome.seconds:.1f} s"
            failed = f"{outcome.failed} FAILED" if outcome.failed else ""
            if not outcome.failed and program.kind in ("result", "built"):
                continue  # one line each would bury the rest
            print(f"{program.label:24} {outcome.passed:5} passed  {failed:10} {note}", flush=True)
            for seconds, case in re.findall(r"^\s*(\d+\.\d+) s: (.+)$", outcome.output, re.MULTILINE):
                if float(seconds) >= LONG:
                    print(f"    {float(seconds):.1f} s: {case}", flush=True)
    memory_file.write_text(json.dumps(memory, indent=1))
    print(f"ran for {time.monotonic() - begin:.0f} s")
    absent.sort()
    (build / "not-run.txt").write_text("".join(f"{line}\n" for line in absent))
    for line in absent:
        print(line)
    print(f"{len(absent)} not run here, or not whole")
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
