#!/usr/bin/env bash
# Formats the C++ and CUDA sources in place; --check only reports what is not formatted, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || {
  echo "clang-format is missing (Debian: clang-format-14)" >&2
  exit 1
}
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror --ferror-limit=3)
find include tests examples benchmarks plugins \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 "$tool" "${mode[@]}"
