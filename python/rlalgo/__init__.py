"""The command `rlalgo` of the Python package: starts the program with this Python as the one of rewards, transforms and environments.

The program is linked to the libtorch_cpu.so of the `torch` that lies beside this package. Where torch is in another folder of
sys.path (an environment with --system-site-packages, a path file), the loader is told of it by LD_LIBRARY_PATH.
"""

import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TORCH = "2.11"  # of whose LibTorch the program is built


def program():
    """The path of the program."""
    return HERE / "bin" / "rlalgo"


def build():
    """What the program was built from: version, commit, libtorch, glibc."""
    return json.loads((HERE / "share" / "rlalgo" / "build.json").read_text())


def examples():
    """The folder with the quickstart's configuration, model and data; its configuration is to be run from `share/rlalgo`."""
    return HERE / "share" / "rlalgo" / "examples"


def torch_folder():
    """The torch that Python would import, or None. It is not imported: that would take a second."""
    for entry in sys.path:
        folder = pathlib.Path(entry or ".") / "torch"
        if (folder / "lib" / "libtorch_cpu.so").exists():
            return folder
    return None


def torch_version(folder):
    try:
        lines = (folder / "version.py").read_text().splitlines()
    except OSError:
        return None
    return next((line.split("'")[1] for line in lines if line.startswith("__version__") and "'" in line), None)


def environment(variables):
    """The variables that the program gets, or a line that says why it cannot start."""
    folder = torch_folder()
    if folder is None:
        return f"PyTorch {TORCH} is not installed for {sys.executable}: {sys.executable} -m pip install 'torch=={TORCH}.*'"
    version = torch_version(folder)
    if version is not None and not version.startswith(TORCH + "."):
        return (f"PyTorch {TORCH} is needed, {folder} is {version}: {sys.executable} -m pip install 'torch=={TORCH}.*', "
                "or install rlalgo in an environment of its own")
    changed = dict(variables)
    changed.setdefault("RLALGO_PYTHON", sys.executable)
    if folder.resolve().parent != HERE.parent:
        before = changed.get("LD_LIBRARY_PATH")
        changed["LD_LIBRARY_PATH"] = str(folder.resolve() / "lib") + (os.pathsep + before if before else "")
    return changed


def main():
    changed = environment(os.environ)
    if isinstance(changed, str):
        print(f"rlalgo: {changed}", file=sys.stderr)
        return 1
    os.execve(program(), ["rlalgo", *sys.argv[1:]], changed)
