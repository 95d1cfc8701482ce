"""What is installed: the prefix of `cmake --install`, and the wheel in an empty environment; each run by another user who has no variables set."""
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import ROOT, NotRun, main  # noqa: E402

CASES = {}
NOBODY = 65534
QUICKSTART = ("train", "examples/quickstart/config.yaml", "--max-steps", "2", "--micro-batch-size", "16", "--trl.num-generations", "4",
              "--eval-steps", "2", "--trl.reward-weights", "[1.0, 0.2]")


def case(function):
    CASES[function.__name__] = function
    return function


def build_folder(c):
    build = pathlib.Path(c.program).parent.parent
    if not (build / "cmake_install.cmake").exists():
        raise NotRun(f"{build} is no build folder")
    return build


def open_folder(c):
    """A scratch folder that any user can reach and write to."""
    folder = c.folder
    if os.geteuid() == 0 and any(not p.stat().st_mode & stat.S_IXOTH for p in folder.parents):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="rlalgo-install-", dir="/tmp"))
    folder.chmod(0o777)
    return folder


def call(words, folder, **variables):
    """Run by another user where this one may become another, with no variables but these."""
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run([str(w) for w in words], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, **other)
    return done.returncode, done.stdout


def python_for_all():
    """A Python that the other user may run: this one may lie in somebody's home."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            if call([python, "-c", "import venv"], "/")[0] == 0:
                return python
        except PermissionError:
            pass
    raise NotRun("no Python 3 with venv that another user may run")


def run_path(program):
    text = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
    assert len(found) == 1, text
    return found[0].split(":")


def installed(c, prefix, *options):
    subprocess.run(["cmake", "--install", build_folder(c), "--component", "Runtime", "--prefix", prefix, *options], check=True, stdout=subprocess.DEVNULL)


def trained(words, share, output, **variables):
    code, text = call([*words, *QUICKSTART, "--output-dir", output], share, **variables)
    assert code == 0, text[-1500:]
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if "loss" in r] == [1, 2], text[-1500:]
    assert (output / "model.safetensors").exists() and (output / "report.html").exists()


@case
def a_prefix_that_is_moved(c):
    """bin/, lib/rlalgo/ and share/ alone: no path of the builder, no library of LibTorch's folder."""
    folder = open_folder(c)
    try:
        installed(c, folder / "first", "--strip")
        prefix = (folder / "first").rename(folder / "second")
        assert run_path(prefix / "bin/rlalgo") == ["$ORIGIN/../lib/rlalgo"]
        code, text = call([prefix / "bin/rlalgo", "version"], "/")
        assert code == 0 and f"LibTorch's folder {prefix}/lib/rlalgo" in text, text
        build = json.loads((prefix / "share/rlalgo/build.json").read_text())
        assert build["version"] in text.splitlines()[0] and (not build["commit"] or f"  commit {build['commit']}" in text), text
        assert sorted(build["libraries"]) == sorted(p.name for p in (prefix / "lib/rlalgo").iterdir())
        strangers = loaded_from(prefix / "bin/rlalgo", prefix)
        assert not strangers, strangers
        trained([prefix / "bin/rlalgo"], prefix / "share/rlalgo", folder / "out")
    finally:
        if folder != c.folder:
            shutil.rmtree(folder)


def loaded_from(program, *places):
    """What the loader takes from elsewhere than `places`, apart from the C and C++ runtime."""
    code, text = call(["/usr/bin/ldd", program], "/")
    assert code == 0 and "not found" not in text, text
    paths = re.findall(r"=> (/\S+)", text)
    system = re.compile(r"/lib(c|m|dl|rt|util|pthread|resolv|stdc\+\+|gcc_s)\.so")
    return [p for p in paths if not system.search(p) and not any(pathlib.Path(p).resolve().is_relative_to(place) for place in places)]


def libtorch(c):
    cache = (build_folder(c) / "CMakeCache.txt").read_text()
    return pathlib.Path(re.search(r"^RLALGO_TORCH_CPU:FILEPATH=(.*)$", cache, re.MULTILINE)[1]).parent.parent


