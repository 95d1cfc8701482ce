"""Programs that are written for vLLM's and TRL's servers, against ours: the openai package, TRL's client and its GRPO trainer,
axolotl's LoRA synchronisation, vLLM's transfer of weights. They run where they are installed: RLALGO_OPENAI_PYTHON, RLALGO_TRL_PYTHON,
RLALGO_AXOLOTL_PYTHON and RLALGO_VLLM_PYTHON name Python programs that have the packages (several separated by colons; default: the running
one)."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, NotRun, main  # noqa: E402
from serve_test import Server  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"
GLOO = ["--weight-transfer-config", '{"backend": "gloo"}']
CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"


def case(function):
    CASES[function.__name__] = function
    return function


def pythons(variable, condition):
    """The interpreters in which `condition` runs without an error."""
    found = os.environ.get(variable, sys.executable).split(":")
    good = [p for p in found if subprocess.run([p, "-c", condition], capture_output=True).returncode == 0]
    if not good:
        raise NotRun(f"`{condition}` fails in {', '.join(found)} ({variable})")
    return good


def run(c, python, client, *arguments):
    """The last JSON object that a client's program prints (libraries log to the same place, behind it, too); what it said where it fails."""
    done = subprocess.run([python, CLIENTS / client, *map(str, arguments)], cwd=c.folder, capture_output=True, text=True,
                          timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:]
    return json.JSONDecoder().raw_decode([line for line in done.stdout.splitlines() if line.startswith("{")][-1])[0]


def served(c, variable, condition, client, options=(), arguments=(), key=None, env=None):
    for python in pythons(variable, condition):
        server = Server(c, "--served-model-name", "m", *options, env=env)
        try:
            told = run(c, python, client, f"http://127.0.0.1:{server.port}", *arguments, *([key] if key else []))
            assert server.ask("/health", key=key)[0] == 200, told
        finally:
            code, lines = server.stop()
        assert code == 143, (code, lines)


@case
def openai_package(c):
    served(c, "RLALGO_OPENAI_PYTHON", "import openai", "openai_client.py", ["--api-key", "k"], ["m"], "k")


@case
def trl_client(c):
    served(c, "RLALGO_TRL_PYTHON", "import trl.generation, requests", "trl_client.py", GLOO, [MODEL])


@case
def trl_trainer(c):
    newer = "import trl, datasets; assert tuple(map(int, trl.__version__.split('.')[:2])) >= (1, 16)"
    served(c, "RLALGO_TRL_PYTHON", newer, "trl_trainer.py", ["--processed-logprobs", *GLOO],
           [MODEL, c.folder / "trained"])


@case
def axolotl_lora_sync(c):
    served(c, "RLALGO_AXOLOTL_PYTHON", "import axolotl.train", "axolotl_trainer.py", ["--processed-logprobs"],
           [MODEL, c.folder / "trained"])


@case
def vllm_transfer_of_weights(c):
    """With what stands for NCCL and CUDA in the memory of the host (tests/support/fake_nccl.cpp)."""
    found = list(pathlib.Path(c.program).parents[1].glob("tests/*rlalgo_fake_nccl.so"))
    if not found:
        raise NotRun("tests/support/fake_nccl.cpp is not built beside the program")
    served(c, "RLALGO_VLLM_PYTHON", "import vllm.distributed.weight_transfer.nccl_engine, requests", "vllm_nccl.py", ["--processed-logprobs"],
           [MODEL, found[0]], env={"RLALGO_NCCL_LIBRARY": str(found[0]), "RLALGO_CUDART_LIBRARY": str(found[0])})


if __name__ == "__main__":
    main(CASES)
