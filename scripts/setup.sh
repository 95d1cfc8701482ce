#!/usr/bin/env bash
# Prepares this machine and builds. Used by scripts/quickstart.sh, scripts/test.sh and .ci/run; may be run by hand.
#
#   scripts/setup.sh [--preset NAME] [--cuda] [--format] [--clang] [--packaging] [--keep-going] [--] [TARGET …]
#     --cuda: what a machine with an NVIDIA GPU needs, too: the CUDA libraries that LibTorch names (1.8 GB to fetch, 4 GB on disk)
#     --format: clang-format, too   --clang: clang, too   --packaging: what scripts/package.sh needs (scikit-build-core), too
#     --keep-going: build what can be built after an error
#
# Installs the Debian packages (when it may), unpacks LibTorch into a private Python environment and Apache Arrow beside it
# (for Parquet; without it the rest is built), configures the CMake preset (default: release) and builds the named targets
# (none named: configures only). Each part is skipped when done.
#
# Environment: RLALGO_DEPS_DIR   where LibTorch is unpacked (default ~/.cache/rlalgo)
#              RLALGO_TORCH_ROOT a LibTorch folder to use instead (CMAKE_PREFIX_PATH works too)
#              RLALGO_ARROW_ROOT a folder `pyarrow` to use instead of the one that is unpacked
#              RLALGO_JOBS       parallel compile jobs (default: processors, at most one per 2.5 GB of memory)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

torch_version=2.11.0
arrow_version=26.0.1
packages=(g++ cmake ninja-build ccache mold pkg-config python3 python3-venv python3-yaml python3-jsonschema pyflakes3 ca-certificates
  nlohmann-json3-dev libpcre2-dev libicu-dev libyaml-cpp-dev libcli11-dev libspdlog-dev
  libboost-dev libeigen3-dev librange-v3-dev libgloo-dev zlib1g-dev catch2 libbenchmark-dev)
# What stands for the packages on a system without dpkg.
tools=(g++ cmake ninja pkg-config python3)

preset=release
cuda=no
packaging=no
extra=()
keep_going=()
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=$2; shift 2 ;;
    --cuda) cuda=yes; shift ;;
    --format) extra+=(clang-format-14); shift ;;
    --clang) extra+=(clang-16); shift ;;
    --packaging) packaging=yes; shift ;;
    --keep-going) keep_going=(-k 0); shift ;;
    --) shift; break ;;
    -h | --help) sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "setup.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) break ;;
  esac
done
build=$root/build/$preset

say() { echo "[setup] $*" >&2; }
stop() { say "$*"; exit 1; }

# --- Debian packages -----------------------------------------------------------------------------------------------
missing_packages() {
  local state
  for package in "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || echo "$package"
  done
}

install_packages() {
  local missing=()
  if ! command -v dpkg-query >/dev/null; then
    for tool in "${tools[@]}"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    [ ${#missing[@]} = 0 ] && return
    stop "missing programs: ${missing[*]}. This script installs packages on Debian and Ubuntu only; install these," \
      "and what these Debian packages hold, with your system's package manager: $*"
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} = 0 ] && return
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      apt=(sudo -n "${apt[@]}")
    else
      say "missing Debian packages: ${missing[*]}"
      stop "not root and no passwordless sudo; as root run:  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    fi
  fi
  say "installing Debian packages: ${missing[*]}"
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the package lists at hand"
  "${apt[@]}" install --no-install-recommends "${missing[@]}" >&2 ||
    stop "apt-get could not install: ${missing[*]}. Check the network and /etc/apt/sources.list*, then run this again."
}

# --- LibTorch ------------------------------------------------------------------------------------------------------
given_torch() {
  [ -n "${RLALGO_TORCH_ROOT:-}" ] && return 0
  local IFS=':;' folder
  for folder in ${CMAKE_PREFIX_PATH:-}; do
    [ -e "$folder/include/ATen/core/Tensor.h" ] && return 0
  done
  return 1
}

