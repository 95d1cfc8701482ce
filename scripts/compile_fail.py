#!/usr/bin/env python3
"""What must not compile: tests/compile_fail/*.cpp, each with RLALGO_VALID defined, and without, where it must fail.

    compile_fail.py BUILD [--compiler NAME] [--result FILE --depfile FILE]

The first lines of a case are `// expect: REGEX`, one or more; the errors that name the case must match each of them.
`// expect one error: REGEX` says that there is no other error, either. All
cases stand in one translation unit, each in a namespace of its own, compiled twice with the include paths and definitions
of the lessons (BUILD/compile_commands.json) by NAME: default clang++-16, else clang++. Prints `ok compile_fail/CASE` or
`FAIL compile_fail/CASE: why`; into FILE, with the headers read in the depfile, for a build, where the exit status is 0
either way: a wrong case is a failed test, not a failed build.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import syntax_check

CASES = syntax_check.ROOT / "tests/compile_fail"
# Lines in which g++ says where it was, ahead of an error.
BEFORE = re.compile(r"^In file included from|^ +from |: In (instantiation|substitution|function|member|static|lambda|constructor)|"
                    r":\s+(recursively )?required |:\s+in .constexpr. expansion of |: At global scope:|: error: ")


def errors(said):
    """The errors of a compiler's output, each with what was said of its place and the notes on it."""
    found, ahead = [], []
    for line in said.splitlines():
        if re.search(r":\d+: (fatal )?error: ", line):
            found.append([*ahead, line])
            ahead = []
        elif BEFORE.search(line):
            ahead.append(line)
        elif found:
            found[-1] += [*ahead, line]
            ahead = []
    return ["\n".join(lines) for lines in found]


def of_case(case, said):
    """Those errors that name the case: its file or its namespace."""
    return [e for e in said if f"/{case.name}:" in e or syntax_check.namespace(case) in e]


def verdict(case, said):
    text = case.read_text(encoding="utf-8")
    if not text.startswith(("// expect: ", "// expect one error: ")):
        return "the first line is not `// expect: REGEX` or `// expect one error: REGEX`"
    if "RLALGO_VALID" not in text:
        return "there is no valid variant under #ifdef RLALGO_VALID"
    found = of_case(case, said)
    its = "\n".join(found)
    if not its:
        return "it compiles"
    if text.startswith("// expect one error") and len(found) > 1:
        return f"{len(found)} errors; the compiler says\n{its}"
    missing = [p for p in re.findall(r"^// expect(?: one error)?: (.+)$", text, re.MULTILINE) if not re.search(p, its)]
    return f"no message matches {missing}; the compiler says\n{its}" if missing else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--compiler", default=shutil.which("clang++-16") or shutil.which("clang++"))
    parser.add_argument("--result", type=pathlib.Path)
    parser.add_argument("--depfile")
    options = parser.parse_args()
    if not options.compiler:
        sys.exit("compile_fail.py: there is no clang++ (scripts/setup.sh --clang)")
    cases = sorted(CASES.glob("*.cpp"))
    source = options.build / f"compile_fail_{pathlib.Path(options.compiler).name}.cpp"
    source.write_text(syntax_check.unit(cases))
    command = [options.compiler, *syntax_check.flags_of_lessons(options.build), f"-I{syntax_check.ROOT / 'tests'}", "-fsyntax-only",
               "-fdiagnostics-color=never", "-ferror-limit=0" if "clang" in options.compiler else "-fmax-errors=0", str(source)]

    def compile_with(*more):
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=900)

    broken = errors(compile_with().stderr)
    found = {case: verdict(case, broken) for case in cases}
    # Last, so that the depfile is the complete one.
    depfile = ["-MD", "-MF", options.depfile, "-MT", str(options.result)] if options.depfile else []
    valid = compile_with("-DRLALGO_VALID", *depfile)
    if valid.returncode:
        said = errors(valid.stderr)
        wrong = {case: of_case(case, said) for case in cases}
        for case in cases:
            if wrong[case] or not any(wrong.values()):
                found[case] = "the valid variant does not compile\n" + ("\n".join(wrong[case]) or valid.stderr)
    lines = [f"FAIL compile_fail/{c.stem}: {why}" if why else f"ok compile_fail/{c.stem}" for c, why in found.items()]
    if options.result:
        if not pathlib.Path(options.depfile).exists():
            pathlib.Path(options.depfile).write_text(f"{options.result}: {source}\n")
        options.result.write_text("\n".join(lines) + "\n")
        return 0
    print("\n".join(lines))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
