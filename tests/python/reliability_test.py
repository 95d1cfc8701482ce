"""scripts/reliability.py: its reader of events, what it compares, when it kills; its faults are described and are as many as it says."""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import reliability  # noqa: E402
import reliability_asynchronous  # noqa: E402
import reliability_faults  # noqa: E402
import reliability_ranks  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def refused(function, *arguments):
    try:
        function(*arguments)
    except AssertionError as error:
        return str(error)
    raise AssertionError("it did not refuse")


def framed(body):
    size = struct.pack("<Q", len(body))
    return size + struct.pack("<I", reliability.masked_crc(size)) + body + struct.pack("<I", reliability.masked_crc(body))


def event(step, field, content, wall=1e9):
    def varint(n):
        out = b""
        while n >= 128:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    return framed(b"\x09" + struct.pack("<d", wall) + b"\x10" + varint(step) + bytes([field << 3 | 2]) + varint(len(content)) + content)


def scalar(tag, value):
    entry = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    return b"\x0a" + bytes([len(entry)]) + entry


@case
def the_checksum_is_crc_32c():
    assert reliability.crc32c(b"123456789") == 0xE3069283
    assert reliability.crc32c(b"\0" * 32) == 0x8A9136AA


@case
def events_are_read_without_their_times():
    data = event(0, 3, b"brain.Event:2") + event(0, 7, b"\x08\x01") + event(300, 5, scalar("train/loss", 0.5) + scalar("eval/x", -1.25))
    expected = [["version", "brain.Event:2"], ["start"], ["train/loss", 300, 0.5], ["eval/x", 300, -1.25]]
    assert reliability.events(data) == expected
    assert reliability.events(data.replace(struct.pack("<d", 1e9), struct.pack("<d", 1e9))) == expected
    assert "damaged" in refused(reliability.events, data[:-1] + b"\0")
    assert "damaged" in refused(reliability.events, data[:20] + bytes([data[20] ^ 1]) + data[21:])


@case
def seconds_and_ids_may_differ_and_nothing_else():
    assert [name for name in ("time/step", "memory/max_active (GiB)", "train/mfu", "times", "loss", "async/time/") if reliability.is_measured(name)] == \
        ["time/step", "memory/max_active (GiB)", "train/mfu"]
    line = '{"step": 1, "epoch": 0.5, "loss": 0.25, "time/step": %s, "time/a b": 1e-05}\n'
    assert reliability.without_times(line % "0.125") == reliability.without_times(line % "7.5e-3")
    assert reliability.without_times(line % "1") != reliability.without_times((line % "1").replace("0.25", "0.250"))

    def output(folder, loss="0.25", seconds="1.0", run="a", started="now", wall=1e9, extra=""):
        out = pathlib.Path(folder)
        (out / "runs/20260101-000000").mkdir(parents=True)
        (out / "checkpoint-2").mkdir()
        (out / "metrics.jsonl").write_text(f'{{"step": 1, "loss": {loss}, "time/step": {seconds}, "memory/max_allocated (GiB)": {seconds}}}\n')
        (out / "samples.jsonl").write_text("{}\n")
        (out / "report.html").write_text(f"{started}</html>")
        (out / "run.json").write_text(json.dumps({"id": run, "started": started, "status": "finished"}))
        (out / "checkpoint-2/rlalgo_state.json").write_text(json.dumps(
            {"run": run, "window": {"entries": [["time/step", float(seconds), 1], ["memory/max_allocated (GiB)", float(seconds), 0], ["loss", 1, 1]]},
             "files": {"trainer_state.json": run, "model.safetensors": "x" + extra}}))
        (out / f"runs/20260101-000000/events.out.tfevents.{wall}").write_bytes(
            event(1, 5, scalar("train/loss", 0.25), wall) + event(1, 5, scalar("train/time/step", float(seconds)), wall) +
            event(1, 5, scalar("train/memory/max_allocated (GiB)", float(seconds)), wall))
        return reliability.comparable(out)

    def compared(**other):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            return reliability.differences(output(one), output(two, **other))

    assert compared(seconds="2.0", run="b", started="later", wall=2e9) == []
    assert compared(loss="0.5") == ["metrics.jsonl"]
    assert compared(extra="y") == ["checkpoint-2/rlalgo_state.json"]
    assert reliability.differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == ["a", "b", "c"]
    assert reliability.differences({"a": 1, "b": 2}, {"b": 3, "c": 4}, ["c"]) == ["c"]


@case
def a_second_folder_of_events_is_a_difference():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        for name in ("a", "b"):
            (out / "runs" / name).mkdir(parents=True)
            (out / "runs" / name / "events.out.tfevents.1").write_bytes(event(0, 3, b"brain.Event:2"))
        assert reliability.comparable(out)["folders and files of events"] == (2, 2)


@case
def moments_follow_the_seed():
    def draw(seed):
        dice = random.Random(seed)
        return [reliability.Moment.draw(dice, 2.0) for _ in range(200)]
    assert draw(1) == draw(1) != draw(2)
    assert {m.what for m in draw(1)} == {"time", *reliability.WATCHED}
    assert all(0 <= m.seconds <= 2.1 for m in draw(1))