def linked_or_copied(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copy(source, target)


def site_with_torch(c, site):
    """torch as pip would leave it in `site`: the files of it that a program of LibTorch's CPU half loads."""
    torch = libtorch(c)
    for file in [torch / "version.py", *(torch / "lib" / name for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1"))]:
        if file.exists():
            linked_or_copied(file, site / "torch" / file.relative_to(torch))
    for file in torch.parent.glob("nvidia/*/lib/libcu[dp]*.so.*"):
        linked_or_copied(file, site / file.relative_to(torch.parent))


@case
def a_wheel_in_an_empty_environment(c):
    """pip wheel, pip install; torch beside it, in another folder of sys.path, missing, and of another version."""
    python = pathlib.Path(os.environ.get("RLALGO_DEPS_DIR", pathlib.Path.home() / ".cache/rlalgo")) / "packaging/bin/python"
    if not python.exists():
        raise NotRun("scikit-build-core is not here (scripts/setup.sh --packaging)")
    folder = open_folder(c)
    try:
        wheels = folder / "wheels"
        quiet = ("-q", "--no-deps", "--disable-pip-version-check", "--no-cache-dir")
        subprocess.run([python, "-m", "pip", "wheel", ROOT, *quiet, "--no-build-isolation", "-w", wheels,
                        "-C", f"build-dir={folder}/pack", "-C", f"cmake.define.RLALGO_PROGRAM={c.program}"], check=True)
        wheel, = wheels.iterdir()
        assert re.fullmatch(r"rlalgo-[0-9.]+-py3-none-linux_\w+\.whl", wheel.name), wheel.name
        subprocess.run([python_for_all(), "-m", "venv", "--without-pip", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "--python", folder / "venv/bin/python", "install", *quiet, "--no-index", wheel], check=True)
        site, = (folder / "venv/lib").glob("python3*/site-packages")
        (metadata,) = site.glob("rlalgo-*.dist-info/METADATA")
        assert "\nRequires-Dist: torch==2.11.*\n" in metadata.read_text()
        command, share = folder / "venv/bin/rlalgo", site / "rlalgo/share/rlalgo"
        assert run_path(site / "rlalgo/bin/rlalgo") == ["$ORIGIN/../lib/rlalgo", "$ORIGIN/../../torch/lib", "$ORIGIN/../../nvidia/cu13/lib"]

        code, text = call([command, "version"], "/")
        assert code == 1 and f"{folder}/venv/bin/python" in text and "-m pip install 'torch==2.11.*'" in text, text

        site_with_torch(c, site)
        code, text = call([command, "version"], "/")
        assert code == 0 and f"LibTorch's folder {site}/torch/lib" in text, text
        strangers = loaded_from(site / "rlalgo/bin/rlalgo", site)
        assert not strangers, strangers
        # The user's Python runs the user's rewards.
        mine = folder / "mine"
        mine.mkdir()
        (mine / "mine.py").write_text(f"import sys\ndef f(completions, **_):\n    open({str(mine / 'prefix')!r}, 'w').write(sys.prefix)\n"
                                      "    return [float(len(str(c)) % 3) for c in completions]\n")
        mine.chmod(0o777)
        trained([command], share, folder / "venv-out", PYTHONPATH=str(mine))
        code, text = call([command, *QUICKSTART[:-2], "--trl.reward-funcs", "[mine.f]", "--trl.reward-weights", "[1.0]", "--max-steps", "1",
                           "--output-dir", folder / "venv-mine"], share, PYTHONPATH=str(mine))
        assert code == 0 and (mine / "prefix").read_text() == str(folder / "venv"), text[-1500:]
        code, text = call([folder / "venv/bin/python", "-m", "rlalgo", "version"], "/")
        assert code == 0, text

        # torch elsewhere on sys.path; and one that does not fit.
        (site / "torch").rename(folder / "elsewhere-torch")
        (folder / "elsewhere").mkdir()
        (folder / "elsewhere-torch").rename(folder / "elsewhere/torch")
        (site / "nvidia").rename(folder / "elsewhere/nvidia") if (site / "nvidia").exists() else None
        (site / "more.pth").write_text(f"{folder}/elsewhere\n")
        code, text = call([command, "version"], "/")
        assert code == 0 and f"LibTorch's folder {folder}/elsewhere/torch/lib" in text, text
        version = folder / "elsewhere/torch/version.py"
        version.unlink()
        version.write_text("__version__ = '2.9.1+cpu'\n")
        code, text = call([command, "version"], "/")
        assert code == 1 and "PyTorch 2.11 is needed" in text and "2.9.1+cpu" in text, text
    finally:
        if folder != c.folder:
            shutil.rmtree(folder)


@case
def nothing_of_the_builder_in_the_development_files(c):
    """The headers' component: no path of the source or build folder in its CMake files."""
    subprocess.run(["cmake", "--install", build_folder(c), "--component", "Development", "--prefix", c.folder / "prefix"], check=True, stdout=subprocess.DEVNULL)
    files = list((c.folder / "prefix").rglob("*.cmake"))
    assert len(files) > 3
    for file in files:
        assert str(ROOT) not in file.read_text(), file
    assert not (c.folder / "prefix/bin").exists()


if __name__ == "__main__":
    main(CASES)
