#!/usr/bin/env python3
"""One compile-fail case: the file must compile with RLALGO_VALID defined, and fail without, with the expected message.

    compile_fail.py CASE RESULT DEPFILE COMMANDS TARGET
    compile_fail.py --together BUILD [COMPILER]     all cases by another compiler; default clang++-16, else clang++

The first lines of CASE are `// expect: REGEX`, one or more; each must match the compiler's output. COMMANDS is CMake's
compile_commands.json; the command of TARGET's source (with its precompiled header) is the one used. Writes `ok NAME` or
`FAIL NAME: why` to RESULT and exits 0 either way: a wrong case is a failed test, not a failed build.

--together puts all cases into one translation unit, each in a namespace of its own, with the flags of the lessons in
BUILD (as syntax_check.py does): once with RLALGO_VALID, once without, where the errors that name a case's file must have
its messages.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import syntax_check

CASES = syntax_check.ROOT / "tests/compile_fail"


def compiler_command(commands, target):
    for entry in json.loads(pathlib.Path(commands).read_text()):
        if f"/{target}.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            out = words.index("-o")
            del words[out : out + 2]
            return [w for w in words if w not in ("-c", entry["file"])], entry["directory"]
    sys.exit(f"compile_fail.py: {commands} has no command of {target}")


def expected(case):
    return re.findall(r"^// expect: (.+)$", pathlib.Path(case).read_text(), re.MULTILINE)


def together(build, compiler):
    cases = sorted(CASES.glob("*.cpp"))
    source = build / "compile_fail.cpp"
    source.write_text(syntax_check.unit(cases, headers=False))
    command = [compiler, *syntax_check.flags_of_lessons(build), f"-I{syntax_check.ROOT / 'tests'}", "-fsyntax-only",
               "-fdiagnostics-color=never", "-ferror-limit=0", str(source)]
    valid = subprocess.run([*command, "-DRLALGO_VALID"], capture_output=True, text=True)
    if valid.returncode:
        print(f"FAIL compile_fail: the valid variants do not compile\n{valid.stderr}")
        return 1
    broken = subprocess.run(command, capture_output=True, text=True).stderr
    # An error with its notes: those say in which case a template was asked for.
    errors = re.split(r"^(?=\S+:\d+:\d+: (?:fatal )?error: )", broken, flags=re.MULTILINE)
    failed = 0
    for case in cases:
        said = "".join(error for error in errors if f"/{case.name}:" in error)
        missing = [pattern for pattern in expected(case) if not re.search(pattern, said)]
        failed += bool(missing)
        print(f"FAIL {case.stem}: no message matches {missing}; the compiler says\n{said}" if missing else f"ok {case.stem}")
    return 1 if failed else 0


def main():
    if sys.argv[1] == "--together":
        compiler = sys.argv[3] if len(sys.argv) > 3 else shutil.which("clang++-16") or shutil.which("clang++")
        if not compiler:
            sys.exit("compile_fail.py: there is no clang++ (Debian: clang-16)")
        return together(pathlib.Path(sys.argv[2]), compiler)
    case, result, depfile, commands, target = sys.argv[1:]
    name = f"compile_fail/{pathlib.Path(case).stem}"
    command, folder = compiler_command(commands, target)
    command += ["-fsyntax-only", "-fdiagnostics-color=never", "-MD", "-MF", depfile, "-MT", result, case]

    def compile_with(*more):
        return subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=300)

    def verdict():
        text = pathlib.Path(case).read_text()
        patterns = expected(case)
        if not text.startswith("// expect: "):
            return "the first line is not `// expect: REGEX`"
        if "RLALGO_VALID" not in text:
            return "there is no valid variant under #ifdef RLALGO_VALID"
        broken = compile_with()
        valid = compile_with("-DRLALGO_VALID")  # last, so that the depfile is the complete one
        if valid.returncode:
            return f"the valid variant does not compile\n{valid.stderr}"
        if not broken.returncode:
            return "it compiles"
        missing = [p for p in patterns if not re.search(p, broken.stderr)]
        return f"no message matches {missing}; the compiler says\n{broken.stderr}" if missing else None

    why = verdict()
    if not pathlib.Path(depfile).exists():
        pathlib.Path(depfile).write_text(f"{result}: {case}\n")
    pathlib.Path(result).write_text(f"FAIL {name}: {why}\n" if why else f"ok {name}\n")


if __name__ == "__main__":
    sys.exit(main())
