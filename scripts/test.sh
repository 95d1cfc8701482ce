#!/usr/bin/env bash
# Builds and runs the tests; the last line is `N passed, N failed`.
#
#   scripts/test.sh [--force] [--preset NAME] [NAME …]
#
# NAME: a room (core, loss, …), cli, compile_fail, consumer, python or architecture; none = all. Programs that passed and have
# not changed since are not run again unless --force is given.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

preset=release
options=()
names=()
while [ $# -gt 0 ]; do
  case $1 in
    --force) options+=(--force); shift ;;
    --preset) preset=$2; shift 2 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "test.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done

"$root/scripts/setup.sh" --preset "$preset"
targets=$(python3 "$root/scripts/run_tests.py" "$root/build/$preset" --targets "${names[@]}")
# shellcheck disable=SC2086  # one word per target
if [ -n "$targets" ] && ! "$root/scripts/setup.sh" --preset "$preset" --keep-going -- $targets; then
  options+=(--check-built)  # the runner counts what could not be built as failed
fi
exec python3 "$root/scripts/run_tests.py" "$root/build/$preset" "${options[@]}" "${names[@]}"
