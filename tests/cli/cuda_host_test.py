"""LibTorch's own CUDA half under the program, without a GPU: CUDA's runtime library is tests/support/fake_cuda_runtime.cpp, the libraries beside
it are stubs, and kernels compute nothing. What LibTorch does on the host is as on a card: what it refuses, what it copies and waits for, what it
takes. The numbers are no numbers."""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import BASE, NotRun, main  # noqa: E402
from ranks_test import PAIRS, rows, write  # noqa: E402
from serve_test import Server  # noqa: E402

CASES = {}
FAKE = pathlib.Path(__file__).resolve().parents[1] / "support/fake_cuda_runtime.cpp"
LIBRARIES = ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_nvshmem.so", "libtorch_cuda_linalg.so")
# What a library's symbols begin with, where they have no version that names it.
BEGIN = {"nccl": "libnccl.so.2", "cusparseLt": "libcusparseLt.so.0", "nvshmem": "libnvshmem_host.so.3", "cuFile": "libcufile.so.0", "curand": "libcurand.so.10"}
# The driver: what is asked of it before and beside CUDA's runtime library. 75: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.
DRIVER = """
#include <stdlib.h>
#include <string.h>
static int gpus(void) { const char* n = getenv("RLALGO_FAKE_CUDA_GPUS"); return n ? atoi(n) : 1; }
int cuDriverGetVersion(int* out) { *out = 99000; return 0; }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* out) { *out = gpus(); return 0; }
int cuDeviceGet(int* out, int number) { *out = number; return 0; }
int cuDeviceGetName(char* out, int size, int device) { strncpy(out, "a GPU", size); return 0; }
int cuDeviceGetAttribute(int* out, int which, int device) { *out = which == 75 ? 9 : 0; return 0; }
int cuDeviceTotalMem_v2(size_t* out, int device) { *out = 80000000000; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { *flags = 0; *active = 1; return 0; }
int cuCtxGetCurrent(void** out) { *out = (void*)1; return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
"""
# What stubs of other libraries do; the rest do nothing. 3: CUBLAS_TF32_TENSOR_OP_MATH.
BODIES = {"cublasCreate_v2": "*(void**)a = malloc(1);", "cublasLtCreate": "*(void**)a = malloc(1);", "cublasSetMathMode": 'fake_cuda_say(b == 3 ? "products TF32" : "products");'}


def case(function):
    CASES[function.__name__] = function
    return function


def compiled(text, out, *words, name=None):
    done = subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", "-O1", "-x", "c", "-", *words, f"-Wl,-soname,{name or out.name}", "-o", str(out)],
                          input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def built(c, folder):
    """The libraries in `folder`, and the environment of a program that has them."""
    torch = re.search(r"LibTorch's folder (\S+),", c.run("version").expect(0).out)
    if not torch or not (pathlib.Path(torch[1]) / LIBRARIES[0]).exists():
        raise NotRun("this LibTorch has no CUDA half")
    torch = pathlib.Path(torch[1])
    headers = torch.parents[1] / "nvidia/cu13/include"
    if not (headers / "cuda_runtime_api.h").exists() or not shutil.which("nm"):
        raise NotRun("CUDA's runtime headers are not beside LibTorch, or there is no nm")
    wanted = collections.defaultdict(lambda: collections.defaultdict(set))  # library → version → names
    for library in BEGIN.values():  # of some no name is asked for
        wanted[library][""] = set()
    for one in LIBRARIES:
        if not (torch / one).exists():
            continue
        said = subprocess.run(["nm", "-D", "--undefined-only", str(torch / one)], capture_output=True, text=True, check=True).stdout
        for name, version in re.findall(r" [Uw] ([A-Za-z]\w+|__cuda\w+)@?@?(\S*)$", said, re.MULTILINE):
            by = next((library for begin, library in BEGIN.items() if name.startswith(begin)), None)
            if re.match(r"lib(cu|nv|nccl)", version) or by:
                wanted[version if re.match(r"lib(cu|nv|nccl)", version) else by][version].add(name)
    runtime = next(name for name in wanted if name.startswith("libcudart.so"))
    done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-fPIC", "-c", "-I", str(headers), str(FAKE), "-o", str(folder / "runtime.o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    there = set(re.findall(r" T (\S+)$", subprocess.run(["nm", str(folder / "runtime.o")], capture_output=True, text=True, check=True).stdout, re.MULTILINE))
    preloaded = []
    for library, versions in wanted.items():
        if library.startswith("libcupti"):
            continue  # beside LibTorch
        names = sorted(set().union(*versions.values()) - (there if library == runtime else set()))
        text = "#include <stdlib.h>\nvoid fake_cuda_say(const char*);\n" + "".join(f"long {name}(void* a, long b) {{ {BODIES.get(name, '')} return 0; }}\n" for name in names)
        versioned = folder / f"{library}.map"
        versioned.write_text("".join(f"{version} {{ global: {'; '.join(sorted(found))}; }};\n" for version, found in versions.items() if version))
        words = [f"-Wl,--version-script={versioned}"] if versioned.read_text() else []
        compiled(text, folder / library, *words, *(("-x", "none", str(folder / "runtime.o"), "-lstdc++") if library == runtime else ()))
        preloaded.append(str(folder / library))
    compiled(DRIVER, folder / "libcuda.so.1")
    preloaded.sort(key=lambda path: not path.endswith(runtime))  # first: others' stubs do not need it
    return {"LD_PRELOAD": " ".join(preloaded), "LD_LIBRARY_PATH": str(folder)}


