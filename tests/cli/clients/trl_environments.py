"""trl_environments.py MODEL_DIR ROWS AGGREGATION: one step of TRL's GRPOTrainer (1.16) with a dictionary of environments.

The scripted model speaks in the place of generate(), and calls are read as Hermes' are: TRL asks that of transformers for templates
that it knows. All else is TRL's. Prints a JSON object: metrics, and for each completion what rewards were given, its rewards and its advantage.
"""
import json
import math
import os
import re
import sys

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["SCRIPTED_SEEN"] = os.path.abspath("seen.jsonl")
import datasets
import torch
import transformers
import trl
import trl.trainer.grpo_trainer as module

import scripted_games as games
from scripted_model import TEMPLATE, Speaker, Words

directory, rows, aggregation = sys.argv[1:4]
tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
tokenizer.chat_template = TEMPLATE
speaker = Speaker(Words(tokenizer.get_vocab(), tokenizer.all_special_tokens + ["<|im_start|>"]), tokenizer.eos_token_id)


def parsed(tokenizer, ids, prefix=None, tools=None):
    text = tokenizer.decode([i for i in ids if i != tokenizer.eos_token_id])
    calls = re.findall(r"<tool_call>(.*?)</tool_call>", text)
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text.split("<tool_call>")[0],
            "tool_calls": [{"type": "function", "function": json.loads(call)} for call in calls]}


def with_template(processing_class):
    processing_class.response_template = "hermes"
    return processing_class


module.parse_response, module.add_response_schema = parsed, with_template


class Trainer(trl.GRPOTrainer):
    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False):
        return speaker.answers(prompt_ids), None

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        self.advantages = out["advantages"].tolist()
        return out


trainer = Trainer(
    model=transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32), processing_class=tokenizer,
    reward_funcs=games.length, train_dataset=datasets.Dataset.from_list([json.loads(line) for line in open(rows)]),
    environment_factory={"shelf": games.Shelf, "room": games.Room, "second": games.Shelf, "other": games.Other},
    args=trl.GRPOConfig(output_dir="trl", max_steps=1, per_device_train_batch_size=24, num_generations=4, max_completion_length=150,
                        learning_rate=1e-3, lr_scheduler_type="constant", beta=0.0, loss_type="grpo", shuffle_dataset=False, logging_steps=1,
                        save_strategy="no", report_to=[], use_cpu=True, bf16=False, multi_objective_aggregation=aggregation))
trainer.train()
metrics = [row for row in trainer.state.log_history if "loss" in row][0]
kept = ("grad_norm", "num_tokens", "completions/", "tools/", "rewards/", "reward", "frac_reward_zero_std", "entropy")
rewards = trainer._logs["rewards"]
print(json.dumps({
    "metrics": {name: value for name, value in metrics.items() if name.startswith(kept)},
    "said": sorted(speaker.said),
    "rows": [{"seen": json.loads(line), "rewards": {name: None if math.isnan(values[i]) else values[i] for name, values in rewards.items()},
              "advantage": trainer.advantages[i]} for i, line in enumerate(open("seen.jsonl"))]}))
