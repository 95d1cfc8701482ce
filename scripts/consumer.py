#!/usr/bin/env python3
"""Builds tests/consumer as a stranger would, and writes `ok consumer/NAME` or `FAIL consumer/NAME: why` for each case.

    consumer.py WAY BUILD RESULT CMAKE COMPILER TORCH_ROOT

WAY:
    find_package      BUILD installed; the components rlalgo and config found, built with and run
    add_subdirectory  rlalgo as a part of the project, whose installation then holds nothing of rlalgo
    host              RLALGO_HOST_ONLY configured and installed where CMake finds neither yaml-cpp nor Boost nor
                      LibTorch; the component host found there, built with and run
    messages          what a project is told that asks for what is not there (nothing is compiled)
Exits 0 either way: a consumer that does not build is a failed test, not a failed build.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HIDDEN = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("yaml-cpp", "Boost", "Torch", "Eigen3")]


class Broken(Exception):
    pass


def main():
    way, build, result, cmake, compiler, torch_root = sys.argv[1:]
    work = pathlib.Path(result).with_suffix("")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    lines = []
    # What the user's own environment says of LibTorch must not decide.
    environment = {k: v for k, v in os.environ.items() if k not in ("RLALGO_TORCH_ROOT", "CMAKE_PREFIX_PATH")}

    def run(*words, expected=0, folder=None):
        words = [str(word) for word in words]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, env=environment,
                              cwd=folder)
        if (done.returncode == 0) != (expected == 0):
            raise Broken(f"{' '.join(words)}\nexit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def configure(name, component, *options, expected=0):
        return run(cmake, "-S", ROOT / "tests/consumer", "-B", work / name, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}",
                   f"-DCOMPONENT={component}", *options, expected=expected)

    def built_and_run(name, component, *options):
        configure(name, component, *options)
        run(cmake, "--build", work / name)
        run(work / name / "consumer", folder=work)

    def installed(tree, prefix):
        run(cmake, "--install", tree, "--prefix", prefix, "--component", "Development")
        return f"-DCMAKE_PREFIX_PATH={prefix}"

    def host_installed():
        tree = work / "rlalgo-host"
        run(cmake, "-S", ROOT, "-B", tree, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DRLALGO_HOST_ONLY=ON",
            "-DRLALGO_BUILD_TESTS=OFF", "-DRLALGO_BUILD_EXAMPLES=OFF", *HIDDEN)
        return installed(tree, work / "prefix-host")

    def headers_alone():
        """Where nothing that rlalgo links is found, the same files are installed."""
        tree = work / "rlalgo-headers"
        everything = [*HIDDEN, *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("nlohmann_json", "range-v3", "PkgConfig", "ICU", "ZLIB", "Catch2"))]
        has_cuda = (work / "prefix/include/rlalgo/cuda").exists()
        run(cmake, "-S", ROOT, "-B", tree, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DRLALGO_FIND_DEPENDENCIES=OFF", f"-DRLALGO_CUDA={'AUTO' if has_cuda else 'OFF'}",
            "-DRLALGO_BUILD_TESTS=OFF", "-DRLALGO_BUILD_EXAMPLES=OFF", "-DRLALGO_TORCH_ROOT=/nonexistent", *everything)
        installed(tree, work / "prefix-headers")
        one, other = ({str(p.relative_to(prefix)): p.read_bytes() for p in prefix.rglob("*") if p.is_file()}
                      for prefix in (work / "prefix", work / "prefix-headers"))
        wrong = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        if wrong or not one:
            raise Broken(f"not the same: {wrong}")
        refused = run(cmake, "-S", ROOT, "-B", work / "refused", "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", "-DRLALGO_FIND_DEPENDENCIES=OFF",
                      expected=1)
        told(refused, "RLALGO_FIND_DEPENDENCIES=OFF compiles nothing")

    def told(text, *parts):
        flat = " ".join(text.split())  # CMake breaks lines
        for part in parts:
            if part not in flat:
                raise Broken(f"{part!r} is not in\n{text}")

    def one_config(prefix):
        # find_package takes either name: a component called config must not be taken for the package.
        found = sorted(p.name for p in prefix.rglob("*.cmake") if p.name in ("rlalgoConfig.cmake", "rlalgo-config.cmake"))
        if found != ["rlalgoConfig.cmake"]:
            raise Broken(f"the installation holds {found}")

    def case(name, function):
        try:
            function()
            lines.append(f"ok consumer/{name}\n")
        except (Broken, subprocess.TimeoutExpired) as error:
            lines.append(f"FAIL consumer/{name}: {error}\n")

    torch = f"-DRLALGO_TORCH_ROOT={torch_root}"
    if way == "find_package":
        prefix = installed(build, work / "prefix")
        case("find_package/one file of the package's name", lambda: one_config(work / "prefix"))
        case("find_package/headers installed where no dependency is", headers_alone)
        case("find_package", lambda: built_and_run("rlalgo", "rlalgo", prefix, torch))
        case("config", lambda: built_and_run("config", "config", prefix, f"-DTorch_DIR={torch_root}/share/cmake/Torch"))
    elif way == "add_subdirectory":
        def added():
            built_and_run("build", "rlalgo", f"-DRLALGO_SOURCE={ROOT}", torch)
            run(cmake, "--install", work / "build", "--prefix", work / "prefix")
            found = sorted(str(p.relative_to(work / "prefix")) for p in (work / "prefix").rglob("*") if p.is_file())
            if found != ["sources/rlalgo.cpp"]:
                raise Broken(f"the project's installation holds {found}")
        case("add_subdirectory", added)
    elif way == "host":
        case("host", lambda: built_and_run("build", "host", host_installed(), *HIDDEN))
    else:
        prefix = host_installed()
        old = work / "old-torch"
        for file, text in {"include/ATen/core/Tensor.h": "", "lib/libtorch_cpu.so": "", "lib/libc10.so": "",
                           "include/torch/csrc/api/include/torch/version.h":
                               "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 1\n#define TORCH_VERSION_PATCH 2\n"}.items():
            (old / file).parent.mkdir(parents=True, exist_ok=True)
            (old / file).write_text(text)
        case("messages/a component that is not installed", lambda: told(
            configure("missing", "config", prefix, expected=1), "component http is not in this installation", "which has: host"))
        case("messages/an unknown component", lambda: told(
            configure("unknown", "cofnig", prefix, expected=1), "component cofnig is not in this installation"))
        case("messages/an old LibTorch", lambda: told(
            configure("old", "rlalgo", f"-DRLALGO_SOURCE={ROOT}", f"-DTorch_DIR={old}/share/cmake/Torch", expected=1),
            f"LibTorch 2.1.2 in {old}/include is too old", "needs 2.11.0 or newer"))
        case("messages/no LibTorch", lambda: told(
            configure("none", "rlalgo", f"-DRLALGO_SOURCE={ROOT}", f"-DRLALGO_TORCH_ROOT={work}", expected=1),
            "LibTorch not found", "RLALGO_TORCH_ROOT, Torch_DIR or CMAKE_PREFIX_PATH"))
    pathlib.Path(result).write_text("".join(lines))


if __name__ == "__main__":
    main()
