"""axolotl_trainer.py URL MODEL_DIR OUTPUT: four steps of axolotl's GRPO trainer with trl.vllm_lora_sync.

After each step it writes the adapter into a folder, asks the server to load it and draws the next completions with it.
"""
import json
import os
import pathlib
import re
import sys

from oracle import Oracle, without_vllm



def main():
    without_vllm()
    import axolotl.cli.train
    import axolotl.core.trainers.grpo.async_trainer as asynchronous
    import requests
    # axolotl 0.19 overrides this method with the arguments and results of an older TRL than the one it asks for (1.9), which
    # calls it with the tiles of images and takes a third result. Without this its asynchronous trainers do not get to a second step.
    trainer = asynchronous.AsyncGRPOTrainer
    log_probs = trainer._get_per_token_logps_and_entropies

    def as_trl_calls_it(self, *positional, **named):
        if "num_tiles" not in named:
            return log_probs(self, *positional, **named)
        del named["num_tiles"]
        return (*log_probs(self, *positional, **named), None)
    trainer._get_per_token_logps_and_entropies = as_trl_calls_it

    url, directory, output = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    (output / "prepared").mkdir(parents=True, exist_ok=True)
    os.chdir(output)
    sys.path.insert(0, str(output))
    (output / "client_rewards.py").write_text(
        "def variety(completions, **_):\n    return [float(len(set(text))) for text in completions]\n\n\n"
        "def prompts(cfg, *args, **kwargs):\n    return lambda row, tokenizer=None: {'prompt': row['prompt']}\n")
    (output / "data.jsonl").write_text("".join(json.dumps({"prompt": f"{a} + {a + 3} ="}) + "\n" for a in range(1, 17)))
    host, port = re.fullmatch(r"http://(.*):(\d+)", url).groups()
    (output / "config.yaml").write_text(json.dumps({  # JSON is YAML
        "base_model": directory, "rl": "grpo", "adapter": "lora", "lora_r": 8, "lora_alpha": 64, "lora_target_linear": True,
        "datasets": [{"path": "data.jsonl", "ds_type": "json", "split": "train", "type": "client_rewards.prompts"}],
        "trl": {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": host, "vllm_server_port": int(port),
                "vllm_lora_sync": True, "use_data_producer": True, "vllm_sync_interval": 1, "num_generations": 4,
                "max_completion_length": 12, "reward_funcs": ["client_rewards.variety"]},
        "vllm": {"host": host, "port": int(port)}, "micro_batch_size": 8, "gradient_accumulation_steps": 1, "max_steps": 4,
        "learning_rate": 0.01, "lr_scheduler": "constant", "warmup_steps": 0, "optimizer": "adamw_torch",
        "sequence_len": 128, "bf16": False,
        "logging_steps": 1, "save_strategy": "no", "output_dir": "out", "dataset_prepared_path": "prepared",
        "gradient_checkpointing": False, "dataset_num_proc": 1, "val_set_size": 0.0, "seed": 1}))
    loaded = []
    post = requests.post

    def noting(address, *args, **kwargs):
        answer = post(address, *args, **kwargs)
        if "lora_adapter" in address:
            loaded.append((address.rsplit("/", 1)[-1] or address, answer.status_code))
            name = kwargs["json"]["lora_name"]
            check(name, kwargs["json"]["lora_path"])
        return answer

    requests.post = noting
    worst = []

    def check(name, folder):
        """What the server draws with the adapter that it was just given has peft's log-probs for that adapter."""
        import peft
        oracle = Oracle(directory)
        ids = oracle.tokenizer("2 + 5 =")["input_ids"]
        oracle.model = peft.PeftModel.from_pretrained(oracle.model, folder).eval()
        answer = post(f"{url}/v1/completions", json={"model": name, "prompt": ids, "max_tokens": 8, "logprobs": 0,
                                                     "return_token_ids": True}).json()["choices"][0]
        worst.append(oracle.check(ids, answer["token_ids"], answer["logprobs"]["token_logprobs"]))

    axolotl.cli.train.do_cli(str(output / "config.yaml"))
    assert len(loaded) >= 3 and {status for _, status in loaded} == {200}, loaded
    print(json.dumps({"package": f"axolotl {__import__('importlib.metadata').metadata.version('axolotl')}",
                      "worst": max(worst), "loads": len(loaded)}))


if __name__ == "__main__":  # axolotl's workers import this file
    main()