MADE = {}


def on_cuda(c, **more):
    """The environment of a program on it, whose calls are told to the file `calls`."""
    if "folder" not in MADE:
        MADE["folder"] = tempfile.TemporaryDirectory()
        try:
            MADE["env"] = built(c, pathlib.Path(MADE["folder"].name))
        except NotRun as why:
            MADE["why"] = why
    if "why" in MADE:
        raise MADE["why"]
    return {**MADE["env"], "RLALGO_CUDA_KERNELS": "none", "RLALGO_FAKE_CUDA_CALLS": str(c.folder / "calls"), **more}


def calls(c):
    """How often each kind of call was made; none may have been refused."""
    out = collections.Counter(line.split(" ", 1)[0] if line.startswith(("kernel", "memory")) else line for line in (c.folder / "calls").read_text().splitlines())
    refused = [line for line in out if line.startswith("refused")]
    assert not refused, refused
    return out


def trained(c, base, steps, name, env=None, **changes):
    file = write(c, {**base, "max_steps": steps, "device": "cuda", "output_dir": f"{name}{steps}"}, f"{name}{steps}.yaml", **changes)
    told = c.run("train", file, env=on_cuda(c, **(env or {}))).expect(0, f"step {steps}/{steps}")
    assert "Warning" not in told.err, told.err  # of LibTorch: of an operator without a deterministic form, say
    return calls(c)


def a_step(c, base, name, env=None, **changes):
    """What a step asks of CUDA: of two more than two."""
    less, more = (trained(c, base, steps, name, env, **changes) for steps in (2, 4))
    return {key: (more[key] - less[key]) / 2 for key in more}


@case
def a_step_of_preferences_waits_once(c):
    rows(c)
    base = {**PAIRS, "rl": "dpo", "gradient_accumulation_steps": 2}
    for name, changes in (("float32", {}), ("bfloat16", {"bf16": True, "float32": False}), ("lora", {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "lora_dropout": 0.1}),
                          ("8-bit", {"optimizer": "adamw_bnb_8bit"}),
                          ("4-bit", {"adapter": "qlora", "load_in_4bit": True, "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "bf16": True, "float32": False})):
        step = a_step(c, base, name, **changes)
        # What is logged.
        assert step["copy out pageable"] + step["copy out pinned"] == 1, (name, step)
        assert step["wait"] == 1, (name, step)
        assert step.get("copy in pageable", 0) == 0, (name, step)


@case
def float32_is_multiplied_as_float32(c):
    """Whatever the environment of an image says."""
    rows(c)
    told = trained(c, {**PAIRS, "rl": "dpo"}, 1, "float32", {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"})
    assert told["products"] > 10 and told["products TF32"] == 0, told


@case
def attention_in_one_call_is_differentiated_in_its_deterministic_form(c):
    """LibTorch says on standard error where it is not."""
    rows(c)
    told = trained(c, {**PAIRS, "rl": "dpo"}, 1, "flash", {"RLALGO_CUDA_KERNELS": "flash_attention"}, bf16=True, float32=False)
    assert told["kernel"] > 10
    assert "flash_bwd" in (c.folder / "calls").read_text()


@case
def completions_are_drawn_and_trained_on(c):
    step = a_step(c, {**json.loads(json.dumps(BASE))}, "online")
    assert step.get("copy in pageable", 0) == 0, step
    assert step["wait"] <= 30, step


@case
def a_server_answers_with_the_share_of_the_card_that_it_takes(c):
    """Keys and values have what is left of nine tenths: writing to them copies none of them."""
    server = Server(c, "--device", "cuda", env=on_cuda(c))
    try:
        status, answer = server.ask("/v1/completions", {"prompt": "3 + 4 =", "max_tokens": 5, "temperature": 0, "ignore_eos": True})
        assert status == 200, answer
    finally:
        server.stop()
    calls(c)
    large = [int(line.split()[1]) for line in (c.folder / "calls").read_text().splitlines() if line.startswith("memory") and int(line.split()[1]) > 1 << 30]
    assert len(large) == 1, large


@case
def the_second_gpu(c):
    row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 5, "temperature": 0}) + "\n"
    model = BASE["base_model"]
    c.run("generate", "--model", model, "--device", "cuda:1", stdin=row, env=on_cuda(c, RLALGO_FAKE_CUDA_GPUS="2")).expect(0)
    calls(c)
    c.run("generate", "--model", model, "--device", "cuda:2", stdin=row, env=on_cuda(c, RLALGO_FAKE_CUDA_GPUS="2")).expect(1, "[rlalgo.tensor.13]")


@case
def a_kernel_is_tried_by_itself(c):
    """None can be launched here, as the driver is none: each is refused for its own sake, and LibTorch's attention for none of theirs."""
    told = c.run("kernels", "--device", "cuda", env=on_cuda(c, RLALGO_CUDA_KERNELS="all", XDG_CACHE_HOME=str(c.folder))).expect(1)
    lines = {line.split()[0]: line for line in told.out.splitlines()}
    for name in ("rms_norm", "rotate", "gated", "log_prob", "draw", "adamw_8bit", "flash_attention"):
        if name in lines and "CUDA kernel" in lines[name]:
            assert f"the CUDA kernel {name} could not be launched" in lines[name], lines[name]


if __name__ == "__main__":
    main(CASES)
