#!/usr/bin/env python3
"""Writes the reference of the library from its headers: HTML pages that need nothing else.

    api_reference.py OUT          OUT/index.html, a page for each room, header and concept
    api_reference.py --check      the same into a temporary folder

Public is what lies in include/rlalgo outside of detail/ folders and detail namespaces. A header's page has its top comment and its declarations
with their comments; bodies of functions are left out. The page of a concept says what it requires, who is shown to satisfy it (static_assert in
headers and tests) and which headers ask for it. It ends with an error if a header has no top comment or a link leads nowhere; the last line counts.
"""

import argparse
import dataclasses
import html
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include/rlalgo"
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
pre{background:#f5f5f3;padding:.7em 1em;overflow-x:auto;font-size:13px;line-height:1.45}h1,h2{line-height:1.2}h2{margin-top:2em;border-top:1px solid #ddd;padding-top:.7em}
a{color:#0550ae;text-decoration:none}a:hover{text-decoration:underline}.comment{white-space:pre-wrap;color:#444}table{border-collapse:collapse}td{padding:.15em 1em .15em 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#161618;color:#ddd}pre{background:#222226}.comment{color:#bbb}a{color:#79b8ff}h2{border-color:#333}}"""


@dataclasses.dataclass
class Declaration:
    kind: str  # concept, class, enum, alias, constant, function
    name: str
    text: str
    comment: str


@dataclasses.dataclass
class Header:
    path: str  # below rlalgo/
    comment: str
    declarations: list


def comment_of(lines):
    return "\n".join(re.sub(r"^// ?", "", line) for line in lines)


def without_bodies(text):
    """The text with the bodies of functions as `;`, and of constructors their initializers, too."""
    out, i = [], 0
    while i < len(text):
        if text[i] == "{":
            before = re.sub(r"\s+", " ", "".join(out)[-400:])
            statement = re.split(r"[;{}]", before)[-1].strip()
            statement = re.sub(r"//.*", "", statement)
            end = matching(text, i)
            opens_type = re.match(r"(?:template\b.*>\s*)?(?:requires\b.*\s)?(?:struct|class|enum|union)\b[^()=]*$", statement) or statement.startswith("enum")
            if ")" in statement and not opens_type and "=" not in statement.split(")")[-1] and not re.search(r"requires \([^)]*\)$|requires$", statement):
                while out and out[-1] in " \n":
                    out.pop()
                joined = re.sub(r"\)\s*:\s[^;{}]*$", ")", "".join(out))
                out = [joined, ";"]
                i = end + 1
                continue
        out.append(text[i])
        i += 1
    return "".join(out)


def matching(text, start):
    depth, i, quote = 0, start, ""
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif text.startswith("//", i):
            i = text.find("\n", i)
            if i < 0:
                break
        elif c == '"' or (c == "'" and not (i and text[i - 1].isdigit())):
            quote = c
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return len(text) - 1


def private_gone(text):
    """A class without its private part."""
    return re.sub(r"^ private:\n.*?(?=^ public:|^\};)", "", text, flags=re.MULTILINE | re.DOTALL)


def declarations_of(body):
    lines, i, comment, out, hidden = body.split("\n"), 0, [], [], 0
    while i < len(lines):
        line = lines[i]
        if re.match(r"namespace (\w+::)*detail\b|namespace \{", line):
            hidden += 1
        elif hidden and re.match(r"\}  // namespace", line):
            hidden -= 1
        elif line.startswith("// "):
            comment.append(line)
            i += 1
            continue
        elif hidden or not re.match(r"[A-Za-z_\[]", line) or re.match(r"namespace |using namespace|extern |static_assert", line):
            pass
        else:
            j = i  # a declaration: to the line that ends it at column 0, or with ; outside of braces
            rest = "\n".join(lines[i:])
            end = 0
            while True:
                stop = re.compile(r"[;{]").search(rest, end)
                if not stop:
                    end = len(rest)
                    break
                if stop[0] == ";":
                    end = stop.end()
                    break
                close = matching(rest, stop.start())
                end = close + 1
                if re.match(r"\s*;", rest[end:]):
                    end += re.match(r"\s*;", rest[end:]).end()
                    break
                if re.match(r"\n|$", rest[end:]) and not re.match(r"(?:template\b.*\n)?(?:struct|class|enum)\b", rest):
                    break
            text = rest[:end]
            j = i + text.count("\n")
            if (found := declared(text)) is not None:
                kind, name = found
                tail = re.match(r"[ \t]*// ?(.*)", rest[end:])
                said = comment_of(comment) + (("\n" if comment else "") + tail[1] if tail else "")
                out.append(Declaration(kind, name, (text if kind == "concept" else private_gone(without_bodies(text))).strip(), said))
            i = j
        comment = []
        i += 1
    return out


def declared(text):
    plain = re.sub(r"\[\[[^\]]*\]\]\s*", "", text)
    plain = re.sub(r"^template <.*?>\s*\n", "", plain, flags=re.DOTALL)
    plain = re.sub(r"^(?:RLALGO_INLINE|inline|constexpr|explicit|static)\s+", "", plain)
    if match := re.match(r"concept (\w+)", plain):
        return "concept", match[1]
    if match := re.match(r"(?:struct|class) (\w+)(?:\s+final)?\s*[:{]", plain):
        return "class", match[1]
    if match := re.match(r"enum (?:class )?(\w+)", plain):
        return "enum", match[1]
    if match := re.match(r"using (\w+)\s*=", plain):
        return "alias", match[1]
    if re.match(r"(?:struct|class)\b|using\b|requires\b.*;$|friend\b", plain):
        return None  # declared elsewhere, or a specialisation
    head = re.split(r"[({=;]", plain)[0]
    words = re.findall(r"~?\w+", head)
    if not words:
        return None
    if "(" in plain and (plain.find("=") < 0 or plain.find("(") < plain.find("=") or "operator" in head):
        return "function", words[-1] if "operator" not in head else "operator"
    return "constant", words[-1]


def read_header(path):
    text = path.read_text(encoding="utf-8")
    top, _, body = text.partition("#pragma once\n")
    comment = comment_of([line for line in top.split("\n") if line.startswith("//")])
    return Header(str(path.relative_to(INCLUDE)), comment, declarations_of(body))


def rooms():
    """Room → the sentence of docs/architecture.md."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return {name: what.replace("`", "") for name, what in re.findall(r"^\| [–\d]+ \| `(\w+)/` \| (.*?) \|$", page, re.MULTILINE)}


def page_name(header):
    return "header-" + header.path.replace("/", "-").removesuffix(".hpp") + ".html"


def concept_page(room, name):
    return f"concept-{room}-{name}.html"


def room_of(header):
    return header.path.split("/")[0] if "/" in header.path else ""


def whole_page(title, body):
    return f"<!DOCTYPE html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{html.escape(title)}</title>" \
           f"<style>{STYLE}</style><p><a href=index.html>rlalgo, reference</a></p><h1>{html.escape(title)}</h1>{body}\n"


def shown(text, links):
    """Code, with the names that have a page linked to it."""
    return re.sub(r"\b[A-Za-z_]\w+\b", lambda m: f"<a href={links[m[0]]}>{m[0]}</a>" if m[0] in links else m[0], html.escape(text, quote=False))


def write(out):
    headers = [read_header(p) for p in sorted(INCLUDE.rglob("*.hpp")) if "detail" not in p.parts]
    wrong = [f"include/rlalgo/{h.path}: no top comment" for h in headers if not h.comment.strip()]
    concepts = [(h, d) for h in headers for d in h.declarations if d.kind == "concept"]
    seen, links = {}, {}
    for h in headers:
        for d in h.declarations:
            if d.kind in ("class", "enum", "concept"):
                seen.setdefault(d.name, []).append(concept_page(room_of(h), d.name) if d.kind == "concept" else f"{page_name(h)}#{d.name}")
    links = {name: places[0] for name, places in seen.items() if len(places) == 1 and name not in ("Config",)}
    about = rooms()
    sources = {p: p.read_text(encoding="utf-8") for folder in ("include", "tests") for p in sorted((ROOT / folder).rglob("*.[hc]pp"))}
    pages = {}

    body = ["<p>Generated from the headers by scripts/api_reference.py. Start with a door, the header of a method; what a part of your own has to be is its concept.</p>"]
    doors = [h for h in headers if not room_of(h)]
    body.append("<h2>Doors</h2><table>" + "".join(f"<tr><td><a href={page_name(h)}>{h.path}</a><td>{html.escape(h.comment.split(chr(10))[0])}" for h in doors) + "</table>")
    body.append("<h2>Concepts</h2><table>" + "".join(f"<tr><td><a href={concept_page(room_of(h), d.name)}>{room_of(h)}::{d.name}</a><td>{html.escape((d.comment or h.comment).split(chr(10))[0])}"
                                                     for h, d in concepts) + "</table>")
    names = sorted({room_of(h) for h in headers if room_of(h)})
    body.append("<h2>Rooms</h2><table>" + "".join(f"<tr><td><a href=room-{n}.html>{n}/</a><td>{html.escape(about.get(n, ''))}" for n in names) + "</table>")
    pages["index.html"] = whole_page("rlalgo", "".join(body))
    for name in names:
        mine = [h for h in headers if room_of(h) == name]
        pages[f"room-{name}.html"] = whole_page(f"{name}/", f"<p>{html.escape(about.get(name, ''))}</p><table>" + "".join(
            f"<tr><td><a href={page_name(h)}>{h.path.split('/')[1]}</a><td>{html.escape(h.comment.split(chr(10))[0])}" for h in mine) + "</table>")
    for h in headers:
        room = room_of(h)
        body = [f"<pre>#include &lt;rlalgo/{h.path}&gt;</pre>" + (f"<p>in <a href=room-{room}.html>{room}/</a></p>" if room else "") + f"<div class=comment>{html.escape(h.comment)}</div>"]
        for d in h.declarations:
            where = concept_page(room, d.name)
            body.append(f"<h2 id={d.name}>" + (f"<a href={where}>{d.name}</a>" if d.kind == "concept" else d.name) + f"</h2><div class=comment>{html.escape(d.comment)}</div>"
                        f"<pre>{shown(d.text, {k: v for k, v in links.items() if k != d.name})}</pre>")
        pages[page_name(h)] = whole_page(f"rlalgo/{h.path}", "".join(body))
    for h, d in concepts:
        room = room_of(h)
        outside, inside = re.compile(rf"\b{room}::{d.name}\b"), re.compile(rf"(?<![\w:]){d.name}\b(?=<| [A-Z])")
        asserted = re.compile(rf"static_assert\((?:\w+::)*{d.name}<(.+?)>(?:\)|,)")
        models = sorted({re.sub(r"\s+", " ", m) for text in sources.values() if d.name in text for m in asserted.findall(text) if "!" not in m and re.search(r"[a-z]", m)})
        users = [o for o in headers if o is not h and (inside if room_of(o) == room else outside).search(sources[INCLUDE / o.path])]
        body = [f"<p>of <a href={page_name(h)}>rlalgo/{h.path}</a></p><div class=comment>{html.escape(d.comment or h.comment)}</div><pre>{shown(d.text, {k: v for k, v in links.items() if k != d.name})}</pre>"]
        if models:
            body.append("<h2>Satisfied by</h2><pre>" + shown("\n".join(models), links) + "</pre>")
        if users:
            body.append("<h2>Named in</h2><p>" + ", ".join(f"<a href={page_name(o)}>{o.path}</a>" for o in users) + "</p>")
        pages[concept_page(room, d.name)] = whole_page(f"{room + '::' if room else ''}{d.name}", "".join(body))

    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
        for target in re.findall(r"href=([^\s>]+)>", text):
            file, _, anchor = target.partition("#")
            if file not in pages or anchor and f"id={anchor}>" not in pages[file]:
                wrong.append(f"{name}: a link to {target}, which is not there")
    for line in sorted(set(wrong)):
        print(f"FAIL {line}")
    print(f"{len(pages)} pages: {len(headers)} headers, {sum(len(h.declarations) for h in headers)} declarations, {len(concepts)} concepts; {len(set(wrong))} failed")
    return 1 if wrong or not headers else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="write into a temporary folder")
    arguments = parser.parse_args()
    if arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            return write(pathlib.Path(folder))
    if arguments.out is None:
        parser.error("where to: OUT, or --check")
    return write(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
