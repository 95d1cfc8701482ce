#!/usr/bin/env bash
# Trains GRPO on the small model of examples/quickstart and shows what it learned.
#
#   scripts/quickstart.sh [--from-source] [--key value …]     overrides for examples/quickstart/config.yaml, --max-steps 20 for example
#
# The program is, in this order: `rlalgo` on PATH, what build/release holds, a tarball or a wheel in dist/, if it was built from these
# sources; else it is built here, which is said beforehand with time and disk space. --from-source builds it in any case.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

from_source=no
case ${1:-} in
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --from-source) from_source=yes; shift ;;
esac
say() { echo "[quickstart] $*" >&2; }

# A program fits if nothing that it is compiled from has changed since the commit that it names.
sources=(include examples/rlalgo cmake plugins CMakeLists.txt python)
fits() { # PROGRAM
  local commit
  commit=$("$1" version 2>/dev/null | sed -n 's/^  commit \([0-9a-f]*\)$/\1/p') || return 1
  [ -n "$commit" ] && git diff --quiet "$commit" -- "${sources[@]}" 2>/dev/null
}
# Of one that lies in the build folder, what is compiled says so itself: the program is newer than every source.
current_build() {
  [ -x build/release/bin/rlalgo ] && [ -z "$(find include examples/rlalgo cmake plugins CMakeLists.txt -type f -newer build/release/bin/rlalgo -print -quit)" ] &&
    build/release/bin/rlalgo version >/dev/null 2>&1
}
unpacked_tarball() {
  local file place=build/unpacked
  file=$(compgen -G 'dist/rlalgo-*.tar.gz' | tail -1) || return 1
  if [ ! "$place/from" -nt "$file" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    tar -xzf "$file" -C "$place" --strip-components=1 && touch "$place/from" || return 1
  fi
  rlalgo=$root/$place/bin/rlalgo
  fits "$rlalgo"
}
# A wheel needs a torch; it is not downloaded here.
unpacked_wheel() {
  local file torch place=build/unpacked-wheel
  file=$(compgen -G 'dist/rlalgo-*.whl' | tail -1) || return 1
  torch=$(compgen -G "${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/libtorch-*/lib/python3*/site-packages/torch" | tail -1) ||
    torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) || return 1
  if [ ! "$place/from" -nt "$file" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    python3 -m zipfile -e "$file" "$place" && chmod +x "$place/rlalgo/bin/rlalgo" && ln -s "$torch" "$place/torch" && touch "$place/from" || return 1
  fi
  rlalgo=$root/$place/rlalgo/bin/rlalgo
  fits "$rlalgo"
}
# About as long as it takes: 15 minutes of one processor; fewer processors may compile at once where memory is short (2.5 GB each).
built() {
  local jobs minutes torch=""
  jobs=${RLALGO_JOBS:-$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) / 2621440))}
  [ "$jobs" -gt "$(nproc)" ] && jobs=$(nproc)
  [ "$jobs" -lt 1 ] && jobs=1
  minutes=$(((15 + jobs - 1) / jobs + 1))
  compgen -G "${RLALGO_DEPS_DIR:-$HOME/.cache/rlalgo}/libtorch-*/lib/python3*/site-packages/torch" >/dev/null || torch=", after a download of 0.6 GB (LibTorch, 1.5 GB on disk)"
  if [ ! -x build/release/bin/rlalgo ]; then
    say "building the program: about $minutes minutes with $jobs of $(nproc) processors, 0.5 GB on disk$torch; once, and a few seconds where ccache has it"
    say "(quicker: a wheel or a tarball of scripts/package.sh in dist/, or rlalgo installed)"
  fi
  scripts/setup.sh -- rlalgo
  rlalgo=$root/build/release/bin/rlalgo
}

rlalgo=$(command -v rlalgo || true)
if [ "$from_source" = yes ]; then built
elif [ -n "$rlalgo" ] && fits "$rlalgo"; then say "with $rlalgo"
elif current_build; then rlalgo=$root/build/release/bin/rlalgo; say "with $rlalgo"
elif unpacked_tarball || unpacked_wheel; then say "with $rlalgo, from dist/"
else built; fi
config=examples/quickstart/config.yaml
question=$(sed -n '7s/.*"question":"\([^"]*\)".*/\1/p' examples/quickstart/data/test.jsonl)
answer() { # MODEL_DIR
  printf '%s' "$question" | "$rlalgo" inference "$1" --chat --temperature 1 --top-p 1 --top-k 0 --repetition-penalty 1 \
    --max-new-tokens 32 --seed 1 | sed 's/^/    /'
}

before=$(answer examples/quickstart/model)
"$rlalgo" train "$config" "$@"
output=$(python3 - "$config" "$@" <<'PY'
import re, sys
value = re.search(r"^output_dir:\s*(\S+)", open(sys.argv[1]).read(), re.M).group(1)
for i, word in enumerate(sys.argv[2:], 2):
    name, given, rest = word.partition("=")
    if name.replace("_", "-") == "--output-dir":
        value = rest if given else sys.argv[i + 1]
print(value)
PY
)
after=$(answer "$output")

python3 - "$output" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
name, held_out = "rewards/gsm8k_accuracy/mean", "eval_rewards/gsm8k_accuracy/mean"
train = [r[name] for r in records if name in r]
test = [r[held_out] for r in records if held_out in r]
seconds = sum(r.get("time/step", 0) for r in records)
print(f"\ncorrect answers while training: {train[0]:.0%} at the first step, {train[-1]:.0%} at the last, in {seconds:.0f} s of steps")
if test:
    print(f"correct answers on held-out problems: {test[0]:.0%} before, {test[-1]:.0%} after")
PY
printf '\nquestion\n    %s\nanswer before training\n%s\nanswer after training\n%s\n' "$question" "$before" "$after"
printf '\nreport:  %s\nmodel:   %s\n' "$root/$output/report.html" "$root/$output"
