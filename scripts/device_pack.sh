#!/usr/bin/env bash
# Makes the one archive that scripts/device_check.sh needs on a machine with a GPU, where nothing can be built or fetched:
# the program (stripped), a benchmark of the log-prob head and, where nvcc is here, the tests of the kernels; the libraries
# that it needs beside LibTorch, a small model, its data and the check itself.
#
#   scripts/device_pack.sh [ARCHIVE]     default: build/device.tar.xz; ends with its size, which must be 60 MB at most
#
# LibTorch does not travel: the check takes the PyTorch 2.11 that the machine's python3 has.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
case ${1:-} in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
archive=$(realpath -m "${1:-build/device.tar.xz}")

scripts/setup.sh -- rlalgo
program=build/release/bin/rlalgo
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/device/lib" "$work/device/quickstart" "$(dirname "$archive")"
strip -o "$work/device/rlalgo" "$program"
if command -v nvcc >/dev/null; then
  scripts/setup.sh --preset cuda -- test_cuda_device
  strip -o "$work/device/test_cuda_device" build/cuda/bin/test_cuda_device
else
  echo "device_pack.sh: no nvcc here; the archive has no kernels" >&2
fi
scripts/setup.sh --preset benchmark -- bench_device_log_prob_head
strip -o "$work/device/bench_device_log_prob_head" build/benchmark/bin/bench_device_log_prob_head
# Debian's libraries; LibTorch's and the C library's are the machine's own.
ldd "$program" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|torch|torch_cpu|c10|cudart|cupti|gomp)[.-]/ {print $3}' |
  while read -r library; do cp -L "$library" "$work/device/lib/"; done
cp -r examples/quickstart/model examples/quickstart/data "$work/device/quickstart/"
cp scripts/device_check.py scripts/device_parts.py scripts/device_timings.py scripts/device_check.sh "$work/device/"
git rev-parse HEAD >"$work/device/commit"
tar -C "$work" -cJf "$archive" device
size=$(stat -c %s "$archive")
echo "$archive: $((size / 1000000)) MB ($(ls "$work/device/lib" | tr '\n' ' '))"
[ "$size" -le 60000000 ] || { echo "device_pack.sh: the archive is larger than 60 MB" >&2; exit 1; }