@case
def a_kill_waits_for_its_moment():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        log = out / "metrics.jsonl"

        def write():
            for lines in range(1, 4):  # one change each: a file that is made and then written to is two
                time.sleep(0.05)
                (out / "next").write_text("x\n" * lines)
                os.replace(out / "next", log)

        writer = threading.Thread(target=write)
        writer.start()
        assert reliability.kill_at(process, out, reliability.Moment("metrics.jsonl", 2))
        assert log.read_text().count("\n") >= 2 and process.returncode == -9
        writer.join()
        process = subprocess.Popen([sys.executable, "-c", ""])
        assert not reliability.kill_at(process, out, reliability.Moment("samples.jsonl", 1))


@case
def every_kind_and_fault_says_what_it_is():
    assert len(reliability.KINDS) == 7
    listed = subprocess.run([sys.executable, str(ROOT / "scripts/reliability.py"), "--list"], capture_output=True, text=True, check=True)
    parts = (reliability.KINDS, reliability_faults.CASES, reliability_asynchronous.FAULTS, reliability_ranks.FAULTS)
    assert len(listed.stdout.splitlines()) == sum(map(len, parts))
    assert all(check.__doc__ for check in reliability_faults.CASES.values())
    assert len(reliability_faults.SERVER_FAULTS) >= 54 and len(reliability_faults.CASES) - len(reliability_faults.SERVER_FAULTS) >= 20
    page = (ROOT / "docs/reliability.md").read_text()
    assert f"{len(reliability_faults.SERVER_FAULTS)} server faults" in page
    assert f"{len(reliability_faults.CASES) - len(reliability_faults.SERVER_FAULTS)} other faults" in page
    assert f"{len(reliability_asynchronous.FAULTS)} faults at moments" in page
    assert all(f"| {name} |" in (ROOT / "docs/distributed.md").read_text() for name in reliability_ranks.FAULTS)
    missing = [name for name in reliability_faults.CASES if not name.startswith("server: ") and f"`{name}`" not in page]
    assert not missing, f"not in docs/reliability.md: {missing}"


@case
def the_server_answers_and_misbehaves():
    for name, expected in (("", 200), ("always 500", 500), ("no JSON", 200)):
        server = reliability_faults.serve("/health/", name)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/health/", timeout=10) as answer:
                assert answer.status == expected
                assert (answer.read() == b'{"status": "ok"}') == (name == "")
        except urllib.error.HTTPError as error:
            assert error.code == expected
        finally:
            server.shutdown()
            server.server_close()


@case
def harm_is_drawn_and_harms():
    text = b'{"a": 1, "b": [2, 3]}\nline two\n' * 4
    harmed = [reliability_faults.harm(text, random.Random(i)) for i in range(60)]
    assert sum(one != text for one in harmed) >= 55
    assert harmed == [reliability_faults.harm(text, random.Random(i)) for i in range(60)]
    assert reliability_faults.harm(b"", random.Random(1)) == b"x"


@case
def a_process_that_somebody_saw_end_is_finished():
    program = reliability.Program(sys.executable)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        process = program.start(folder, "-c", "import sys; sys.exit(3)")
        while process.poll() is None:
            time.sleep(0.01)
        assert program.finish(process, folder, 5).code == 3
        assert program.run(folder, "-c", "pass").bytes > 0
        assert "still running" in refused(program.finish, program.start(folder, "-c", "import time; time.sleep(60)"), folder, 0.2)


@case
def refusals_are_checked():
    result = reliability.Result(1, "", "error: [rlalgo.data.3] no JSON: rows.jsonl:2\n", 0.1, 1 << 28)
    with tempfile.TemporaryDirectory() as folder:
        fault = reliability_faults.Fault(None, pathlib.Path(folder) / "case")
        assert reliability_faults.refuse(fault, result, "rows.jsonl:2") is result
        for changes, why in (({"code": 0}, "exit status"), ({"code": -11}, "exit status"), ({"err": "it failed"}, "no number"),
                             ({"err": result.err + "frame #1"}, "frame"), ({"err": result.err + "\x1b[31m"}, "control"),
                             ({"seconds": 31.0}, "31 s"), ({"bytes": 3 << 30}, "memory"), ({"err": result.err * 2000}, "bytes are printed")):
            assert why in refused(reliability_faults.refuse, fault, reliability.Result(**{**vars(result), **changes})), changes
        (fault.folder / "out").mkdir()
        (fault.folder / "out/model.safetensors").write_text("half")
        assert "left behind" in refused(reliability_faults.refuse, fault, result)


failed = 0
for name, function in CASES.items():
    try:
        function()
        print(f"ok {name}")
    except Exception:
        failed += 1
        print(f"FAIL {name} {' | '.join(traceback.format_exc().splitlines())[-1500:]}")
sys.exit(1 if failed else 0)
