"""trl_trainer.py URL MODEL_DIR OUTPUT: three steps of TRL's own GRPOTrainer (1.16) in server mode.

TRL's transport of weights is NCCL and asks for a CUDA device. On a machine without one the two methods of its client that use
it are replaced here: the tensors go as base64 texts with /update_weights. All else is TRL's: which requests it sends, and in which order.
"""
import base64
import json
import sys

from oracle import Oracle, without_vllm

module = without_vllm()
import datasets
import torch
import trl

url, directory, output = sys.argv[1:4]
client_class = module.VLLMClient
syncs = []


def init_communicator(self, device=0):
    self.get_server_info()
    assert self.get_world_size() == 1
    self._post(f"{self.base_url}/init_weight_transfer_engine", json={"init_info": {"backend": "http"}})


def update_named_params(self, metadata, named_params):
    names, types, shapes = (list(field) for field in zip(*metadata, strict=True))
    self._start_weight_update()
    data = [base64.b64encode(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()).decode()
            for _, tensor in named_params]
    self._post(f"{self.base_url}/update_weights",
               json={"update_info": {"names": names, "dtype_names": types, "shapes": shapes, "data": data}})
    self._finish_weight_update()
    syncs.append(len(names))


if not torch.cuda.is_available():
    client_class.init_communicator, client_class.update_named_params = init_communicator, update_named_params


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
