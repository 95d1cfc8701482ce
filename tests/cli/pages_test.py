"""Every command and listing of README.md and of the pages for users is carried out here, block by block, as it stands there.

A page is played from its top in an empty folder:
    ```sh          run by bash; it must exit 0, unless the block names a status: `echo $?` shows it
    ```text        what the block of commands before it prints: these lines, in this order; `…` stands for anything
    ```yaml, json, python
                   after a comment `<!-- file: NAME -->`: becomes that file
    ```cpp         compiled by tests/docs (scripts/check_architecture.py compares)
A comment before a block says what is not played: `<!-- not run: WHY -->`. `<!-- setup … -->` holds commands that a reader does not need: the data
of the page, or the quickstart's model in the place of a larger one. A port 8000 is one that is free, `rlalgo` the program that is tested.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import ROOT, free_port, main  # noqa: E402

PAGES = ["README.md", *(f"docs/{name}.md" for name in
                        ("your-data", "from-axolotl", "from-trl", "which-method", "memory-and-time", "troubleshooting", "serving", "gpu", "performance"))]
BLOCK = re.compile(r"(?:^<!--(?P<comment>(?:(?!-->).)*)-->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$|^<!-- setup\n(?P<setup>.*?)-->$",
                   re.MULTILINE | re.DOTALL)
CASES = {}


class Page:
    def __init__(self, path, c):
        self.path, self.folder, self.printed, self.groups = path, c.folder, None, []
        self.port = str(free_port())
        programs = c.folder / ".bin"
        programs.mkdir()
        (programs / "rlalgo").symlink_to(c.program)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "ROOT": str(ROOT), "NO_PROXY": "localhost", "no_proxy": "localhost"}

    def play(self):
        text = (ROOT / self.path).read_text(encoding="utf-8")
        try:
            for block in BLOCK.finditer(text):
                self.where = f"{self.path}:{text.count(chr(10), 0, block.start()) + 1}"
                if block["setup"] is not None:
                    self.run(block["setup"])
                else:
                    self.one(block["language"], block["text"], (block["comment"] or "").strip())
        finally:
            for group in self.groups:
                try:
                    os.killpg(group, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def one(self, language, text, comment):
        kind, _, value = comment.partition(":")
        if kind == "not run":
            assert value.strip(), f"{self.where}: a block that is not played says why"
            self.printed = None
        elif kind == "file":
            path = self.folder / value.strip()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif language == "sh":
            self.run(text)
        elif language == "text":
            self.compare(text)
        else:
            assert language == "cpp", f"{self.where}: a block of {language or 'no language'} without a comment that says what it is"

    def run(self, commands):
        output = self.folder / ".output"
        with open(output, "wb") as file:
            process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", commands.replace("8000", self.port)], cwd=self.folder, env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            self.groups.append(process.pid)
            status = process.wait(timeout=300)
        self.printed = output.read_text(errors="replace").replace(self.port, "8000")
        assert status == 0, f"{self.where}: exit status {status}\n{self.printed[-1500:]}"

    def compare(self, expected):
        assert self.printed is not None, f"{self.where}: printed by nothing"
        rest = self.printed.splitlines()
        for line in expected.splitlines():
            if line.strip() in ("", "…"):
                continue
            pattern = ".*".join(re.escape(re.sub(r"\s+", " ", part.strip())) for part in line.split("…"))
            found = next((i for i, l in enumerate(rest) if re.search(pattern, re.sub(r"\s+", " ", l))), None)
            assert found is not None, f"{self.where}: not printed: {line}\n{self.printed[-2500:]}"
            rest = rest[found + 1:]


def page(path):
    def case(c):
        begin = time.monotonic()
        Page(path, c).play()
        assert time.monotonic() - begin < 240, "a page takes too long"
    return case


for path in PAGES:
    CASES[path] = page(path)

if __name__ == "__main__":
    main(CASES)
