"""benchmarks/compare/: turns, spread, the checks that must fail on different work, the table of benchmarks/measurements.md, both ends of
a worker, and that the scripts start."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks/compare"
sys.path[:0] = [str(FOLDER), str(ROOT / "benchmarks/distributed")]
import compare  # noqa: E402
import decode  # noqa: E402
import growth  # noqa: E402
import rewards  # noqa: E402
import shapes  # noqa: E402
import step_profile  # noqa: E402
import trl_dpo  # noqa: E402
import trl_steps  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def refused(kind, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except kind as error:
        return str(error)
    raise AssertionError("it did not refuse")


def cells(what="a step", ours="1 s", date="2026-11-23"):
    return ["trl_dpo.py", what, "float32", "2", ours, "3 s", "3.0", "3.1", "≥ 3: met", "8 tokens", "0.1", "trl 1", date]


@case
def turns_alternate_and_keep_the_pairs():
    said = []
    sides = [lambda name=name: said.append(name) or len(said) for name in "ot"]
    ours, theirs = compare.interleaved(*sides, 3)
    assert "".join(said) == "ottoot" and ours == [1, 4, 5] and theirs == [2, 3, 6], said


@case
def a_ratio_is_of_each_repeat():
    ratio = compare.times_as_fast([1.0, 2.0, 4.0], [3.0, 3.0, 3.0], more_is_better=False)
    assert (ratio.least, ratio.median, ratio.most) == (0.75, 1.5, 3.0)
    rates = compare.times_as_fast([10, 30], [5, 10], more_is_better=True)
    assert (rates.least, rates.most, rates.count) == (2.0, 3.0, 2)
    refused(ValueError, compare.times_as_fast, [1.0], [1.0, 2.0], True)
    refused(ValueError, compare.Spread.of, [])


@case
def figures_have_three_digits():
    assert [compare.figure(x) for x in (0.0123456, 4.5678, 123.4, 4567.8, 0.0)] == ["0.0123", "4.57", "123", "4,568", "0"]
    assert str(compare.Spread.of([1, 2, 3])) == "2.00 (1.00–3.00)" and str(compare.Spread.of([2])) == "2.00"


@case
def different_work_is_refused():
    compare.same("tokens", 5, 5)
    assert "ours 5, the peer's 6" in refused(compare.Different, compare.same, "tokens", 5, 6)
    assert compare.close("loss", 1.0, 1.001, relative=0.01) < 0.0011
    for ours, theirs in ((1.0, 1.1), (float("nan"), 1.0), (float("inf"), float("inf")), (1.0, float("nan"))):
        assert "loss" in refused(compare.Different, compare.close, "loss", ours, theirs, relative=0.01)
    same = {"loss": 0.69315, "grad_norm": 12.0}
    assert "loss 0.6932" in trl_steps.check(same, dict(same), "float32", ("loss", "grad_norm"))
    for name, off in (("loss", 0.001), ("grad_norm", 0.1)):
        assert name in refused(compare.Different, trl_steps.check, same, {**same, name: same[name] + off}, "float32", ("loss", "grad_norm"))


@case
def greedy_texts_may_part_only_at_a_tie():
    asked = [[1, 2], [3, 4]]
    seen = []

    def margin(gap):
        return lambda ids, a, b: seen.append((ids, a, b)) or gap
    assert decode.check_texts(asked, [[5, 6], [7, 8]], [[5, 6], [7, 8]], margin(9), 1e-3) == "2 of 2 greedy texts equal" and not seen
    said = decode.check_texts(asked, [[5, 6], [7, 8]], [[5, 6], [7, 9]], margin(1e-4), 1e-3)
    assert said.startswith("1 of 2") and seen == [([3, 4, 7], 8, 9)], (said, seen)
    assert decode.check_texts(asked, [[5, 6], [7, 8]], [[5, 6], [7, 9]], margin(-1e-4), 1e-3).startswith("1 of 2")  # its own rounding
    for gap in (0.01, -0.01, math.nan):
        assert "part at token 1" in refused(compare.Different, decode.check_texts, asked, [[5, 6], [7, 8]], [[5, 6], [7, 9]], margin(gap), 1e-3)
    assert "numbers of tokens" in refused(compare.Different, decode.check_texts, asked, [[5], [7, 8]], [[5, 6], [7, 8]], margin(0), 1)
    # In bfloat16 the peer may be far from float32's token, if ours is that to rounding.
    def ahead(nats):
        return lambda ids, token: seen.append((ids, token)) or nats
    for nats in (0.0, 0.07):
        said = decode.check_texts(asked, [[5, 6], [7, 8]], [[5, 6], [7, 9]], margin(1e9), 1, ahead(nats))
        assert said == "1 of 2 greedy texts equal, 1 where ours is float32's token to 0.25 nats and the peer's logits are not", said
        assert seen[-1] == ([3, 4, 7], 8), seen
    for nats in (0.3, 20.0, math.nan):
        assert "part at token 1" in refused(compare.Different, decode.check_texts, asked, [[5, 6], [7, 8]], [[5, 6], [7, 9]], margin(1e9), 1, ahead(nats))


@case
def the_table_replaces_rows_and_keeps_others():
    text = f"# Performance\n\n{compare.PEERS.begin}\n{compare.PEERS.end}\n\nafter\n"
    one = compare.with_rows(text, "machine A", [cells(), cells("another")])
    assert one.startswith("# Performance\n") and one.endswith("\n\nafter\n") and one.count("\n| trl_dpo.py") == 2
    two = compare.with_rows(one, "machine B", [cells(ours="2 s")])
    three = compare.with_rows(two, "machine A", [cells(ours="5 s", date="2026-11-24")])
    assert three.count("\n| trl_dpo.py") == 3 and "| 5 s |" in three and "| 2 s |" in three and "| 1 s |" in three
    assert three.index("**machine A**") < three.index("5 s") < three.index("another") < three.index("**machine B**") < three.index("2 s")
    assert compare.with_rows(three, "machine A", [cells(ours="5 s", date="2026-11-24")]) == three  # again is the same
    refused(ValueError, compare.with_rows, "no markers", "m", [])
    refused(ValueError, compare.with_rows, f"{compare.PEERS.end}{compare.PEERS.begin}", "m", [])
    assert "only tables" in refused(ValueError, compare.with_rows, f"{compare.PEERS.begin}\na sentence\n{compare.PEERS.end}", "m", [])
    refused(ValueError, compare.with_rows, text, "m", [cells("a | b")])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "performance.md")
        path.write_text(text)
        compare.write_table(path, "machine A", [cells(), cells("another")])
        assert path.read_text() == one and os.listdir(folder) == ["performance.md"]


@case
def the_document_has_the_markers():
    text = (ROOT / "benchmarks/measurements.md").read_text()
    assert compare.with_rows(text, "machine", [cells()]).count("| trl_dpo.py | a step |") == 1


@case
def a_row_says_whether_its_goal_was_met():
    spread = compare.Spread.of
    row = compare.Row("x.py", "what", "float32", 2, spread([1, 2, 3]), spread([4, 6, 8]), spread([2.5, 3, 3.5]), spread([5]), "s", goal=3, notes=("1 GB", "2 GB"))
    assert row.cells("d")[4:9] == ["2.00 (1.00–3.00) s, 1 GB", "6.00 (4.00–8.00) s, 2 GB", "3.00 (2.50–3.50)", "5.00", "≥ 3: met"]
    row.goal = 3.01
    assert row.cells("d")[8] == "≥ 3.01: missed"
    row.goal = 0
    assert row.cells("d")[8] == "–"
    assert len(compare.failure_cells("x.py", "w", "f", 1, "no | such\nlibrary")) == len(compare.PEERS.columns)
    compare.line_of(compare.failure_cells("x.py", "w", "f", 1, "no | such\nlibrary"))


@case
def bfloat16_only_where_the_processor_has_it():
    info = "model name\t: X\nflags\t\t: fpu avx2 {}\n"
    for flag, expected in (("avx512f", ["float32"]), ("avx512_bf16", ["float32", "bfloat16"]), ("amx_bf16", ["float32", "bfloat16"])):
        assert compare.dtypes("auto", compare.processor_flags(info.format(flag))) == expected
    assert compare.dtypes("bfloat16", set()) == ["bfloat16"]


WORKER = """
import sys
sys.path.insert(0, {folder!r})
import compare
wire = compare.Wire()
print("noise on standard output")
if {broken}:
    raise SystemExit("no such library")
