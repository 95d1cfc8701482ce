#!/usr/bin/env python3
"""Proves the shape of the project: one line `ok RULE` or `FAIL RULE: why` per rule; exit status 1 if a rule is broken.

    check_architecture.py [ROOT]

Rules (docs/architecture.md says why):
    floors        a room includes only itself and rooms of lower floors (doors lie between trainer/ and assembly/); headers
                  name each other as <rlalgo/room/name.hpp>
    detail        <room>/detail/ is included by its own room only
    torch_door    no torch/torch.h, torch/types.h, torch/all.h, torch/nn*, torch/optim* anywhere
    aten_ops      outside of tensor/ ATen's operators come as <ATen/ops/NAME_ops.h> (NAME.h of a factory costs a file 3 s);
                  from_blob.h, which has no such form, is the exception
    aten_lists    lists of tensors, boxed values and ATen's context (ATen/core/List.h, IListRef.h, ivalue.h, dispatch/,
                  ATen/Context.h, ATen/ATen.h) stand in detail/*_impl.hpp only: they cost whoever sees them 2 to 4 s
    host_floors   no torch, ATen or c10 header in floors 0-2
    cuda_wing     no torch, ATen or c10 header, nor a room, in cuda/, a .cu or a .cuh
    cpu_wing      no torch, ATen or c10 header, nor a room but core/, in cpu/
    yaml          yaml-cpp in config/ only
    core          core/ includes the C++ standard library and itself only, os/ POSIX and core/ beside it
    boost         Boost in http/detail/ only
    ranges        range-v3 in <room>/detail/*_impl.hpp only, view by view: no door and no interface pays for it
    length        headers <= 500 lines, doors <= 120, lessons (examples/NN_*/main.cpp) <= 80
    mirror_tests  every header outside detail/ has tests/<room>/<name>_test.cpp (doors: tests/doors/)
    names         nothing is called utils, helpers, common or misc
    unfinished    no TODO, FIXME or XXX
    errors        every number raised has its entry `**room.N**` in docs/errors.md, and the reverse
    error_lists   a header names the numbers it raises in its top comment, as [rlalgo.room.N], [.N] or [rlalgo.room.N–M]
                  (in detail/ only where there is such a list), and none that neither it nor what it includes raises
    snippets      the C++ in README.md and docs/*.md stands in one of tests/docs/*_test.cpp, where it is compiled and run
    links         what a document links to is there: a file of the repository, and in it the heading that is named
    compiled      <room>/detail/<name>_impl.hpp holds what <room>/[detail/]<name>.hpp declares: included there unless RLALGO_COMPILED
                  is defined, and by one file of cmake/compiled/; a virtual function declared there says RLALGO_INLINE
    order         header-only, where definitions are included at the end of their header, whatever a header names has been
                  declared when it is read, whichever header comes first
    early_returns a test case does not return before its end, nor warn: what this machine cannot run is named with
                  tests/support/not_run.hpp, or raised as NotRun in Python
    named_files   a file of ours that a comment or a document names exists: a header or source anywhere, another file by its path.
                  Files of other projects begin with the project's name (trl/scripts/vllm_serve.py)
    words         comments, texts and names are in the words of the field (docs/architecture.md), not in PRIVATE ones
    embedded      the headers with the programs of python/ are what scripts/embed_python.py writes
"""

import ast
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import embed_python  # noqa: E402

