"""Pages for users against what they describe: health rules, keys, error numbers."""

import pathlib
import re
import sys
import traceback

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def second_column(path):
    rows = [line.split("|")[2] for line in text(path).splitlines() if line.startswith("| ") and line.count("|") >= 3]
    return [name for row in rows for name in re.findall(r"`([a-z_.]+)(?:`|: )", row)]


@case
def every_health_rule_is_a_symptom():
    rules = text("include/rlalgo/run/detail/health_impl.hpp")
    rules = rules[rules.index("static const HealthRule rules[]"):rules.index("return rules;")]
    metrics = set(re.findall(r'^      \{"([^"]+)"', rules, re.MULTILINE)) | set(re.findall(r'\.metric = "([^"]+)"', rules))
    assert len(metrics) > 12, metrics
    page = text("docs/troubleshooting.md")
    missing = sorted(m for m in metrics if f"`{m}`" not in page)
    assert not missing, f"not in docs/troubleshooting.md: {missing}"
    told = set(re.findall(r"^\|[^|]*\| `([a-z_/*]+)`:", page, re.MULTILINE))
    assert told <= metrics, f"no rule looks at {sorted(told - metrics)}"


@case
def keys_that_stand_for_trls_arguments_are_keys():
    configuration = text("docs/configuration.md") + "".join(p.read_text() for p in sorted((ROOT / "include/rlalgo/config").glob("*_keys.hpp")))
    names = [n for n in second_column("docs/from-trl.md") if "_" in n or n.startswith("trl.")]
    assert len(names) > 20, names
    unknown = sorted({n for n in names if not re.search(rf"(?<![a-z_]){re.escape(n.removeprefix('trl.'))}(?![a-z_])", configuration)})
    assert not unknown, f"no keys: {unknown}"


@case
def keys_of_examples_stand_in_the_configuration():
    """A key with its section, `trl.name` or `name: value`, in any page for users is one of the configuration's."""
    configuration = text("docs/configuration.md") + text("docs/async.md") + text("docs/environments.md") + text("docs/serving.md")
    for page in ("README.md", "docs/which-method.md", "docs/memory-and-time.md", "docs/troubleshooting.md", "docs/your-data.md"):
        names = set(re.findall(r"`(?:trl|ebft)\.([a-z_]+)", text(page)))
        unknown = sorted(n for n in names if not re.search(rf"(?<![a-z_]){n}(?![a-z_])", configuration))
        assert not unknown, f"{page}: {unknown}"


@case
def error_numbers_exist():
    known = set(re.findall(r"\*\*([a-z]+\.\d+)\*\*", text("docs/errors.md")))
    rooms = {name.split(".")[0] for name in known}
    for page in pages():
        if page.name == "errors.md":
            continue
        for room, number in re.findall(r"`([a-z]+)\.(\d+)`", page.read_text(encoding="utf-8")):
            assert room not in rooms or f"{room}.{number}" in known, f"{page.name}: no error {room}.{number}"


failed = 0
for name, function in CASES.items():
    try:
        function()
        print(f"ok {name}")
    except Exception:
        failed += 1
        print(f"FAIL {name} {' | '.join(traceback.format_exc().splitlines())[-1500:]}")
sys.exit(1 if failed else 0)
