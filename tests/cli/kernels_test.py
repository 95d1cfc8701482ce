"""`rlalgo kernels`: what it tries, keeps and refuses. There is no GPU: on the device of tests/support/far_module.cpp no kernel is used, so
operators are tried beside themselves."""
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402
from far_ranks_test import far  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def kept_for_this_device_and_program(c):
    record = c.folder / "cache/rlalgo/kernels.json"
    env = far(c, XDG_CACHE_HOME=str(c.folder / "cache"), TMPDIR=str(c.folder))
    for _ in range(2):
        tried = c.run("kernels", "--device", "far", env=env).expect(0)
        lines = [line.split(None, 2) for line in tried.out.splitlines()]
        assert all(said == "agrees" for _, said, _ in lines), tried.out
        assert lines[0][0] in ("rms_norm", "flash_attention"), tried.out  # without nvcc there is LibTorch's attention alone
        kept = json.loads(record.read_text())
        assert [card["of"].split(",")[0] for card in kept["cards"]] == ["far:0"], kept
        assert kept["cards"][0]["used"] == [name for name, *_ in lines if name != "together"] and kept["cards"][0]["refused"] == {}, kept
    assert not list(c.folder.glob("rlalgo-kernels-*")), "the model is left behind"


@case
def a_kernel_that_ends_its_process_is_not_used(c):
    """As one does that ends it by a signal."""
    env = far(c, XDG_CACHE_HOME=str(c.folder / "cache"), TMPDIR=str(c.folder))
    process = c.start("kernels", "--device", "far", env=env)
    child = None
    while child is None and process.poll() is None:
        found = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        child = int(found[0]) if found and b"--answer" in pathlib.Path(f"/proc/{found[0]}/cmdline").read_bytes() else None
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "NOT USED" in out and "signal 9" in out, (out, err)


@case
def what_is_no_gpu_is_refused(c):
    c.run("kernels", "--device", "cpu").expect(2, "[rlalgo.cli.34]", "cuda")
    c.run("kernels", "--device", "gpu").expect(2, "[rlalgo.tensor.12]")
    c.run("kernels", "--help").expect(0, "RLALGO_CUDA_KERNELS")


@case
def a_record_that_cannot_be_kept_is_said(c):
    (c.folder / "cache").write_text("a file")
    tried = c.run("kernels", "--device", "far", env=far(c, XDG_CACHE_HOME=str(c.folder / "cache"))).expect(0)
    assert "tried again at the next start" in tried.err, tried.err


if __name__ == "__main__":
    main(CASES)