torch_home=${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/libtorch-$torch_version

# pip writes a package's RECORD last, so its presence means that the package is whole.
unpacked_torch() {
  local records
  for package in "torch-$torch_version" nvidia_cuda_runtime-13 nvidia_cuda_cupti-13; do
    records=("$torch_home"/lib/python3*/site-packages/"$package"*.dist-info/RECORD)
    [ -e "${records[0]}" ] || return 1
  done
}

unpack_torch() {
  local home=$torch_home site
  say "unpacking LibTorch $torch_version from PyPI into $home (about 0.6 GB to fetch, 1.5 GB on disk)"
  mkdir -p "$home" || stop "cannot create $home; set RLALGO_DEPS_DIR to a folder that can be written"
  python3 -m venv "$home" || stop "python3 cannot make a virtual environment (Debian: python3-venv)"
  # The wheel's libtorch_cpu.so is linked against libcudart.so.13 and libcupti.so.13, GPU or not.
  "$home/bin/pip" install -q --no-cache-dir --no-deps --disable-pip-version-check \
    "torch==$torch_version" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*' >&2 ||
    stop "pip could not fetch torch $torch_version. Check the network, pip's configuration and the free disk space (df $home);" \
      "or unpack LibTorch $torch_version from pytorch.org yourself and set RLALGO_TORCH_ROOT to it."
  site=("$home"/lib/python3*/site-packages/torch)
  [ -e "${site[0]}/lib/libtorch_cpu.so" ] || stop "the torch wheel in $home holds no lib/libtorch_cpu.so"
}

# The CUDA libraries of the versions that the wheel's own metadata names, and of no others: libtorch_cuda.so is built with these.
cuda_requirements() {
  sed -n 's/^Requires-Dist: \(\(cuda-toolkit\|nvidia-\)[^;]*\);.*Linux.*/\1/p' "$torch_home"/lib/python3*/site-packages/torch-"$torch_version"*.dist-info/METADATA
}

unpack_cuda() {
  local wanted
  given_torch && stop "--cuda adds CUDA's libraries to the LibTorch that this script unpacks; RLALGO_TORCH_ROOT (or CMAKE_PREFIX_PATH) names" \
    "another one, which brings its own"
  wanted=$(cuda_requirements)
  [ -n "$wanted" ] || stop "the torch wheel in $torch_home names no CUDA libraries"
  [ "$(cat "$torch_home/cuda.stamp" 2>/dev/null)" = "$wanted" ] && return
  say "fetching the CUDA libraries of LibTorch $torch_version (about 1.8 GB to fetch, 4 GB on disk)"
  mapfile -t wanted <<<"$wanted"
  "$torch_home/bin/pip" install -q --no-cache-dir --disable-pip-version-check "${wanted[@]}" >&2 ||
    stop "pip could not fetch the CUDA libraries. Check the network, pip's configuration and the free disk space (df $torch_home)."
  printf '%s\n' "${wanted[@]}" >"$torch_home/cuda.stamp"
}

# Beside LibTorch, so that a wheel is made without the network from then on.
unpack_packaging() {
  local python=${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/packaging
  "$python/bin/python" -c 'import scikit_build_core, wheel' 2>/dev/null && return
  say "unpacking scikit-build-core into $python (1 MB)"
  python3 -m venv "$python" || stop "python3 cannot make a virtual environment (Debian: python3-venv)"
  "$python/bin/pip" install -q --no-cache-dir --disable-pip-version-check 'scikit-build-core>=1.1' wheel >&2 ||
    stop "pip could not fetch scikit-build-core and wheel. Check the network and pip's configuration."
}

# --- Arrow ---------------------------------------------------------------------------------------------------------
# Headers and the two libraries of the PyPI wheel pyarrow. Optional: without them Parquet and Arrow files cannot be read.
arrow_home=${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/arrow-$arrow_version
arrow_there() { [ -n "${RLALGO_ARROW_ROOT:-}" ] || [ -e "$arrow_home/pyarrow/include/arrow/api.h" ]; }

unpack_arrow() {
  local pip=$torch_home/bin/pip fresh=$arrow_home.$$
  say "unpacking Apache Arrow $arrow_version from PyPI into $arrow_home (about 50 MB to fetch, 80 MB on disk)"
  rm -rf "$fresh" && mkdir -p "$fresh" || return 1
  if [ ! -x "$pip" ]; then
    python3 -m venv "$fresh/venv" || return 1
    pip=$fresh/venv/bin/pip
  fi
  "$pip" install -q --no-cache-dir --no-deps --no-compile --disable-pip-version-check --target "$fresh/all" \
    "pyarrow==$arrow_version" >&2 || return 1
  mkdir "$fresh/pyarrow" &&
    mv "$fresh"/all/pyarrow/include "$fresh"/all/pyarrow/libarrow.so.* "$fresh"/all/pyarrow/libparquet.so.* \
      "$fresh"/all/pyarrow-*.dist-info "$fresh/pyarrow/" && rm -rf "$fresh/all" "$fresh/venv" "$arrow_home" &&
    mv "$fresh" "$arrow_home"
}

# --- Build ---------------------------------------------------------------------------------------------------------
jobs_by_memory() {
  local processors kilobytes limit
  processors=$(nproc)
  kilobytes=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  [ "$limit" != max ] && [ $((limit / 1024)) -lt "$kilobytes" ] && kilobytes=$((limit / 1024))
  local jobs=$((kilobytes / 2621440))
  [ "$jobs" -lt 1 ] && jobs=1
  [ "$jobs" -gt "$processors" ] && jobs=$processors
  echo "$jobs"
}

# The stamp names everything the first two parts depend on; while it stands, they are not repeated.
stamp=$build/setup.stamp
facts="$(printf '%s\n' "${packages[@]}" "${RLALGO_DEPS_DIR:-}" "${RLALGO_TORCH_ROOT:-}" "${RLALGO_ARROW_ROOT:-}" "${CMAKE_PREFIX_PATH:-}" | sort)"
torch_there() { given_torch || unpacked_torch; }
if [ "$(cat "$stamp" 2>/dev/null)" != "$facts" ] || ! torch_there || ! { arrow_there || [ -e "$build/no-arrow" ]; }; then
  install_packages "${packages[@]}"
  torch_there || unpack_torch
  mkdir -p "$build"
  rm -f "$build/no-arrow"
  arrow_there || unpack_arrow || {
    rm -rf "$arrow_home.$$"
    touch "$build/no-arrow"
    say "Apache Arrow could not be fetched: Parquet and Arrow files will not be readable. To try again: rm $build/no-arrow"
  }
  rm -f "$build/CMakeCache.txt" "$build/build.ninja"  # they may name a LibTorch that is no longer meant
  printf '%s\n' "$facts" >"$stamp"
fi
if [ "$cuda" = yes ]; then unpack_cuda; fi
if [ "$packaging" = yes ]; then unpack_packaging; fi
if [ ${#extra[@]} -gt 0 ]; then install_packages "${extra[@]}"; fi
if [ ! -e "$build/build.ninja" ]; then
  cmake --preset "$preset" >"$build/configure.log" 2>&1 || {
    cat "$build/configure.log" >&2
    rm -f "$build/build.ninja"
    stop "CMake could not configure (log: $build/configure.log)"
  }
fi
# Looks for new source files, so that their targets exist before they are named.
cmake --build "$build" --target build.ninja >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log" >&2
  stop "CMake could not configure (log: $build/configure.log)"
}
if [ $# -gt 0 ]; then
  cmake --build "$build" -j "${RLALGO_JOBS:-$(jobs_by_memory)}" --target "$@" -- "${keep_going[@]}" >&2 ||
    stop "the build of $* failed; the first error is above"
fi
