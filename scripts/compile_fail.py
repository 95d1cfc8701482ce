#!/usr/bin/env python3
"""One compile-fail case: the file must compile with RLALGO_VALID defined, and fail without, with the expected message.

    compile_fail.py CASE RESULT DEPFILE COMMANDS SOURCE

The first lines of CASE are `// expect: REGEX`, one or more; each must match the compiler's output. COMMANDS is CMake's
compile_commands.json; the command of SOURCE (with its precompiled header) is the one used. Writes `ok NAME` or
`FAIL NAME: why` to RESULT and exits 0 either way: a wrong case is a failed test, not a failed build.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys


def compiler_command(commands, source):
    for entry in json.loads(pathlib.Path(commands).read_text()):
        if pathlib.Path(entry["file"]) == pathlib.Path(source):
            words = shlex.split(entry["command"])
            out = words.index("-o")
            del words[out : out + 2]
            return [w for w in words if w not in ("-c", source)], entry["directory"]
    sys.exit(f"compile_fail.py: {commands} has no command for {source}")


def main():
    case, result, depfile, commands, source = sys.argv[1:]
    name = f"compile_fail/{pathlib.Path(case).stem}"
    command, folder = compiler_command(commands, source)
    command += ["-fsyntax-only", "-fdiagnostics-color=never", "-MD", "-MF", depfile, "-MT", result, case]

    def compile_with(*more):
        return subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=300)

    def verdict():
        text = pathlib.Path(case).read_text()
        patterns = re.findall(r"^// expect: (.+)$", text, re.MULTILINE)
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
    main()
