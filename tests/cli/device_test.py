"""Devices as a user names them: what is refused and with which remedy, a driver that is there without a card, and the check for machines that have one."""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, ROOT, NotRun, main  # noqa: E402

CASES = {}
PAIRS = "".join(json.dumps({"prompt": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": " 9"}) + "\n" for i in range(8))
DPO = {"base_model": str(QUICKSTART / "model"), "rl": "dpo", "datasets": [{"path": "pairs.jsonl"}], "sequence_len": 64, "micro_batch_size": 2,
       "learning_rate": 1e-3, "max_steps": 1, "save_strategy": "no", "output_dir": "out"}


def case(function):
    CASES[function.__name__] = function
    return function


def has_driver():
    return any(glob.glob(f"{place}/libcuda.so.1") for place in ("/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64", "/usr/lib64"))


def driver(c, **environment):
    """The environment of a program that finds tests/support/fake_cuda_driver.cpp in the place of the driver."""
    compiler = shutil.which("c++")
    if compiler is None:
        raise NotRun("no C++ compiler")
    folder = c.folder / "driver"
    if not folder.exists():
        folder.mkdir()
        subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", ROOT / "tests/support/fake_cuda_driver.cpp"], check=True)
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}", "FAKE_CUDA_GPUS": "90", **environment}


def dpo(c, *words, **more):
    (c.folder / "pairs.jsonl").write_text(PAIRS)
    (c.folder / "dpo.yaml").write_text(json.dumps(DPO))
    return c.run("train", "dpo.yaml", *words, **more)


@case
def names_of_no_device_are_refused(c):
    dpo(c, "--device", "gpu").expect(2, "[rlalgo.config.6]", "auto, cpu, cuda or cuda:N")
    for verb in (["generate", "--model"], ["score", "--model"], ["inference"], ["vllm-serve"]):
        c.run(*verb, QUICKSTART / "model", "--device", "gpu").expect(2, "[rlalgo.tensor.12]", "--device")
    c.no_output()


@case
def without_a_driver_a_gpu_is_refused_and_auto_is_the_cpu(c):
    if has_driver():
        raise NotRun("this machine has a driver")
    dpo(c, "--device", "cuda").expect(1, "[rlalgo.tensor.8]", "no NVIDIA driver", "device: cpu")
    c.no_output()
    dpo(c, "--device", "auto").expect(0)
    assert "device" not in json.loads((c.folder / "out/metrics.jsonl").read_text().splitlines()[0])
    text = c.run("version").expect(0).out
    assert "no NVIDIA driver" in text and "CUDA kernels of our own: " in text, text
    c.run("version", env={**os.environ, "RLALGO_CUDA_KERNELS": "rotate,attention"}).expect(2, "[rlalgo.tensor.16]", "'attention'", "decode_attention")
    line = json.dumps({"prompt": "1 + 1 =", "max_new_tokens": 2}) + "\n"
    c.run("generate", "--model", QUICKSTART / "model", "--device", "cpu", stdin=line).expect(0)
    c.run("generate", "--model", QUICKSTART / "model", "--device", "cuda:0", stdin=line).expect(1, "[rlalgo.tensor.8]")


@case
def a_rank_without_a_gpu_is_said_before_anything_is_loaded(c):
    """LOCAL_RANK beyond the GPUs, and more ranks than there are."""
    if has_driver():
        raise NotRun("this machine has a driver")
    two = driver(c, FAKE_CUDA_GPUS="90 90")
    rank = {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    dpo(c, "--device", "cuda", env={**two, **rank}).expect(1, "[rlalgo.tensor.13]", "cuda:2", "cuda:0 to cuda:1", "LOCAL_RANK")
    dpo(c, "--device", "cuda", "--nproc-per-node", 3, env=two).expect(1, "[rlalgo.tensor.13]", "cuda:2", "no more ranks")
    dpo(c, "--device", "cuda:1", "--nproc-per-node", 2, env=two).expect(2, "[rlalgo.tensor.12]", "one GPU is named for several ranks")
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        dpo(c, "--device", "cpu", env={**rank, name: "all"}).expect(2, "[rlalgo.distributed.7]", f"{name}=all")
    c.no_output()


@case
def the_option_is_in_the_place_of_the_files_device(c):
    if has_driver():
        raise NotRun("this machine has a driver")
    dpo(c).expect(0)
    (c.folder / "gpu.yaml").write_text(json.dumps({**DPO, "device": "cuda"}))
    c.run("inference", "gpu.yaml", "--device", "cpu", stdin="1 + 1 =").expect(0)
    c.run("inference", "gpu.yaml", stdin="1 + 1 =").expect(1, "[rlalgo.tensor.8]")


@case
def a_driver_that_does_not_fit_is_said_before_a_model_is_loaded(c):
    if has_driver():
        raise NotRun("this machine has a driver")
    old = driver(c, FAKE_CUDA_VERSION="12090")
    dpo(c, "--device", "cuda", env=old).expect(1, "[rlalgo.tensor.9]", "CUDA 12.9")
    dpo(c, "--device", "cuda", env=driver(c, FAKE_CUDA_GPUS="70")).expect(1, "[rlalgo.tensor.11]", "7.0")
    dpo(c, "--device", "cuda", env=driver(c, FAKE_CUDA_GPUS="")).expect(1, "[rlalgo.tensor.8]", "CUDA_VISIBLE_DEVICES")
    c.no_output()
    dpo(c, env=old).expect(0, "device: auto is the CPU, though there is a GPU", "CUDA 12.9")
    text = c.run("version", env=old).expect(0).out
    assert "cuda:0 (Fake GPU 0" in text and "\n  CUDA cannot be used: [rlalgo.tensor.9]" in text, text
    assert "NCCL, which several GPUs need, cannot be used: [rlalgo.distributed.1" in text, text


@case
def the_cuda_half_of_libtorch_is_loaded_over_stubs(c):
    """libtorch_cuda.so itself, with the toolkit's libraries and empty ones for what it has not; its driver is a fake, so it finds no GPU."""
    toolkit = pathlib.Path("/usr/local/cuda/lib64")
    if has_driver() or not (toolkit / "libcublas.so.13").exists():
        raise NotRun("a CUDA 13 toolkit, and no driver, is needed")
    environment = driver(c)
    folder = c.folder / "driver"
    (folder / "nothing.c").write_text("void nothing(void) {}\n")
    (folder / "map").write_text("NVSHMEM { global: *; };\n")
    for name, options in (("libcufile.so.0", []), ("libcusparseLt.so.0", []), ("libnvshmem_host.so.3", [f"-Wl,--version-script={folder / 'map'}"])):
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", *options, "-o", folder / name, folder / "nothing.c"], check=True)
    environment["LD_LIBRARY_PATH"] = f"{folder}:{toolkit}:{toolkit.parent / 'extras/CUPTI/lib64'}:{environment['LD_LIBRARY_PATH']}"
    dpo(c, "--device", "cuda", env=environment).expect(1, "[rlalgo.tensor.10]", "finds no GPU")
    c.no_output()
    dpo(c, env=environment).expect(0, "device: auto is the CPU, though there is a GPU")
    # Without those libraries the loader's words are told.
    environment["RLALGO_TORCH_CUDA"] = "/nowhere/libtorch_cuda.so"
    dpo(c, "--device", "cuda", env=environment).expect(1, "[rlalgo.tensor.10]", "/nowhere/libtorch_cuda.so", "setup.sh --cuda")


@case
def the_check_for_machines_with_a_gpu_runs_its_parts(c):
    done = subprocess.run([sys.executable, ROOT / "scripts/device_check.py", "--rlalgo", c.program, "--data", QUICKSTART, "--device", "cpu", "--out", c.folder / "check",
                           "--only", "versions,log_probs,dpo_float32,grpo_float32,resume,generation,server,refusals,decode_half_billion,train_half_billion"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("9 passed, 0 failed, 1 not run"), done.stdout[-2000:] + done.stderr[-2000:]
    results = {r["part"]: r for r in json.loads((c.folder / "check/device.json").read_text())["results"]}
    assert results["refusals"]["result"] == "not run" and results["dpo_float32"]["found"]["loss"] == 0.0, results
    unknown = subprocess.run([sys.executable, ROOT / "scripts/device_check.py", "--rlalgo", c.program, "--data", QUICKSTART, "--only", "speed"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "no such part: speed" in unknown.stderr, unknown.stderr


if __name__ == "__main__":
    main(CASES)
