"""trl_client.py URL MODEL_DIR: the installed TRL's VLLMClient: generate, chat, teacher's log-probs, the fence."""
import json
import sys

from oracle import Oracle, without_vllm

import trl

oracle = Oracle(sys.argv[2])
client = without_vllm().VLLMClient(base_url=sys.argv[1], connection_timeout=20)
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
print(json.dumps({"package": f"trl {trl.__version__}", "worst": worst}))
