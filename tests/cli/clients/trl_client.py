"""trl_client.py URL MODEL_DIR: the installed TRL's VLLMClient: generate, chat, teacher's log-probs, the fence; up to 1.9 weights, too.

Up to 1.9 TRL broadcasts weights with NCCL, or on Intel's devices with a process group of c10d. The latter way is taken here, with Gloo in
the place of XCCL; all else is TRL's.
"""
import datetime
import json
import socket
import sys
import types

from oracle import Oracle, without_vllm

import torch
import torch.distributed as dist
import trl

oracle = Oracle(sys.argv[2])
module = without_vllm()
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
client = module.VLLMClient(base_url=sys.argv[1], connection_timeout=20, group_port=port)
texts = ["3 + 4 =", "The sum of 12 and 9 is"]
ids = [oracle.tokenizer(text)["input_ids"] for text in texts]
worst = 0.0


def check(out, prompts):
    assert out["prompt_ids"] == prompts, (out["prompt_ids"], prompts)
    n = len(out["completion_ids"]) // len(prompts)
    worst = 0.0
    for i, completion in enumerate(out["completion_ids"]):
        values = [row[tokens.index(token)] for token, row, tokens in
                  zip(completion, out["logprobs"][i], out["logprob_token_ids"][i], strict=True)]
        worst = max(worst, oracle.check(prompts[i // n], completion, values))
    return worst


for prompts in (ids, texts):
    worst = max(worst, check(client.generate(prompts, n=3, max_tokens=8, temperature=1.0, logprobs=2), ids))
greedy = [client.generate(ids, max_tokens=8, temperature=0.0, generation_kwargs={"ignore_eos": True}) for _ in range(2)]
assert greedy[0]["completion_ids"] == greedy[1]["completion_ids"]
messages = [[{"role": "user", "content": text}] for text in texts]
rendered = [oracle.tokenizer.apply_chat_template(m, add_generation_prompt=True, tokenize=True, return_dict=False)
            for m in messages]
worst = max(worst, check(client.chat(messages, n=2, max_tokens=6, temperature=1.0), rendered))
sequence = ids[0] + greedy[0]["completion_ids"][0]
scored = client.get_sequence_logprobs([sequence], [len(ids[0])], top_logprobs=2)
values = [row[tokens.index(token)] for token, row, tokens in
          zip(sequence[len(ids[0]):], scored["logprobs"][0], scored["logprob_token_ids"][0])]
worst = max(worst, oracle.check(ids[0], sequence[len(ids[0]):], values))
client.reset_prefix_cache()


class GlooForXccl:
    Options = staticmethod(lambda: None)

    def __new__(cls, store, rank, size, options):
        return dist.ProcessGroupGloo(store, rank, size, datetime.timedelta(seconds=60))


broadcast = hasattr(module, "is_torch_xpu_available")
if broadcast:
    module.is_torch_xpu_available = lambda: True
    module.c10d.ProcessGroupXCCL = GlooForXccl
    torch.xpu.get_device_properties = lambda device: types.SimpleNamespace()
    with torch.no_grad():
        for parameter in oracle.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std().nan_to_num())
    client.init_communicator(device="xpu:0")
    client.update_model_params(oracle.model)
    client.reset_prefix_cache()  # TRL waits for none of its broadcasts
    worst = max(worst, check(client.generate(ids, n=3, max_tokens=8, temperature=1.0), ids))
    client.close_communicator()
print(json.dumps({"package": f"trl {trl.__version__}", "worst": worst, "broadcast": broadcast}))
