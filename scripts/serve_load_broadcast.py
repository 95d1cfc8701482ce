#!/usr/bin/env python3
"""A trainer that broadcasts weights to a server of ours over Gloo, for scripts/serve_load.py. Needs torch.

    serve_load_broadcast.py PORT FILE.safetensors…

Reads lines {"way": "trl" | "trl_batch" | "vllm" | "vllm_packed", "version": i, "stop_after": n or null} and answers each with a line:
the tensors of FILE i have been broadcast and are in force, as TRL's trainers do it (a communicator, its parameters one by one or as
a list, the fence, its end) or as vLLM's do (a meeting, a weight update). With `stop_after` the process ends after so many broadcasts.
"""
import concurrent.futures
import datetime
import json
import os
import socket
import struct
import sys
import urllib.request

import torch
import torch.distributed as dist

MINUTE = datetime.timedelta(seconds=120)
port, files = int(sys.argv[1]), sys.argv[2:]


def tensors_of(file):
    data = open(file, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "BF16", entry
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            out[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.bfloat16).reshape(entry["shape"])
    return out


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=300).read()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def group_of(store, rank):
    return dist.ProcessGroupGloo(dist.PrefixStore("client2server", store), rank, 2, MINUTE)


class Sender:
    def __init__(self, group, rank, stop_after):
        self.group, self.rank, self.left = group, rank, stop_after

    def __call__(self, tensor):
        if self.left == 0:
            os._exit(0)
        if self.left is not None:
            self.left -= 1
        self.group.broadcast(tensor, self.rank).wait()


def trl(tensors, stop_after, batch):
    meeting = free_port()
    post("/init_communicator/", {"host": "0.0.0.0", "port": meeting, "world_size": 2, "client_device_uuid": "", "backend": "gloo"})
    send = Sender(group_of(dist.TCPStore("127.0.0.1", meeting, 2, timeout=MINUTE), 1), 1, stop_after)
    described = [{"name": name, "dtype": "torch.bfloat16", "shape": list(t.shape)} for name, t in tensors.items()]
    if batch:
        post("/batch_update_named_params/", {"params": described})
    for one, tensor in zip(described, tensors.values()):
        if not batch:
            post("/update_named_param/", one)
        send(tensor)
        if not batch:
            send.group.barrier().wait()
    if batch:
        send.group.barrier().wait()
    post("/reset_prefix_cache/", {})
    post("/close_communicator/", {})


def vllm(tensors, stop_after, packed):
    meeting = free_port()
    store = dist.TCPStore("127.0.0.1", meeting, 2, is_master=True, wait_for_workers=False)
    info = {"backend": "gloo", "master_address": "127.0.0.1", "master_port": meeting, "rank_offset": 1, "world_size": 2}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        met = pool.submit(post, "/init_weight_transfer_engine", {"init_info": info})
        send = Sender(group_of(store, 0), 0, stop_after)
        met.result()
        post("/start_weight_update", {})
        most = 200_000
        update = {"names": list(tensors), "dtype_names": ["bfloat16"] * len(tensors), "shapes": [list(t.shape) for t in tensors.values()],
                  "packed": packed, "packed_buffer_size_bytes": most}
        done = pool.submit(post, "/update_weights", {"update_info": update})
        parts, size = [], 0
        for tensor in tensors.values():
            if not packed:
                send(tensor)
                continue
            parts.append(tensor.contiguous().view(-1).view(torch.uint8))
            size += parts[-1].numel()
            if size > most:
                send(torch.cat(parts))
                parts, size = [], 0
        if parts:
            send(torch.cat(parts))
        done.result()
    post("/finish_weight_update", {})


torch.set_num_threads(1)
versions = [tensors_of(file) for file in files]
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    tensors, stop_after = versions[order["version"]], order["stop_after"]
    (trl if order["way"].startswith("trl") else vllm)(tensors, stop_after, order["way"] in ("trl_batch", "vllm_packed"))
    print(json.dumps({"done": order}), flush=True)
