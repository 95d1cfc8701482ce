"""vllm_nccl.py URL MODEL_DIR FAKE_NCCL: vLLM's own trainer of weight transfer, and TRL's order over vLLM's process groups, against a server.

Everything is vLLM's (StatelessProcessGroup, PyNcclCommunicator, NCCLTrainerWeightTransferEngine, its HTTP client) but the NCCL library,
whose place FAKE_NCCL takes in the memory of the host, and the devices and streams of CUDA, which a CPU's PyTorch has not.
"""
import contextlib
import ctypes
import json
import os
import socket
import sys
import threading

os.environ["VLLM_NCCL_SO_PATH"] = sys.argv[3]

from oracle import Oracle

import requests
import torch
import vllm
from vllm.distributed.device_communicators import pynccl
from vllm.distributed.utils import StatelessProcessGroup
from vllm.distributed.weight_transfer import nccl_engine, packed_tensor
from vllm.distributed.weight_transfer.base import ModuleSource
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

url, library = sys.argv[1], ctypes.CDLL(sys.argv[3])
oracle = Oracle(sys.argv[2])
prompts = [oracle.tokenizer(text)["input_ids"] for text in ("3 + 4 =", "The sum of 12 and 9 is")]


class Stream:
    cuda_stream = None

    def synchronize(self):
        assert library.cudaStreamSynchronize(None) == 0


CPU, STREAM = torch.device("cpu"), Stream()
torch.accelerator.current_device_index = lambda: CPU
torch.accelerator.device_index = lambda index: contextlib.nullcontext()
torch.cuda.current_stream = lambda device=None: STREAM
torch.cuda.stream = lambda stream: contextlib.nullcontext()
pynccl.current_stream = lambda: STREAM
reduce = pynccl.PyNcclCommunicator.all_reduce


def all_reduce(*arguments, **named):
    out = reduce(*arguments, **named)
    STREAM.synchronize()  # CUDA's allocator keeps the memory of what is queued, a CPU's does not
    return out


pynccl.PyNcclCommunicator.all_reduce = all_reduce
packed_tensor._get_streams = lambda device, buffers: (STREAM,) * buffers


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def shake():
    with torch.no_grad():
        for parameter in oracle.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std().nan_to_num())


def post(route, body=None):
    answer = requests.post(url + route, json=body, timeout=60)
    assert answer.status_code == 200, (route, answer.text)
    return answer.json() if answer.content else {}


def check():
    out = post("/generate/", {"prompts": prompts, "n": 2, "max_tokens": 8, "temperature": 1.0, "logprobs": 0})
    worst = 0.0
    for i, completion in enumerate(out["completion_ids"]):
        worst = max(worst, oracle.check(prompts[i // 2], completion, [row[0] for row in out["logprobs"][i]]))
    return worst


worst = {"before": check()}
for packed in (False, True):
    engine = nccl_engine.NCCLTrainerWeightTransferEngine.trainer_init(
        nccl_engine.NCCLTrainerInitInfo("127.0.0.1", free_port(), 2, packed=packed, packed_buffer_size_bytes=1 << 20, rank=0),
        client=HTTPVLLMWeightSyncClient(url), source=ModuleSource(oracle.model))
    for _ in range(2):
        shake()
        engine.send_weights()
        worst[f"vLLM's trainer, {'packed' if packed else 'tensor by tensor'}"] = check()
    engine.model_update_group.destroy()

# As TRL's VLLMClient does it up to 1.15.
port = free_port()
joining = threading.Thread(target=post, args=("/init_communicator/", {"host": "127.0.0.1", "port": port, "world_size": 2, "client_device_uuid": "none"}))
joining.start()
group = StatelessProcessGroup.create(host="127.0.0.1", port=port, rank=1, world_size=2)
communicator = pynccl.PyNcclCommunicator(group, device=CPU)
joining.join()
shake()
for name, parameter in oracle.model.named_parameters():
    asked = threading.Thread(target=post, args=("/update_named_param/", {"name": name, "dtype": str(parameter.dtype), "shape": list(parameter.shape)}))
    asked.start()
    communicator.broadcast(parameter.data, src=1)
    communicator.group.barrier()
    asked.join()
post("/reset_prefix_cache/")
worst["TRL's order"] = check()
post("/close_communicator/")
print(json.dumps({"package": f"vllm {vllm.__version__}", "worst": worst}), flush=True)
os._exit(0)