wire.send(versions="peer 1")
for asked in wire.requests():
    if asked.get("refuse"):
        wire.send(error="cannot")
    elif asked.get("hang"):
        import time
        time.sleep(60)
    else:
        wire.send(twice=2 * asked["x"])
"""


@case
def a_worker_answers_and_says_why_it_does_not():
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "worker.py")
        script.write_text(WORKER.format(folder=str(FOLDER), broken=False))
        with compare.Worker(script, sys.executable, 1, timeout=30) as worker:
            assert worker.hello == {"versions": "peer 1"} and worker.ask(x=4)["twice"] == 8 and worker.ask(x=4)["processor"] >= 0
            assert refused(compare.PeerFailed, worker.ask, refuse=True) == "cannot"
            worker.timeout = 0.2
            assert "no answer within 0.2 s" in refused(compare.PeerFailed, worker.ask, hang=True)
            os.killpg(worker.process.pid, 9)
        script.write_text(WORKER.format(folder=str(FOLDER), broken=True))
        assert "no such library" in refused(compare.PeerFailed, compare.Worker, script, sys.executable, 1, timeout=30)


@case
def a_failed_program_says_what_it_said():
    assert "status 3\nwhy" in refused(RuntimeError, compare.run_ours, "sh", ["-c", "echo why >&2; exit 3"], 1)
    ran = compare.run_ours("sh", ["-c", "echo $OMP_NUM_THREADS; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"], 7)
    assert ran.out == "7\n" and ran.seconds > 0 and ran.peak > 1e5 and 0 < ran.processor < 60
    assert "status -9" in refused(RuntimeError, compare.run_ours, "sleep", ["30"], 1, timeout=0.2)
    with compare.Lines("cat", [], 1) as lines:
        assert lines.ask([{"a": 1}, {"b": 2}]) == [{"a": 1}, {"b": 2}]
    with compare.Lines("sh", ["-c", "read x; echo $x; echo gone >&2"], 1) as lines:
        assert "1 answers of 2: gone" in refused(RuntimeError, lines.ask, [{"a": 1}, {"b": 2}])


@case
def a_copy_of_a_checkpoint_ends_at_another_token():
    source = ROOT / "examples/quickstart/model"
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(compare.without_end(source, pathlib.Path(folder, "copy")))
        before, after = (json.loads((d / "config.json").read_text()) for d in (source, made))
        assert after["eos_token_id"] != before["eos_token_id"] and {**after, "eos_token_id": 0} == {**before, "eos_token_id": 0}
        named = json.loads((made / "tokenizer_config.json").read_text())["eos_token"]
        added = json.loads((source / "tokenizer.json").read_text())["added_tokens"]
        assert [t["id"] for t in added if t["content"] == named] == [after["eos_token_id"]]
        assert (made / "model.safetensors").resolve() == source / "model.safetensors"
        bare = pathlib.Path(decode.without_tokenizer(source, pathlib.Path(folder, "bare")))
        assert sorted(os.listdir(bare)) == ["config.json", "model.safetensors"] and json.loads((bare / "config.json").read_text())["eos_token_id"] is None
        assert decode.stored_dtype(bare) == "bfloat16"


@case
def the_reward_keeps_what_it_saw():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record")
        assert rewards.even_ids(["p", "p"], [[2, 3, 4, 5], [1]], record=path) == [0.5, 0.0]
        assert json.loads(open(path).read()) == [{"prompt": "p", "ids": [2, 3, 4, 5]}, {"prompt": "p", "ids": [1]}]
    assert trl_steps.name_of("/a/SmolLM2") == "SmolLM2" and trl_steps.name_of("/a/quickstart/model") == "quickstart"
    made = trl_dpo.pairs([{"question": q, "answer": a} for q, a in (("Q1", "A1"), ("Q2", "A2"), ("Q3", "A3"))])
    assert made == [{"prompt": "Q1\n", "chosen": "A1", "rejected": "A2"}, {"prompt": "Q2\n", "chosen": "A2", "rejected": "A3"}]


@case
def the_fitted_exponent_is_that_of_the_power():
    slope, factor = growth.fit([1, 2, 4, 8], [3, 3 * 2**1.5, 3 * 4**1.5, 3 * 8**1.5])
    assert abs(slope - 1.5) < 1e-12 and abs(factor - 3) < 1e-12
    refused(ValueError, growth.fit, [1], [1])


@case
def random_weights_have_the_shape_of_the_configuration():
    with tempfile.TemporaryDirectory() as folder:
        shape = shapes.Model(layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2, vocab=1000, tied=True)
        made = growth.make_model(pathlib.Path(folder, "m"), shape, seed=1)
        again = growth.make_model(pathlib.Path(folder, "n"), shape, seed=1)
        data = pathlib.Path(made, "model.safetensors").read_bytes()
        assert data == pathlib.Path(again, "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        count = sum(t["shape"][0] * (t["shape"] + [1])[1] for t in header.values() if "shape" in t)
        assert count == shape.parameters and max(t["data_offsets"][1] for t in header.values() if "shape" in t) == len(data) - 8 - size
        assert json.loads(pathlib.Path(made, "config.json").read_text())["vocab_size"] == 1000


@case
def samples_of_a_profile_fall_into_one_class_each():
    perf = "\n".join(["libtorch_cpu.so;mkl_blas_avx2_sgemm_kernel_0 60", "libc.so.6;__memcpy_avx_unaligned_erms 5", "libc.so.6;_int_malloc 3",
                      "libtorch_cpu.so;at::native::(anonymous namespace)::softmax_kernel 2", "[kernel.kallsyms];clear_page_erms 10", "rlalgo;nobody_knows 20"])
    shares = step_profile.shares(step_profile.parse(perf))
    assert abs(sum(shares.values()) - 1) < 1e-12 and shares["matrix products"] == 0.6 and shares["other"] == 0.2, shares
    assert shares["memory: malloc, free"] == 0.03 and shares["kernel: pages, system calls"] == 0.1, shares


@case
def the_scripts_start_without_any_peer():
    for name in ("trl_grpo", "trl_dpo", "transformers_generate", "vllm_decode", "tokenizers_text", "peft_load", "growth", "step_profile"):
        done = subprocess.run([sys.executable, "-B", FOLDER / f"{name}.py", "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and "--table" in done.stdout, (name, done.stderr)


failed = 0
for name, function in CASES.items():
    try:
        function()
        print(f"ok {name}")
    except Exception:
        failed += 1
        print(f"FAIL {name} {' | '.join(traceback.format_exc().splitlines())[-1500:]}")
sys.exit(1 if failed else 0)
