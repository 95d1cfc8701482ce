"""The reward of trl_grpo.py, for both sides: the share of even ids of a completion. `record` is a file that keeps the completions."""
import json


def even_ids(prompts, completion_ids, record=None, **_):
    if record:
        with open(record, "a") as file:
            file.write(json.dumps([{"prompt": p, "ids": list(c)} for p, c in zip(prompts, completion_ids)]) + "\n")
    return [sum(1 for i in ids if i % 2 == 0) / max(1, len(ids)) for ids in completion_ids]
