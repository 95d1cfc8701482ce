"""trl_trainer.py URL MODEL_DIR OUTPUT: three steps of TRL's own GRPOTrainer (1.16) in server mode.

TRL broadcasts weights with NCCL and asks for a CUDA device. On a machine without one the two places where it calls NCCL are replaced
here by Gloo: the meeting, and the broadcast of a packed buffer. All else is TRL's: which requests it sends, in which order, and what goes into a buffer.
"""
import concurrent.futures
import datetime
import json
import socket
import sys

from oracle import Oracle, without_vllm

module = without_vllm()
import datasets
import torch
import torch.distributed as dist
import trl

url, directory, output = sys.argv[1:4]
client_class = module.VLLMClient
syncs = []


def init_communicator(self, device=0):
    assert self.get_server_info()["weight_transfer_config"] == {"backend": "gloo"}
    size = self.get_world_size() + 1
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, size, is_master=True, wait_for_workers=False)
    info = {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": size, "packed": True}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        met = pool.submit(self._post, f"{self.base_url}/init_weight_transfer_engine", json={"init_info": info})
        self.communicator = dist.ProcessGroupGloo(dist.PrefixStore("client2server", store), 0, size, datetime.timedelta(seconds=60))
        met.result()


def broadcast_packed(iterator, group, src, post_iter_func, buffer_size_bytes=1 << 30):
    parts, size, count = [], 0, 0
    for item in iterator:
        parts.append(post_iter_func(item).detach().contiguous().view(-1).view(torch.uint8))
        size, count = size + parts[-1].numel(), count + 1
        if size > buffer_size_bytes:
            group.broadcast(torch.cat(parts), src).wait()
            parts, size = [], 0
    if parts:
        group.broadcast(torch.cat(parts), src).wait()
    syncs.append(count)


if not torch.cuda.is_available():
    client_class.init_communicator, client_class.close_communicator = init_communicator, lambda self: None
    module._HAS_STATEFUL_TRAINER_ENGINE, module.packed_nccl_broadcast_producer = True, broadcast_packed


def variety(completions, **_):
    return [float(len(set(text))) for text in completions]


rows = datasets.Dataset.from_list([{"prompt": f"{a} + {a + 3} ="} for a in range(1, 13)])
oracle = Oracle(directory)
trainer = trl.GRPOTrainer(
    model=oracle.model, processing_class=oracle.tokenizer, reward_funcs=variety, train_dataset=rows,
    args=trl.GRPOConfig(output_dir=output, use_vllm=True, vllm_mode="server", vllm_server_base_url=url, max_steps=3, seed=1,
                        per_device_train_batch_size=8, num_generations=4, max_completion_length=12, learning_rate=1e-3,
                        logging_steps=1, save_strategy="no", report_to=[], use_cpu=not torch.cuda.is_available(), bf16=False))
trainer.train()
logged = [row for row in trainer.state.log_history if "loss" in row]
assert len(logged) == 3 and all(row["grad_norm"] > 0 for row in logged), logged
# The sampler's log-probs and the trainer's are of the same weights: the ratio TRL corrects by is 1.
ratios = [v for row in logged for k, v in row.items() if k == "sampling/importance_sampling_ratio/mean"]
assert len(ratios) == 3 and all(abs(r - 1.0) < 1e-3 for r in ratios), logged

# What the server has at the end is what the trainer has.
client = trainer.vllm_generation.vllm_client
trainer.vllm_generation.sync_weights()
ids = oracle.tokenizer("2 + 5 =")["input_ids"]
out = client.generate([ids], max_tokens=12, temperature=1.0, n=4)
oracle.model = trainer.model.eval()
worst = max(oracle.check(ids, c, [row[0] for row in v]) for c, v in zip(out["completion_ids"], out["logprobs"]))
print(json.dumps({"package": f"trl {trl.__version__}", "worst": worst, "syncs": len(syncs)}))
