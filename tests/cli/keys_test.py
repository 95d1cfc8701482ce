"""`rlalgo keys`, and the tables of docs/configuration.md that it prints."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402

CASES = {}
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def case(function):
    CASES[function.__name__] = function
    return function


@case
def the_page_has_the_tables_of_the_rows(c):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/key_tables.py"), "--check", "--rlalgo", str(c.program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@case
def the_page_names_every_section(c):
    text = (ROOT / "docs/configuration.md").read_text()
    known = re.search(r"expected (.*)", c.run("keys", "--markdown", "none").expect(2, "[rlalgo.cli.32]").err).group(1)
    for section in known.strip().split(", "):
        assert text.count(f"<!-- keys: {section} -->") == 1, section


@case
def keys_are_found_by_parts_of_their_names(c):
    text = c.run("keys", "epsilon_high").expect(0).out
    assert "trl.epsilon_high (`epsilon`): more than 0" in text and "loss_type" in text, text
    assert "a resumed run may change it" in c.run("keys", "request_timeout").expect(0).out
    assert len(c.run("keys").expect(0).out.splitlines()) > 200
    c.run("keys", "epsilon_hihg").expect(2, "[rlalgo.cli.32]", "epsilon_high?")


if __name__ == "__main__":
    main(CASES)
