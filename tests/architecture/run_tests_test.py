"""The counting of scripts/run_tests.py on outputs as Catch2 and the line protocol print them."""

import importlib.util
import pathlib
import sys

PATH = pathlib.Path(__file__).resolve().parents[2] / "scripts/run_tests.py"
spec = importlib.util.spec_from_file_location("run_tests", PATH)
run_tests = importlib.util.module_from_spec(spec)
sys.modules["run_tests"] = run_tests
spec.loader.exec_module(run_tests)

RULE = "=" * 79
CASES = [
    ("catch: all pass", run_tests.count_catch, f"{RULE}\nAll tests passed (1 assertion in 1 test case)\n", 0, (1, 0)),
    ("catch: many pass", run_tests.count_catch, f"{RULE}\nAll tests passed (40 assertions in 23 test cases)\n", 0, (23, 0)),
    ("catch: some fail", run_tests.count_catch, f"{RULE}\ntest cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n", 2, (3, 2)),
    ("catch: only failures", run_tests.count_catch, f"{RULE}\ntest cases: 1 | 1 failed\nassertions: 1 | 1 failed\n", 1, (0, 1)),
    ("catch: killed before the summary", run_tests.count_catch, "starting\n", -11, (0, 1)),
    ("catch: passes, then dies while ending", run_tests.count_catch, "All tests passed (2 assertions in 2 test cases)\n", -6, (0, 1)),
    ("lines: pass and fail", run_tests.count_lines, "ok a\nnoise ok b\nFAIL c: why\n  ok d\n", 1, (1, 1)),
    ("catch: not run is not passed", run_tests.count_catch, f"not run a: no Gloo\npartly run b: no AMX\n{RULE}\nAll tests passed (4 assertions in 3 test cases)\n", 0, (2, 0)),
    ("catch: not run, and some fail", run_tests.count_catch, f"not run a: no Gloo\n{RULE}\ntest cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n", 2, (2, 2)),
    ("not run, by name and reason", lambda text, _: run_tests.not_run(text), "ok a\nnot run b: no chromium\n not run c\npartly run d: no AMX\n", 0, ["not run b: no chromium", "partly run d: no AMX"]),
    ("lines: not run is no test", run_tests.count_lines, "ok a\nnot run b: no chromium\n", 0, (1, 0)),
    ("lines: dies without saying", run_tests.count_lines, "ok a\nTraceback\n", 1, (1, 1)),
]

bad = 0
for name, count, text, status, expected in CASES:
    found = count(text, status)
    bad += found != expected
    print(f"ok {name}" if found == expected else f"FAIL {name}: {found}, expected {expected}")
sys.exit(1 if bad else 0)
