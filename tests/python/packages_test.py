"""The packages agree with CMakeLists.txt and with each other: version, address, compilers, what may be published. Nothing is built here
(tests/cli/install_test.py installs what is built)."""

import json
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


PROJECT = text("CMakeLists.txt")
VERSION = re.search(r"project\(rlalgo VERSION ([0-9.]+)", PROJECT)[1]
HOME = re.search(r"HOMEPAGE_URL (\S+?)\)", PROJECT)[1]
PORT = "conan/vcpkg/ports/rlalgo"


@case
def one_version():
    assert json.loads(text(f"{PORT}/vcpkg.json"))["version"] == VERSION
    assert f'version = "{VERSION}"' in text("include/rlalgo/core/version.hpp")
    # pip and Conan read it from CMakeLists.txt.
    assert re.search(re.search(r"regex = '(.*)'", text("pyproject.toml"))[1], PROJECT)["value"] == VERSION
    assert re.search(re.search(r're\.search\(r"(.*?)", project\)', text("conan/conanfile.py"))[1], PROJECT)[1] == VERSION
    assert re.search(rf"^## {re.escape(VERSION)} - \d{{4}}-\d\d-\d\d$", text("CHANGELOG.md"), re.MULTILINE)


@case
def one_address():
    assert json.loads(text(f"{PORT}/vcpkg.json"))["homepage"] == HOME
    assert f'Homepage = "{HOME}"' in text("pyproject.toml")
    recipe = text("conan/conanfile.py")
    assert f'url = "{HOME}"' in recipe and f'homepage = "{HOME}"' in recipe
    assert f"REPO {HOME.removeprefix('https://github.com/')}\n" in text(f"{PORT}/portfile.cmake")


@case
def the_same_compilers_are_refused():
    least = dict(re.findall(r'(GNU|Clang)" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS (\d+)', text("cmake/RlalgoTargets.cmake")))
    found = dict(re.findall(r'"(gcc|clang)": "(\d+)"', text("conan/conanfile.py")))
    assert {"gcc": least["GNU"], "clang": least["Clang"]} == found, (least, found)


@case
def the_same_dependencies():
    """Every package names what rlalgoConfig.cmake finds again."""
    names = {"nlohmann_json": "nlohmann-json", "range-v3": "range-v3", "pcre2": "pcre2", "icu": "icu", "zlib": "zlib", "boost": "boost-asio",
             "eigen": "eigen3", "yaml-cpp": "yaml-cpp"}
    required = set(re.findall(r'self\.requires\("([a-z0-9_-]+)/', text("conan/conanfile.py")))
    assert required == names.keys(), required
    port = json.loads(text(f"{PORT}/vcpkg.json"))
    listed = [*port["dependencies"], *(d for f in port["features"].values() for d in f["dependencies"])]
    found = {d if isinstance(d, str) else d["name"] for d in listed} - {"vcpkg-cmake", "vcpkg-cmake-config", "rlalgo", "boost-beast"}
    assert found == set(names.values()), found


@case
def the_port_may_enter_a_registry():
    port, manifest = text(f"{PORT}/portfile.cmake"), json.loads(text(f"{PORT}/vcpkg.json"))
    assert ".." not in port and "vcpkg_from_github(" in port and 'REF "v${VERSION}"' in port and "vcpkg_install_copyright(" in port
    features = set(manifest["features"])
    assert set(manifest["default-features"]) <= features
    for name in re.findall(r"^    (\w+) RLALGO_", port, re.MULTILINE):
        assert name in features, name
    options = set(re.findall(r"(RLALGO_\w+)", port))
    known = set(re.findall(r"(?:option|set)\((RLALGO_\w+)", PROJECT))
    assert options <= known, options - known


@case
def a_changelog_of_one_line_an_item():
    lines = text("CHANGELOG.md").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("## "))
    for number, line in enumerate(lines[begin:], begin + 1):
        assert not line or line.startswith(("## ", "### ", "- ")) or lines[number - 3].startswith("## "), f"CHANGELOG.md:{number}: {line[:80]}"
        if line.startswith("### "):
            assert line in ("### Added", "### Changed", "### Fixed", "### Removed", "### Deprecated"), f"CHANGELOG.md:{number}: {line}"


failed = 0
for name, function in CASES.items():
    try:
        function()
        print(f"ok {name}")
    except Exception:
        failed += 1
        print(f"FAIL {name} {' | '.join(traceback.format_exc().splitlines())[-1500:]}")
sys.exit(1 if failed else 0)
