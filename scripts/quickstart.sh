#!/usr/bin/env bash
# Builds rlalgo, trains GRPO on the small model of examples/quickstart and shows what it learned.
#
#   scripts/quickstart.sh [--key value …]     overrides for examples/quickstart/config.yaml, --max-steps 20 for example
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

case ${1:-} in -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

scripts/setup.sh -- rlalgo
rlalgo=build/release/bin/rlalgo
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