FLOORS = [
    ["core"],
    ["os", "maths"],
    ["advantage", "aggregation", "reward", "data", "environment", "text", "run", "http"],
    ["tensor"],
    ["loss", "model"],
    ["inference", "feature", "optim", "distributed"],
    ["sampler", "sync", "remote", "serve"],
    ["trainer", "colocated"],
    ["assembly"],
    ["config"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
HOST_ROOMS = FLOORS[0] + FLOORS[1] + FLOORS[2]
WINGS = {"cpu", "cuda"}  # the kernels of a device, which any room may include
DOORS = "(door)"  # the room of rlalgo/<name>.hpp
DOOR_FLOOR = FLOOR["trainer"]  # a door may include this floor and below, and other doors
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
TORCH_UMBRELLA = re.compile(r"^torch/(torch\.h|types\.h|all\.h|nn\b.*|optim\b.*|csrc/api/include/.*)")
ATEN_FREE = re.compile(r"^ATen/ops/(?!from_blob\.h$)\w+(?<!_ops)\.h$")
ATEN_LISTS = re.compile(r"^ATen/(core/(List|IListRef|ivalue\w*|Dict|jit_type\w*|function_schema|dispatch/.*)\.h|Context\.h|ATen\.h|Functions\.h)$")
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
HEADER_LINES, DOOR_LINES, LESSON_LINES = 500, 120, 80


def without_comments(text):
    """C++ text with its comments blanked and its line count kept; string literals stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return token.sub(lambda m: "\n" * m[0].count("\n") if m[0].startswith(("//", "/*")) else m[0], text)


class Source:
    def __init__(self, root, path):
        self.path = path
        self.name = str(path.relative_to(root))
        self.text = path.read_text(encoding="utf-8")
        self.code = without_comments(self.text)
        self.includes = [
            (number, match[2], match[1] == '"')
            for number, line in enumerate(self.code.splitlines(), 1)
            if (match := re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line))
        ]


def room_of(relative):
    return relative.split("/")[0] if "/" in relative else DOORS


def check_floors(headers):
    for header in headers:
        room = room_of(header.relative)
        if room in WINGS:
            continue
        if room != DOORS and room not in FLOOR:
            yield f"{header.name}: the room {room} has no floor; add it to FLOORS"
            continue
        for line, target, quoted in header.includes:
            where = f"{header.name}:{line}"
            if quoted or target.startswith("."):
                yield f'{where}: "{target}": write <rlalgo/room/name.hpp>'
            if not target.startswith("rlalgo/"):
                continue
            other = room_of(target.removeprefix("rlalgo/"))
            if other == room or other in WINGS:
                continue
            if other == DOORS:
                if FLOOR.get(room, 0) <= DOOR_FLOOR and room != DOORS:
                    yield f"{where}: {room} includes the door {target} above it"
            elif other not in FLOOR:
                yield f"{where}: {target} is in no room"
            elif room == DOORS:
                if FLOOR[other] > DOOR_FLOOR:
                    yield f"{where}: a door includes {target}, above the trainer"
            elif FLOOR[other] >= FLOOR[room]:
                relation = "of the same floor" if FLOOR[other] == FLOOR[room] else "of a higher floor"
                yield f"{where}: {room} (floor {FLOOR[room]}) includes {target} {relation}"


def check_detail(sources):
    for source in sources:
        for line, target, _ in source.includes:
            match = re.match(r"rlalgo/(\w+)/detail/", target)
            if match and match[1] not in source.own_rooms:
                yield f"{source.name}:{line}: {target} is private to {match[1]}/"


def check_includes(headers, forbidden, applies, why):
    for header in headers:
        for line, target, _ in header.includes:
            if applies(header) and forbidden.match(target):
                yield f"{header.name}:{line}: {target}: {why}"


def check_core(headers):
    plain = {
        "core": re.compile(r"^([a-z_]+|rlalgo/core/[\w/]+\.hpp)$"),
        "os": re.compile(r"^([a-z_]+|(sys/)?[a-z]+\.h|rlalgo/(core|os)/[\w/]+\.hpp)$"),
    }
    for header in headers:
        allowed = plain.get(room_of(header.relative))
        for line, target, _ in header.includes:
            if allowed and not allowed.match(target):
                yield f"{header.name}:{line}: {target}: {room_of(header.relative)}/ needs no library"


def check_wing(sources, own, why):
    for source in sources:
        for line, target, _ in source.includes:
            if TORCH.match(target) or target.startswith("rlalgo/") and not target.startswith(own):
                yield f"{source.name}:{line}: {target}: {why}"


def check_length(headers, programs):
    for header in headers:
        limit = DOOR_LINES if room_of(header.relative) == DOORS else HEADER_LINES
        lines = header.text.count("\n")
        if lines > limit:
            yield f"{header.name}: {lines} lines, at most {limit}"
    for program in programs:
        if re.fullmatch(r"examples/\d\d_\w+/main\.cpp", program.name) and program.text.count("\n") > LESSON_LINES:
            yield f"{program.name}: {program.text.count(chr(10))} lines, at most {LESSON_LINES}"


def check_mirror(root, headers):
    for header in headers:
        room = room_of(header.relative)
        if "/detail/" in header.relative:
            continue
        folder = "doors" if room == DOORS else str(pathlib.PurePath(header.relative).parent)
        test = f"tests/{folder}/{header.path.stem}_test.cpp"
        if not (root / test).exists():
            yield f"{header.name}: {test} is missing"


def repository_files(root):
    for top in ("include", "examples", "tests", "benchmarks", "scripts", "python", "cmake", "conan", "docs"):
        for path in sorted((root / top).rglob("*")):
            if not {"__pycache__", "build"} & set(path.parts[len(root.parts) :]):
                yield path


def check_names(root):
    for path in repository_files(root):
        if path.name.split(".")[0].lower() in FORBIDDEN_NAMES:
            yield f"{path.relative_to(root)}: name it after what it holds"


def check_unfinished(root):
    word = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for path in repository_files(root):
        if path.suffix in {".hpp", ".cpp", ".cu", ".cuh", ".sh", ".cmake", ".py"} and path.name != "check_architecture.py":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := word.search(line):
                    yield f"{path.relative_to(root)}:{number}: {match[1]}"


def arguments_at(text, begin):
    """The top-level arguments of the call whose '(' is at begin - 1."""
    depth, start, out, i = 0, begin, [], begin
    while i < len(text):
        c = text[i]
        if c in "\"'" and not (c == "'" and text[i - 1].isalnum()):
            i += 1
            while i < len(text) and text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return [*out, text[start:i].strip()]
            depth -= 1
        elif c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
        i += 1
    return out


def find_raised(sources):
    """Yields (room, number or None, where). A function that passes its own parameter on as the number is followed; refuse(N, {…})
    and refuse_own(N, {…}) keep an error of config, which is raised with others (config/refusals.hpp)."""
    keeping = re.compile(r"\brefuse(?:_own)?\s*\(\s*(\d+)\s*,\s*\{")
    raising = re.compile(r"\b(?:raise(?:_usage|_interrupted)?|(?:core::)?(?:Usage)?Error)\s*[({]\s*(?=\")")
    for source in sources:
        for match in keeping.finditer(source.code):
            yield "config", int(match[1]), f"{source.name}:{source.code.count(chr(10), 0, match.start()) + 1}"
        wrappers = []
        for match in raising.finditer(source.code):
            parts = arguments_at(source.code, match.end())
            where = f"{source.name}:{source.code.count(chr(10), 0, match.start()) + 1}"
            if len(parts) < 2:
                continue
            room, number = parts[0].strip('"'), parts[1]
            if re.fullmatch(r"\d+", number):
                yield room, int(number), where
            elif numbers := re.fullmatch(r".*\?\s*(\d+)\s*:\s*(\d+)", number, re.DOTALL):
                yield room, int(numbers[1]), where
                yield room, int(numbers[2]), where
            elif re.fullmatch(r"[a-z_]\w*", number):
                heads = list(re.finditer(rf"\b(\w+)\s*\(([^(){{}};]*\bint\s+{number}\b[^{{}};]*)", source.code[: match.start()]))
                if not heads:
                    yield room, None, where
                    continue
                before = heads[-1][2].split(number)[0]
                wrappers.append((heads[-1][1], before.count(","), room, source))
            else:
                yield room, None, where
        for name, position, room, owner in wrappers:
            for other in sources:
                if other is not owner and (other.path.parent.name not in (owner.path.parent.name, "detail") or
                                           re.search(rf"(void|auto)\s+{name}\s*\(", other.code)):
                    continue
                for match in re.finditer(rf"\b{name}\s*\(", other.code):
                    parts = arguments_at(other.code, match.end())
                    if position < len(parts) and re.fullmatch(r"\d+", parts[position]):
                        yield room, int(parts[position]), f"{other.name}:{other.code.count(chr(10), 0, match.start()) + 1}"


def check_errors(root, sources):
    page = (root / "docs/errors.md").read_text(encoding="utf-8")
    documented, heading = {}, ""
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("## "):
            heading = line[3:].strip()
        for match in re.finditer(r"^- \*\*(\w+)\.(\d+)\*\*", line):
            key = (match[1], int(match[2]))
            if key in documented:
                yield f"docs/errors.md:{number}: {match[1]}.{match[2]} is described twice"
            if match[1] != heading:
                yield f"docs/errors.md:{number}: {match[1]}.{match[2]} stands under {heading}"
            documented[key] = number
    raised = set()
    for room, number, where in find_raised(sources):
        if number is None:
            yield f"{where}: write the error number as a literal, or pass it to a function as one"
            continue
        raised.add((room, number))
        if (room, number) not in documented:
            yield f"{where}: {room}.{number} is not in docs/errors.md"
    for (room, number), line in documented.items():
        if (room, number) not in raised:
            yield f"docs/errors.md:{line}: {room}.{number} is raised nowhere"


def top_comment(source):
    lines = []
    for line in source.text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:])
    return " ".join(lines)


def listed_errors(text):
    """(room, number) of each [rlalgo.room.N], [rlalgo.room.N–M], and [.N], which is of the room named before it."""
    listed, room = set(), None
    for match in re.finditer(r"\[(?:rlalgo\.(\w+))?\.(\d+)(?:–(\d+))?\]", text):
        room = match[1] or room
        listed |= {(room, number) for number in range(int(match[2]), int(match[3] or match[2]) + 1)}
    return listed


def check_error_lists(headers):
    by_name = {header.relative: header for header in headers}
    raised = {header.relative: set() for header in headers}
    for room, number, where in find_raised(headers):
        name = where.rsplit(":", 1)[0].removeprefix("include/rlalgo/")
        if number is not None:
            raised[name].add((room, number))

    def reachable(name):
        seen, waiting = set(), [name]
        while waiting:
            name = waiting.pop()
            if name in by_name and name not in seen:
                seen.add(name)
                waiting += [target.removeprefix("rlalgo/") for _, target, _ in by_name[name].includes]
        return seen

    def names(numbers):
        return ", ".join(f"{room}.{number}" for room, number in sorted(numbers))

    for header in headers:
        listed = listed_errors(top_comment(header))
        if "/detail/" in header.relative and not listed:
            continue
        if unnamed := raised[header.relative] - listed:
            yield f"{header.name}: raises {names(unnamed)}, which its top comment does not list"
        if listed and (idle := listed - set().union(*(raised[name] for name in reachable(header.relative)))):
            yield f"{header.name}: lists {names(idle)}, which neither it nor what it includes raises"


def documents(root):
    folders = ("*.md", "docs/*.md", "docs/*/*.md", "benchmarks/*.md", "benchmarks/*/*.md", "conan/*.md", "examples/*/*.md", "scripts/*/*.md")
    return [path for pattern in folders for path in sorted(root.glob(pattern))]


def check_snippets(root):
    tests = [[line.strip() for line in path.read_text(encoding="utf-8").splitlines()] for path in sorted((root / "tests/docs").glob("*_test.cpp"))]
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        for block in re.finditer(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            wanted = [line.strip() for line in block[1].splitlines()]
            if not any(lines[i : i + len(wanted)] == wanted for lines in tests for i in range(len(lines))):
                yield f"{page.relative_to(root)}:{text.count(chr(10), 0, block.start()) + 1}: this code is in no tests/docs/*_test.cpp"


def anchors(path, known={}):
    """The names that GitHub gives the headings of a document."""
    if path not in known:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found = set()
        for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            number = 0
            while (name if not number else f"{name}-{number}") in found:
                number += 1
            found.add(name if not number else f"{name}-{number}")
        known[path] = found
    return known[path]


def check_links(root):
    for page in documents(root):
        text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`\n]*`", "", text)
        for link in re.finditer(r"\]\(([^)\s]+)\)", text):
            target, _, heading = link[1].partition("#")
            where = f"{page.relative_to(root)}:{text.count(chr(10), 0, link.start()) + 1}"
            if re.match(r"[a-z]+:", link[1]):
                continue
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                yield f"{where}: {link[1]} is not there"
            elif heading and path.suffix == ".md" and heading not in anchors(path):
                yield f"{where}: {path.name} has no heading #{heading}"


def check_compiled(root, headers):
    units = {p: p.read_text(encoding="utf-8") for p in sorted((root / "cmake/compiled").rglob("*.cpp"))}
    by_name = {header.relative: header for header in headers}
    for header in headers:
        if not re.fullmatch(r"\w+/detail/\w+_impl\.hpp", header.relative):
            continue
        line = f"#include <rlalgo/{header.relative}>"
        owners = [str(p.relative_to(root)) for p, text in units.items() if line in text.splitlines()]
        if len(owners) != 1:
            yield f"{header.name}: named by {', '.join(owners) or 'no file'} of cmake/compiled/, expected one"
        inner = header.relative.replace("_impl.hpp", ".hpp")  # of a header in detail/ itself, or one above it
        name = inner if inner in by_name else inner.replace("detail/", "")
        owner = by_name.get(name)
        if owner is None or f"#ifndef RLALGO_COMPILED\n{line}\n#endif" not in owner.text:
            yield f"{header.name}: rlalgo/{name} does not include it under #ifndef RLALGO_COMPILED"
            continue
        for declaration in re.finditer(r"(?<=[;{}:\n])\s*([^;{}]+\)[^;{}()=]*);", owner.code):
            text = declaration[1]
            if re.search(r"\bvirtual\b|\b(?:override|final)$", text.strip()) and "RLALGO_INLINE" not in text:
                line = owner.code.count("\n", 0, declaration.start(1)) + 1
                yield f"{owner.name}:{line}: a virtual function declared without RLALGO_INLINE"


def check_order(headers):
    """Header-only, x.hpp includes its definitions at its end, and those include others, that may include x.hpp: well as long
    as what it declares stands above. Follows the includes as a compiler does, from each header on its own."""
    by_name = {f"rlalgo/{header.relative}": header for header in headers}
    split = {}  # header -> (what it includes above its declarations, what it includes below them)
    for name, header in by_name.items():
        text = re.sub(r"^#ifdef RLALGO_COMPILED\n.*?^#else$", "#ifndef RLALGO_COMPILED", header.code, flags=re.M | re.S)
        above, _, below = text.partition("#ifndef RLALGO_COMPILED\n")
        split[name] = [[i for i in re.findall(r"^\s*#\s*include\s*<([^>]+)>", part, re.M) if i in by_name]
                       for part in (above, below)]
    found = set()
    for start in by_name:
        begun, declared = set(), set()

        def read(name, includer):
            if name in begun:
                if name not in declared:
                    found.add((includer, name, start))
                return
            begun.add(name)
            for inner in split[name][0]:
                read(inner, name)
            declared.add(name)
            for inner in split[name][1]:  # definitions may come later
                if inner not in begun:
                    read(inner, name)

        read(start, "")
    told = set()
    for includer, name, start in sorted(found):
        if (includer, name) not in told:
            told.add((includer, name))
            yield f"include/{includer}: reads nothing of <{name}> when <{start}> comes first: that one is being read still"


NAMED_FILE = re.compile(r"(?<![\w/.<>…*{}-])((?:[\w.-]+/)*\w[\w-]*\.(?:hpp|cpp|cuh|cu|py|sh|md|cmake|json|jsonl|txt|yaml|yml))\b(?![\w/*(])")
OWN_FOLDERS = {"include", "examples", "tests", "benchmarks", "scripts", "python", "cmake", "conan", "docs", "rlalgo"} | set(FLOOR) | WINGS
NOT_FILES = {"llama.cpp", "NAME.cuh", "NAME.h"}
# What stands for transpose, gather, fetch, asynchronous, queue, placement, shard, publish. CHANGELOG.md says what was.
PRIVATE = re.compile(r"\b(summon\w*|errands?|borrow(s|ed|er)?|lender|lends|whoever|of then|\w*[Hh]olding(?=\.hpp)|(Whole|Sharded)Holding|in slices)\b")
# In what explains the library: said, printed, sent, rendered; hidden states. In code they may be another thing (taps of a filter).
PRIVATE_REMARK = re.compile(r"\b(told|taps)\b")


def remarks(path, text):
    """(line number, text) of the comments of a source, or of all of a document."""
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".md":
            yield number, line
        elif match := re.search(r"(?<!:)//.*" if path.suffix in {".hpp", ".cpp", ".cu", ".cuh"} else r"#.*", line):
            yield number, match[0]


def texts(root):
    for path in [*repository_files(root), *sorted(root.glob("*.md"))]:
        own_words = path.name not in {"CHANGELOG.md", "check_architecture.py", "check_architecture_test.py"}
        if own_words and path.suffix in {".hpp", ".cpp", ".cu", ".cuh", ".md", ".py", ".sh", ".cmake"} and "golden" not in path.parts:
            yield path, path.read_text(encoding="utf-8")


def check_named_files(root):
    there = set()
    for path in [*repository_files(root), *sorted(root.glob("*"))]:
        parts = path.relative_to(root).parts
        there |= {"/".join(parts[i:]) for i in range(len(parts))}
    for path, text in texts(root):
        for number, remark in remarks(path, text):
            for match in NAMED_FILE.finditer(remark):
                name = match[1]
                ours = name.endswith((".hpp", ".cpp", ".cuh", ".cu")) or name.split("/")[0] in OWN_FOLDERS
                if ours and name.removeprefix("../") not in there and name not in NOT_FILES:
                    yield f"{path.relative_to(root)}:{number}: {name} does not exist"


def check_words(root):
    for path, text in texts(root):
        if path.suffix in {".hpp", ".cpp", ".cu", ".cuh", ".md"}:
            for number, line in enumerate(text.splitlines(), 1):
                for match in PRIVATE.finditer(line):
                    yield f"{path.relative_to(root)}:{number}: '{match[0]}' is no word of the field"
            if path.relative_to(root).parts[0] in {"include", "docs"}:
                for number, remark in remarks(path, text):
                    for match in PRIVATE_REMARK.finditer(remark):
                        yield f"{path.relative_to(root)}:{number}: '{match[0]}' is no word of the field"


LAMBDA = re.compile(r"\]\s*(\([^{}]*\)\s*)?(mutable\s*|noexcept\s*)*(->[^{};]+)?$")
FUNCTION = re.compile(r"\)\s*(const\s*|override\s*|noexcept\s*)*(->[^{};]+)?$")
STATEMENT = re.compile(r"\b(if|for|while|switch|catch|\w*SECTION)\b")
TOKEN = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|[{}();]|\breturn\b', re.DOTALL)


def own_returns(code, begin):
    """Offsets of the `return` statements of the function whose '{' is at begin, but for those of functions within it."""
    kinds, parentheses, start = [], [], begin  # of the open braces; start: of the statement
    for match in TOKEN.finditer(code, begin):
        token = match[0]
        if token == "{":
            head = code[start : match.start()]
            inner = LAMBDA.search(head) or FUNCTION.search(head) and not STATEMENT.search(head)
            kinds.append("function" if kinds and inner else "block")
            parentheses.append(0)
        elif token == "}":
            kinds.pop()
            parentheses.pop()
            if not kinds:
                return
        elif token in "()":
            parentheses[-1] += 1 if token == "(" else -1
        elif token == "return" and "function" not in kinds:
            yield match.start()
        if token in ("{", "}") or token == ";" and parentheses[-1] == 0:
            start = match.end()


def check_early_returns(root):
    for path in sorted((root / "tests").rglob("*_test.cpp")):
        code = without_comments(path.read_text(encoding="utf-8"))
        line = lambda offset: f"{path.relative_to(root)}:{code.count(chr(10), 0, offset) + 1}"  # noqa: E731
        for case in re.finditer(r'^(TEMPLATE_)?TEST_CASE\(\s*(?:"(?:\\.|[^"\\])*"[\s,]*)+[^{}]*?\)\s*\{', code, re.MULTILINE):
            for offset in own_returns(code, case.end() - 1):
                yield f"{line(offset)}: support::needs(there, why) says what a test case needs"
        for warned in re.finditer(r"\bWARN\(", code):
            yield f"{line(warned.start())}: support::not_run_in_part(why) says what is not tested"
    for path in sorted((root / "tests").rglob("*_test.py")):
        for case in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(case, ast.FunctionDef) or not any(isinstance(d, ast.Name) and d.id == "case" for d in case.decorator_list):
                continue
            inner = {n for f in ast.walk(case) if f is not case and isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) for n in ast.walk(f)}
            for node in ast.walk(case):
                if isinstance(node, ast.Return) and node not in inner:
                    yield f"{path.relative_to(root)}:{node.lineno}: raise NotRun(why) where something is not here"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    include = root / "include/rlalgo"
    headers = [Source(root, p) for p in sorted(include.rglob("*.hpp"))]
    for header in headers:
        header.relative = str(header.path.relative_to(include))
        header.own_rooms = {room_of(header.relative)}
    kernels = [Source(root, p) for p in sorted(include.rglob("*.cuh"))]
    for kernel in kernels:
        kernel.relative = str(kernel.path.relative_to(include))
    cuda = [*kernels, *(h for h in headers if room_of(h.relative) == "cuda"),
            *(Source(root, p) for p in sorted((root / "cmake/compiled/cuda").glob("*.cu")))]
    programs = [Source(root, p) for p in sorted((root / "examples").rglob("*.[ch]pp"))]
    tests = [Source(root, p) for top in ("tests", "benchmarks") for p in sorted((root / top).rglob("*.[ch]pp"))]
    for source in [*cuda, *programs]:
        source.own_rooms = set()
    for source in tests:
        source.own_rooms = {source.path.parent.name}
    config_only = re.compile(r"^yaml-cpp/")

    rules = {
        "floors": check_floors(headers),
        "detail": check_detail([*headers, *cuda, *programs, *tests]),
        "torch_door": check_includes([*headers, *programs, *tests], TORCH_UMBRELLA, lambda h: True, "include rlalgo/tensor/ and single ATen/ops headers"),
        "aten_ops": check_includes(headers, ATEN_FREE, lambda h: room_of(h.relative) != "tensor", "take tensor/functions.hpp or the _ops.h form"),
        "aten_lists": check_includes(headers, ATEN_LISTS, lambda h: not h.relative.endswith("_impl.hpp"), "detail/*_impl.hpp hides it"),
        "host_floors": check_includes(headers, TORCH, lambda h: room_of(h.relative) in HOST_ROOMS, "floors 0-2 know no torch"),
        "cuda_wing": check_wing(cuda, "rlalgo/cuda/", "kernels take raw pointers and a stream"),
        "cpu_wing": check_wing([h for h in headers if room_of(h.relative) == "cpu"], ("rlalgo/cpu/", "rlalgo/core/"), "kernels take raw pointers"),
        "yaml": check_includes(headers, config_only, lambda h: room_of(h.relative) != "config", "only config/ reads YAML"),
        "core": check_core(headers),
        "boost": check_includes(headers, re.compile(r"^boost/"), lambda h: not h.relative.startswith("http/detail/"), "http/detail/ hides it"),
        "ranges": check_includes(headers, re.compile(r"^range/v3/"), lambda h: not h.relative.endswith("_impl.hpp"), "detail/*_impl.hpp hides it"),
        "length": check_length([*headers, *kernels], programs),
        "mirror_tests": check_mirror(root, [*headers, *kernels]),
        "names": check_names(root),
        "unfinished": check_unfinished(root),
        "errors": check_errors(root, [*headers, *programs]),
        "error_lists": check_error_lists(headers),
        "snippets": check_snippets(root),
        "links": check_links(root),
        "compiled": check_compiled(root, headers),
        "order": check_order(headers),
        "named_files": check_named_files(root),
        "words": check_words(root),
        "early_returns": check_early_returns(root),
        "embedded": (f"{path.relative_to(root)}: run scripts/embed_python.py" for path in embed_python.stale(root)),
    }
    if not headers:
        print(f"FAIL architecture: no header under {include}")
        return 1
    broken = 0
    for rule, findings in rules.items():
        findings = sorted(set(findings))
        broken += bool(findings)
        print(f"FAIL {rule}: {len(findings)} findings" if findings else f"ok {rule}")
        for finding in findings:
            print(f"     {finding}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
