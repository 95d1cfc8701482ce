"""Ranks over NCCL on a device of their own: every process has the far device (tests/support/far_module.cpp), and they meet over the library
that stands for NCCL (tests/support/fake_nccl.cpp). The numbers of one rank on the CPU, resume, ranks that die, what is refused."""
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, NotRun, free_port, main, same_files  # noqa: E402
from ranks_test import ONLINE, PAIRS, ended, rank_of, rows, until, write  # noqa: E402
from sharded_test import FSDP, compare, zero  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def far(c, **more):
    """The environment of a program that has the device `far`, and NCCL."""
    program = pathlib.Path(c.program)
    nccl = list(program.parents[1].glob("tests/*rlalgo_fake_nccl.so"))
    module = program.with_name("far_device.so")
    if not nccl or not module.exists():
        raise NotRun("tests/support/fake_nccl.cpp and far_module.cpp are not built beside the program")
    return {"LD_PRELOAD": str(module), "RLALGO_NCCL_LIBRARY": str(nccl[0]), "RLALGO_CUDART_LIBRARY": str(nccl[0]),
            "OMP_WAIT_POLICY": "passive", **more}


def same_as_one(c, base, layouts, accumulation=2, **changes):
    """One rank on the CPU, and several on the device: `layouts` are (name, ranks, keys)."""
    c.run("train", write(c, base, "one.yaml", output_dir="one", gradient_accumulation_steps=accumulation, **changes)).expect(0)
    for name, ranks, keys in layouts:
        groups = ranks // keys.get("context_parallel_size", 1)
        many = write(c, base, f"{name}.yaml", output_dir=name, device="far", gradient_accumulation_steps=accumulation // groups, **changes, **keys)
        counts = c.folder / f"{name}.counts"
        told = c.run("train", many, "--nproc-per-node", ranks, env=far(c, FAR_COUNTS=str(counts))).expect(0, "done: step")
        assert "[rank 1]" not in told.out + told.err, told.out + told.err
        used = {one["rank"]: one["operators"] for one in map(json.loads, counts.read_text().splitlines())}
        assert all(used[rank] > 1000 for rank in range(ranks)), used
        compare(c, "one", name, name)


@case
def data_parallel(c):
    rows(c)
    same_as_one(c, PAIRS, [("whole", 2, {})], rl="dpo")


@case
def sharded(c):
    rows(c)
    same_as_one(c, PAIRS, [("zero1", 2, zero(1)), ("zero2", 2, zero(2)), ("fsdp", 2, FSDP)], rl="dpo")


@case
def shared_rows(c):
    rows(c)
    same_as_one(c, PAIRS, [("context", 2, {"context_parallel_size": 2}), ("both", 2, {"context_parallel_size": 2, **FSDP})], rl="dpo")


@case
def online(c):
    base = {**json.loads(json.dumps(BASE)), **ONLINE, "max_steps": 2}
    same_as_one(c, base, [("whole", 2, {}), ("fsdp", 2, FSDP)], rl="grpo", trl={"beta": 0.02, "num_iterations": 2})


@case
def one_wait_a_step(c):
    """The host waits for the device once a step, for the numbers that it logs: with one rank, and with two in every layout."""
    rows(c)
    base = {**PAIRS, "rl": "simpo", "device": "far", "gradient_accumulation_steps": 2}

    def counted(name, ranks, steps, keys):
        counts = c.folder / f"{name}{steps}.counts"
        file = write(c, {**base, **keys, "max_steps": steps, "output_dir": f"{name}{steps}"}, f"{name}.yaml")
        c.run("train", file, "--nproc-per-node", ranks, env=far(c, FAR_COUNTS=str(counts))).expect(0)
        return {one["rank"]: one for one in map(json.loads, counts.read_text().splitlines())}

    for name, ranks, keys in (("one", 1, {}), ("whole", 2, {}), ("zero2", 2, zero(2)), ("both", 2, {**FSDP, "context_parallel_size": 2}),
                              ("nccl", 2, {**FSDP, "sum_order": "nccl"})):
        few, many = counted(name, ranks, 1, keys), counted(name, ranks, 3, keys)
        for rank in range(ranks):
            of = rank if ranks > 1 else -1
            each = {what: (many[of][what] - few[of][what]) / 2 for what in ("copies_out", "scalars", "waits")}
            assert each == {"copies_out": 1, "scalars": 0, "waits": 0}, (name, rank, each)


@case
def sums_in_an_order(c):
    """NCCL's own order has the numbers of one rank, too; a checkpoint knows which one the run had, and a resume says it."""
    rows(c)
    own = {"sum_order": "nccl"}
    same_as_one(c, {**PAIRS, "save_strategy": "steps", "save_steps": 2}, [("whole", 2, own), ("zero2", 2, {**own, **zero(2)}), ("fsdp", 2, {**own, **FSDP})],
                rl="dpo")
    saved = json.loads((c.folder / "whole/checkpoint-2/rlalgo_state.json").read_text())
    assert saved["settings"]["sum_order"] == "nccl", saved["settings"]
    again = json.loads((c.folder / "whole.yaml").read_text())
    for order, told in (("nccl", False), ("ranks", True)):
        run = c.run("train", write(c, {**again, "sum_order": order, "output_dir": f"again-{order}"}, "again.yaml"), "--nproc-per-node", 2,
                    "--resume-from-checkpoint", "whole/checkpoint-2", env=far(c)).expect(0, "resumed")
        assert ("sum_order" in run.out + run.err) == told, run.out + run.err
    same_files(c.folder / "whole", c.folder / "again-nccl", only={"model.safetensors"})
    c.run("train", write(c, {**again, "device": "cpu", "output_dir": "cpu"}, "cpu.yaml"), "--nproc-per-node", 2).expect(0, "sum_order: nccl has no effect")


@case
def resumed(c):
    """A run of two ranks that is resumed writes the same bytes."""
    rows(c)
    base = {**PAIRS, "rl": "dpo", "device": "far", "save_strategy": "steps", "save_steps": 2, "max_steps": 4, "gradient_accumulation_steps": 1}
    for name, keys in (("whole", {}), ("context", {"context_parallel_size": 2, **FSDP, "gradient_accumulation_steps": 2})):
        run = ("--nproc-per-node", 2)
        c.run("train", write(c, {**base, **keys}, f"{name}.yaml", output_dir=name), *run, env=far(c)).expect(0)
        c.run("train", write(c, {**base, **keys}, "again.yaml", output_dir=f"{name}-again"), *run, "--resume-from-checkpoint", f"{name}/checkpoint-2",
              env=far(c)).expect(0, "resumed")
        same_files(c.folder / name, c.folder / f"{name}-again", only={"model.safetensors", "metrics.jsonl", "optimizer.safetensors",
                                                                      "optimizer-1-of-2.safetensors", "optimizer-2-of-2.safetensors"})


def long(c, name, **keys):
    return write(c, {**PAIRS, "rl": "dpo", "device": "far", "max_steps": 100000, "ddp_timeout": 3, "gradient_accumulation_steps": 1,
                     "output_dir": name}, f"{name}.yaml", **keys)


LAYOUTS = (("whole", {}), ("fsdp", {**FSDP, "context_parallel_size": 2}))


@case
def killed_rank(c):
    """Of the launcher's ranks, and of torchrun's, which nobody reports."""
    rows(c)
    for name, keys in LAYOUTS:
        process = c.start("train", long(c, name, **keys), "--nproc-per-node", 2, env=far(c))
        until(c, process, 2, name)
        os.kill(rank_of(process, 1), signal.SIGKILL)
        text = ended(process, [], 8)
        assert process.returncode == 137, (process.returncode, text)
        assert "distributed.8" in text and "rank 1 failed" in text and "step" in text, text
    for who in (1, 0):
        name = f"alone{who}"
        ranks = as_torchrun(c, [long(c, name)] * 2)
        until(c, ranks[0], 2, name)
        ranks[who].kill()
        begin = time.monotonic()
        text = "".join(ranks[1 - who].communicate(timeout=60))
        assert time.monotonic() - begin < 10, time.monotonic() - begin
        assert ranks[1 - who].returncode == 1 and "[rlalgo.distributed." in text, text
        ranks[who].communicate()


@case
def stopped_rank(c):
    """One that hangs in a step: the other ends after ddp_timeout."""
    rows(c)
    for name, keys in LAYOUTS:
        ranks = as_torchrun(c, [long(c, name, **keys)] * 2)
        until(c, ranks[0], 2, name)
        ranks[1].send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        text = "".join(ranks[0].communicate(timeout=60))
        ranks[1].kill()
        ranks[1].communicate()
        assert time.monotonic() - begin < 12, time.monotonic() - begin
        assert ranks[0].returncode == 1 and "[rlalgo.distributed.6]" in text and "rank 1 is silent" in text, text


def as_torchrun(c, files, each=({}, {}), **more):
    """Processes with the environment that torchrun gives its ranks; `each`: what a rank has of its own."""
    place = {"WORLD_SIZE": str(len(files)), "LOCAL_WORLD_SIZE": str(len(files)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [c.start("train", file, env=far(c, **{**place, "RANK": str(r), "LOCAL_RANK": str(r), **more, **each[r]})) for r, file in enumerate(files)]


def refused(c, files, *parts, each=({}, {}), seconds=15):
    """All ranks end, and say this."""
    begin = time.monotonic()
    ranks = as_torchrun(c, files, each)
    text = "".join("".join(process.communicate(timeout=60)) for process in ranks)
    assert time.monotonic() - begin < seconds, time.monotonic() - begin
    assert all(process.returncode in (1, 2) for process in ranks), ([process.returncode for process in ranks], text)
    for part in parts:
        assert part in text, (part, text)
    assert not list(c.folder.glob("*/metrics.jsonl")), "a step was taken"


@case
def what_does_not_fit(c):
    rows(c)
    one = long(c, "one")
    refused(c, [one, long(c, "two", learning_rate=0.5, output_dir="one")], "config.38", "learning_rate")
    refused(c, [one, one], "distributed.15", "/nowhere/libnccl.so", each=({"RLALGO_NCCL_LIBRARY": "/nowhere/libnccl.so"},) * 2)
    refused(c, [one, one], "distributed.15", "/nowhere/libnccl.so", each=({}, {"RLALGO_NCCL_LIBRARY": "/nowhere/libnccl.so"}))
    refused(c, [one, one], "distributed.16", "2.13.4", each=({}, {"FAKE_NCCL_VERSION": "21304"}))
    refused(c, [one, one], "distributed.21", "2.27.1 on rank 1", "2.28.0", each=({}, {"FAKE_NCCL_VERSION": "22701"}))
    refused(c, [one, one], "distributed.22", "rank 0 and rank 1", "LOCAL_RANK", each=({}, {"LOCAL_RANK": "0"}))
    refused(c, [one, one], "distributed.7", "LOCAL_RANK=two", each=({}, {"LOCAL_RANK": "two"}))
    refused(c, [one, one], "distributed.17", each=({}, {"FAKE_CUDA_DEVICES": "0"}))
    refused(c, [one, one], "distributed.18", each=({"FAKE_NCCL_JOIN_ERROR": "5"},) * 2)
    refused(c, [one, one], "distributed.", each=({"WORLD_SIZE": "3"}, {}))


if __name__ == "__main__":
    main(CASES)
