"""Runs one lesson as its comment says, on the quickstart's model, and prints `ok NAME` or `FAIL NAME: why`.

    run_lesson.py PROGRAM

A lesson that takes longer than a test may is interrupted once it has made three steps: it must then save and end with 130.
"""

import pathlib
import signal
import subprocess
import sys

QUICKSTART = pathlib.Path(__file__).resolve().parents[2] / "examples/quickstart"
MODEL = QUICKSTART / "model"
# Lesson → (arguments, what it must print, whether it is interrupted)
LESSONS = {
    "example_01_bandit": ([], "probability of the best machine: 0.9", False),
    "example_02_custom_reward": ([MODEL, QUICKSTART / "data/train.jsonl"], "step 30/30", False),
    "example_03_grpo_from_code": ([MODEL], "step 30/30", False),
    "example_04_dpo_from_code": ([MODEL], "step 20/20", False),
    "example_05_environment": ([MODEL], "step 3/60", True),  # 70 s to its end
    "example_06_ebft_features": ([MODEL], "whitened alignment", False),
    "example_07_serve": ([MODEL], "status 400", False),
    "example_08_async": ([MODEL], "step 20/20", False),
    "example_09_ranks": ([MODEL], "of one rank and of two differ", False),
    "example_10_sharded": ([MODEL], "held by one rank and by two differ", False),
}


def main():
    program = pathlib.Path(sys.argv[1])
    if program.name not in LESSONS:
        print(f"FAIL {program.name}: tests/support/run_lesson.py does not know how to run it")
        return 1
    arguments, expected, interrupted = LESSONS[program.name]
    run = subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = ""
    for line in run.stdout:
        text += line
        if interrupted and line.startswith("step 3/"):
            run.send_signal(signal.SIGINT)
    status = run.wait(timeout=60)
    if status != (130 if interrupted else 0) or expected not in text:
        print(f"FAIL {program.name}: exit status {status}\n{text[-2000:]}")
        return 1
    print(f"ok {program.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
