#!/usr/bin/env bash
# Checks rlalgo on this machine's GPU: versions, its kernels, the CPU's numbers, resume, a server, memory that is used up; then timings, beside
# transformers and TRL where this machine's python3 has them; then two ranks on one card, and the kernels under compute-sanitizer.
#
#   scripts/device_check.sh [--device cuda|cpu] [--out DIR] [--only checks|timings|ranks|sanitizers|PART,…] [--archive build/device.tar.xz]
#
# From a checkout with a built program, from the unpacked archive of scripts/device_pack.sh, or with --archive, which is
# unpacked first. It builds nothing and takes at most 8 minutes; every part has its own time limit, prints its result when
# it is there, and all of them stand in DIR/device.json and DIR/device.md (default: device-check). With --device cpu the
# parts run without a GPU: that they run is all that shows.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
archive=
rest=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --archive) archive=$2; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
if [ -n "$archive" ]; then
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  # Python unpacks it where there is no xz.
  if command -v xz >/dev/null; then tar -C "$place" -xJf "$archive"; else python3 -m tarfile -e "$archive" "$place"; fi
  here=$place/device
fi
if [ -x "$here/rlalgo" ]; then
  program=$here/rlalgo data=$here/quickstart kernels=$here/test_cuda_device head=$here/bench_device_log_prob_head
  # The PyTorch of this machine's python3 is the LibTorch.
  torch=$(python3 -c 'import importlib.util, pathlib
spec = importlib.util.find_spec("torch")
print(pathlib.Path(spec.origin).parent / "lib" if spec else "")')
  [ -n "$torch" ] || { echo "device_check.sh: $(command -v python3) has no torch: install PyTorch 2.11, or put a Python that has it first on PATH" >&2; exit 1; }
  export LD_LIBRARY_PATH=$torch:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  program=$here/../build/release/bin/rlalgo data=$here/../examples/quickstart
  kernels=$here/../build/cuda/bin/test_cuda_device  # scripts/setup.sh --preset cuda -- test_cuda_device
  head=$here/../build/benchmark/bin/bench_device_log_prob_head  # scripts/setup.sh --preset benchmark -- bench_device_log_prob_head
  [ -x "$program" ] || { echo "device_check.sh: build the program first: scripts/setup.sh -- rlalgo" >&2; exit 1; }
fi
python3 "$here/device_check.py" --rlalgo "$program" --data "$data" --kernels "$kernels" --head "$head" ${rest[@]+"${rest[@]}"}
