#!/usr/bin/env python3
"""Energy-based fine-tuning beside axolotl's trainers themselves: the same steps, number by number, or the time of a step.

    python benchmarks/trainer/ebft_baseline.py compare [--rlalgo BINARY] [--model DIR] [--rows FILE] [--only NAME]
    python benchmarks/trainer/ebft_baseline.py time --model DIR [--tokens 512] [--layers N]

Environment (CPU is enough; nothing of this repository needs it): axolotl 0.19.0, trl 1.9.0, transformers 5.16.1, peft, accelerate, datasets and
torch 2.11. Run with OMP_NUM_THREADS=1.

compare: `rlalgo train` runs every case for some optimizer steps and records what it drew (ebft.save_rollouts). axolotl's trainer class then makes the
same steps from the same weights on the same rows, with the recorded tokens in place of its sampler; the cases at temperature 0 sample for themselves.
Compared of every step: rewards and advantages of all samples, metrics, loss, gradient norm; at the end, the weights. What is put into axolotl:
  device    strided: the feature network stays in float32 on the CPU (it is cast to bfloat16 and moved to CUDA); with an adapter it is the base alone, as
            on one GPU (without one it is copied with the adapter)
  rows      strided: the row that predicts a generated token, by a hook on the last hidden states    } its two mistakes, see
  order     strided: the advantage of a token is its block's                                        } docs/departures.md
  equal     group_norm: a group of the same samples has advantage 0; axolotl divides the rounding of their mean by 1e-8
  accumulate  strided: the loss of a micro-batch is divided by their number
  unit      structured, where a case says so: per-token length 1 before pooling, which it leaves out
Strided cases end with what axolotl's gradient is without `rows` and `order`: its cosine with the gradient of the same loss.
"""
import argparse
import copy
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMON = dict(shuffle_merged_datasets=False, val_set_size=0.0, gradient_accumulation_steps=1, learning_rate=1e-3, optimizer="adamw_torch",
              lr_scheduler="constant", warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0, seed=3, bf16=False, fp16=False, logging_steps=1,
              save_strategy="no", use_tensorboard=False)

# ours: keys of the configuration. fixes: what is put into axolotl. own: axolotl samples for itself.
STRIDED = dict(rl="ebft", sequence_len=72, max_steps=4, trl=dict(shuffle_dataset=False))
STRUCTURED = dict(rl="ebft", sequence_len=256, max_steps=4, micro_batch_size=8)
ADAPTER = dict(adapter="lora", lora_r=4, lora_alpha=8, lora_dropout=0.0, lora_target_modules=["q_proj", "v_proj", "down_proj"])
CASES = {
    "text": dict(STRIDED, micro_batch_size=2, rows="text", fixes=("device", "rows", "order"), ebft=dict(
        temperature=1.0, advantage_estimator="rloo_naive", ce_coef=0.1)),
    "text, whitened, mean": dict(STRIDED, micro_batch_size=2, rows="text", fixes=("device", "rows", "order", "equal"), ebft=dict(
        stride=4, generate_max_len=6, context_length=5, n_samples_per_prompt=3, temperature=1.0, advantage_estimator="group_norm",
        use_whitening=True, embed_method="mean_pooling", ce_coef=0.03, diversity_coef=0.5)),
    "prompt and answer, whitened": dict(STRIDED, micro_batch_size=1, rows="answer", fixes=("device", "rows", "order"), ebft=dict(
        stride=4, generate_max_len=4, temperature=1.0, advantage_estimator="rloo_naive", use_whitening=True, ce_coef=0.1, min_completion_prefix=2)),
    "text, temperature 0": dict(STRIDED, micro_batch_size=2, rows="text", fixes=("device", "rows", "order"), own=True, ebft=dict(
        temperature=0.0, n_samples_per_prompt=2, advantage_estimator="reinforce", ce_coef=0.1)),
    "text, adapter, accumulated": dict(STRIDED, **ADAPTER, micro_batch_size=1, gradient_accumulation_steps=2, rows="text",
                                       fixes=("device", "rows", "order", "accumulate"), ebft=dict(
        temperature=1.0, advantage_estimator="rloo_naive", ce_coef=0.1)),
    "prompt and answer, adapter, whitened": dict(STRIDED, **ADAPTER, micro_batch_size=1, rows="answer", fixes=("device", "rows", "order"), ebft=dict(
        stride=4, generate_max_len=4, temperature=1.0, advantage_estimator="rloo_naive", use_whitening=True, embed_method="mean_pooling", ce_coef=0.1)),
    "completions, adapter, accumulated": dict(STRUCTURED, **ADAPTER, micro_batch_size=4, gradient_accumulation_steps=2, rows="chat", fixes=(), ebft=dict(),
                                              trl=dict(num_generations=4, max_completion_length=40, temperature=1.0, scale_rewards=True)),
    "completions": dict(STRUCTURED, rows="chat", fixes=(), ebft=dict(), trl=dict(
        num_generations=4, max_completion_length=40, temperature=1.0, scale_rewards=True)),
    "completions, temperature 0": dict(STRUCTURED, rows="chat", fixes=(), own=True, ebft=dict(), trl=dict(
        num_generations=4, max_completion_length=40, temperature=0.0, scale_rewards=True)),
    "completions, whitened, mean": dict(STRUCTURED, rows="chat", fixes=("unit",), ebft=dict(
        use_whitening=True, embed_method="completion_mean", diversity_coef=0.5), trl=dict(
        num_generations=4, max_completion_length=40, temperature=0.9, scale_rewards=False)),
    "completions, three places": dict(STRUCTURED, rows="chat", fixes=("unit",), ebft=dict(embed_method="concat"), trl=dict(
        num_generations=4, max_completion_length=40, temperature=0.8, scale_rewards=True, loss_type="grpo")),
}
TYPES = dict(text="ebft_pretrain.transform", answer="ebft_strided_structured.transform", chat="ebft_opencode.transform")


def rows_of(kind, problems):
    """Texts and answers are several rows one after the other, longer than sequence_len: axolotl would train on padding."""
    if kind == "chat":
        return [{"input": p["question"], "output": p["answer"]} for p in problems[:64]]
    together = lambda i, k: "\n".join(p["question"] + "\n" + p["answer"] for p in problems[i:i + k])
    if kind == "text":
        return [{"text": together(8 * i, 8)} for i in range(8)]
    return [{"prompt": problems[8 * i]["question"], "completion": together(8 * i + 1, 7)} for i in range(8)]


def train_ours(binary, model, case, rows, work):
    (work / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    config = {k: v for k, v in case.items() if k not in ("rows", "fixes", "own")}
    if "adapter" in case:
        config["lora_model_dir"] = str(work / "adapter")
    config = {**COMMON, **config, "base_model": str(model), "output_dir": str(work / "out"),
              "datasets": [{"path": str(work / "rows.jsonl"), "type": TYPES[case["rows"]]}]}
    strided = case["rows"] != "chat"
    config["ebft"] = {**case["ebft"], "save_rollouts": True, "mode": "strided" if strided else "structured"}
    if strided:
        config["ebft"]["feature_normalization"] = "per_layer"
    config["trl"] = {**case.get("trl", {}), "shuffle_dataset": False}
    (work / "config.yaml").write_text(json.dumps(config, indent=1))
    done = subprocess.run([binary, "train", str(work / "config.yaml")], capture_output=True, text=True, cwd=work)
    if done.returncode != 0:
        sys.exit(f"rlalgo train failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    read = lambda name: [json.loads(x) for x in open(work / "out" / name) if x.strip()]
    metrics = {m["step"]: m for m in read("metrics.jsonl") if "loss" in m}
    drawn = {}
    for line in read("ebft_rollouts.jsonl"):
        drawn.setdefault(line["step"], []).append(line)
    return config, metrics, drawn


# ------------------------------------------------------------------------------------------------- axolotl's side
def arguments(case, config, work):
    return dict(output_dir=str(work / "axolotl"), per_device_train_batch_size=case["micro_batch_size"], max_steps=case["max_steps"],
                gradient_accumulation_steps=case.get("gradient_accumulation_steps", 1),
                learning_rate=config["learning_rate"], lr_scheduler_type="constant", optim="adamw_torch", weight_decay=0.0, max_grad_norm=1.0,
                logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, remove_unused_columns=False, disable_tqdm=True, bf16=False,
                fp16=False)


def strided_trainer(model, rows, case, config, tokenizer, work, tokens_of=None):
    import torch
    from axolotl.core.trainers.ebft import strided
    from axolotl.core.trainers.ebft.args import AxolotlStridedEBFTConfig
    from axolotl.utils.dict import DictDefault
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import default_data_collator

    class Shim:  # `device`: copies that stay where and what they are
        @staticmethod
        def deepcopy(m):
            out = copy.deepcopy(m)
            out.to = lambda *a, **k: out
            return out

    class Tiled(torch.Tensor):  # `order`: [B·n, K] → [B·n, G·K], step after step
        def repeat_interleave(self, count, dim):
            assert dim == 1
            return self.as_subclass(torch.Tensor).repeat(1, count)

    class Trainer(strided.AxolotlStridedEBFTTrainer):
        def _get_train_sampler(self, *a, **k):
            return SequentialSampler(self.train_dataset)

        def _generate_strided_blocks(self, model, prompt_ids, num_blocks, anchor_offset=None):
            if tokens_of is None:
                out = super()._generate_strided_blocks(model, prompt_ids, num_blocks, anchor_offset=anchor_offset)
            else:
                out = torch.cat([prompt_ids, tokens_of(self.state.global_step + 1, prompt_ids)], 1)
            self.drawn = out[:, prompt_ids.shape[1]:]
            return out

        def _compute_block_rewards(self, *a, **k):
            self.rewards = super()._compute_block_rewards(*a, **k)  # (B, n, K)
            return self.rewards

        def _compute_advantages(self, rewards, *a):
            out = super()._compute_advantages(rewards, *a)  # (B·n, K)
            if "equal" in self.fixes:
                out[((rewards.amax(1) - rewards.amin(1)) < 1e-5).repeat_interleave(rewards.shape[1], 0)] = 0
            self.advantages = out.clone()
            return out.as_subclass(Tiled) if "order" in self.fixes else out

    name, strided.copy = strided.copy, Shim
    try:
        e = config["ebft"]
        estimator = e.get("advantage_estimator", "rloo")
        args = AxolotlStridedEBFTConfig(
            **arguments(case, config, work), ebft_advantage_estimator="rloo" if estimator == "rloo_naive" else estimator,
            **{"ebft_" + k: e[k] for k in ("stride", "context_length", "generate_max_len", "n_samples_per_prompt", "temperature", "top_p",
                                           "diversity_coef", "ce_coef", "use_whitening", "embed_method", "min_completion_prefix") if k in e})
        transform = __import__("axolotl.prompt_strategies.ebft." + TYPES[case["rows"]].split(".")[0], fromlist=["transform"]).transform
        make, _ = transform(DictDefault({"sequence_len": case["sequence_len"]}))
        data = Dataset.from_list([make(r, tokenizer=tokenizer) for r in rows])
        trainer = Trainer(model=model, args=args, train_dataset=data, data_collator=default_data_collator, processing_class=tokenizer)
    finally:
        strided.copy = name
    trainer.fixes = case["fixes"]
    trainer._feature_device, trainer._feature_use_flex = torch.device("cpu"), False
    if "accumulate" in case["fixes"]:
        trainer.model_accepts_loss_kwargs = False
    if "adapter" in case:
        with torch.no_grad():
            trainer.feature_network = copy.deepcopy(model).unload().requires_grad_(False).eval()
    trainer.feature_network.config._attn_implementation = "eager"
    assert next(trainer.feature_network.parameters()).dtype == torch.float32

    def rows_hook(module, args_, kwargs, output):  # `rows`: states[p − 1] become those of the row that predicts the token at p
        if "rows" not in trainer.fixes or not torch.is_grad_enabled():
            return
        positions, S = kwargs["position_ids"][0], case["sequence_len"]
        K = trainer.drawn.shape[1] // trainer.ebft_generate_max_len
        blocks = torch.arange(K)
        order = [torch.arange(S - 1), positions[S:S + K] - 1]
        order += [S + (t - 1) * K + blocks for t in range(1, trainer.ebft_generate_max_len)]
        order.append(torch.tensor([len(positions) - 1]))
        output.last_hidden_state = output.last_hidden_state.index_select(1, torch.cat(order))

    (model.get_base_model() if "adapter" in case else model).model.register_forward_hook(rows_hook, with_kwargs=True)
    return trainer


def structured_trainer(model, rows, case, config, tokenizer, work, completions_of=None):
    import torch.nn.functional as F
    from axolotl.core.trainers.ebft import trainer as module
    from axolotl.core.trainers.ebft.args import AxolotlEBFTConfig
    from axolotl.prompt_strategies.ebft.ebft_opencode import transform
    from datasets import Dataset

    plain = getattr(module, "plain_extract_hidden_states", module.extract_hidden_states)
    module.plain_extract_hidden_states = plain
    module.extract_hidden_states = (lambda *a, **k: F.normalize(plain(*a, **k), dim=-1)) if "unit" in case["fixes"] else plain

    class Trainer(module.AxolotlEBFTTrainer):
        def _generate_single_turn(self, prompt_ids, *a, **k):
            if completions_of is None:
                out = super()._generate_single_turn(prompt_ids, *a, **k)
            else:
                out = completions_of(self.state.global_step + 1, prompt_ids), None
            self.drawn = [list(map(int, x)) for x in out[0]]
            return out

        def _feature_matching_reward(self, *a, **k):
            self.rewards = super()._feature_matching_reward(*a, **k)
            return self.rewards

        def _generate_and_score_completions(self, *a, **k):
            out = super()._generate_and_score_completions(*a, **k)
            self.advantages = out["advantages"].clone()
            return out

    t, e = case["trl"], config["ebft"]
    extra = dict(temperature=1.0, generation_kwargs={"do_sample": False}) if t["temperature"] == 0 else dict(temperature=t["temperature"])
    args = AxolotlEBFTConfig(
        **arguments(case, config, work), shuffle_dataset=False, gradient_checkpointing=False,
        **{k: t[k] for k in ("num_generations", "max_completion_length", "scale_rewards", "loss_type") if k in t},
        **{"ebft_" + k: e[k] for k in ("diversity_coef", "use_whitening", "embed_method") if k in e}, **extra)
    make, _ = transform({})
    return Trainer(model=model, args=args, train_dataset=Dataset.from_list([make(r) for r in rows]), processing_class=tokenizer)


def watched(trainer, gradients=False):
    """Runs the training; per step what it computed, not rounded."""
    import torch
    steps, inner = [], trainer.training_step

    def step(model, inputs, *a):
        steps.append(dict(log={}))  # the strided trainer logs while it computes
        loss = inner(model, inputs, *a)
        norm = math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in model.parameters() if p.grad is not None))
        steps[-1].update(loss=float(loss), grad_norm=norm, rewards=torch.as_tensor(trainer.rewards).clone(), advantages=trainer.advantages,
                         drawn=copy.deepcopy(trainer.drawn))
        for name, values in getattr(trainer, "_metrics", {"train": {}})["train"].items():  # what the other one is going to log
            if name.startswith("ebft/"):
                steps[-1]["log"][name] = values[-1]
        if gradients:
            steps[-1]["gradient"] = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        return loss

    def log(logs, *a, **k):
        if steps:
            steps[-1]["log"].update({n: v for n, v in logs.items() if n.startswith("ebft/")})

    trainer.training_step, trainer.log = step, log
    trainer.train()
    return steps


def whole_steps(steps, parts):
    """Optimizer steps of micro-batches: a strided one has documents of its own, completions are made for all of a step."""
    import torch
    out = []
    for i in range(0, len(steps), parts):
        of = steps[i:i + parts]
        step = dict(of[-1], loss=sum(s["loss"] for s in of))
        if torch.is_tensor(step["drawn"]):
            step.update({k: torch.cat([s[k] for s in of]) for k in ("drawn", "rewards", "advantages")})
            step["log"] = {k: sum(s["log"][k] for s in of) / parts for k in step["log"] if parts == 1 or k != "ebft/advantages_std"}
        out.append(step)
    return out


# ------------------------------------------------------------------------------------------------- the comparison
class Table:
    def __init__(self):
        self.worst = {}

    def add(self, name, ours, theirs, floor=0.0):
        """the largest |a − b| / max(|b|, floor, the largest |b| of the step)"""
        import torch
        a, b = (torch.as_tensor(x, dtype=torch.float64).flatten() for x in (ours, theirs))
        if a.shape != b.shape:
            self.worst[name] = math.inf
            return
        scale = max(float(b.abs().max()) if b.numel() else 0.0, floor)
        apart = float((a - b).abs().max()) if b.numel() else 0.0
        self.worst[name] = max(self.worst.get(name, 0.0), apart / scale if scale > 0 else apart)


def make_adapter(model, case, directory):
    """Both matrices drawn, so that the adapter has a say from the first step on."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.manual_seed(5)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=case["lora_r"], lora_alpha=case["lora_alpha"], lora_dropout=case["lora_dropout"],
                                              target_modules=case["lora_target_modules"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.02)
    adapted.save_pretrained(directory)


def compare_case(name, case, options, work):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    problems = [json.loads(x) for x in open(options.rows)]
    rows = rows_of(case["rows"], problems)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.padding_side = "right"  # its pooling takes that for granted
    start = work / "model"
    AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).save_pretrained(start)
    tokenizer.save_pretrained(start)
    if "adapter" in case:
        make_adapter(start, case, work / "adapter")
    config, metrics, drawn = train_ours(options.rlalgo, start, case, rows, work)
    strided, n = case["rows"] != "chat", config["ebft"].get("n_samples_per_prompt", 4)
    def load():
        model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, attn_implementation="eager")
        if "adapter" not in case:
            return model
        from peft import PeftModel
        return PeftModel.from_pretrained(model, work / "adapter", is_trainable=True)

    def weights_of(model):
        if "adapter" not in case:
            return {k: v.clone() for k, v in model.state_dict().items()}
        from peft import get_peft_model_state_dict
        return {k: v.clone() for k, v in get_peft_model_state_dict(model).items()}

    def blocks_of(step, prompt_ids):  # [B·n, G·K], step after step
        out = []
        documents = {tuple(d["document_ids"]): d for d in drawn[step]}
        for ids in prompt_ids[::n].tolist():
            d = documents[tuple(ids)]
            for j in range(n):
                out.append([b["samples"][j][t] for t in range(len(d["blocks"][0]["samples"][j])) for b in d["blocks"]])
        return torch.tensor(out)

    def completions_of(step, prompt_ids):
        lines = drawn[step]
        count = len(lines[0]["samples"])
        assert [list(map(int, p)) for p in prompt_ids[::count]] == [d["prompt_ids"] for d in lines], "axolotl's prompts are others"
        return [s["ids"] for d in lines for s in d["samples"]]

    def make(model, case):
        kind, tokens = (strided_trainer, blocks_of) if strided else (structured_trainer, completions_of)
        return kind(model, rows, case, config, tokenizer, work, None if case.get("own") else tokens)

    model = load()
    parts = case.get("gradient_accumulation_steps", 1)
    steps = whole_steps(watched(make(model, case), gradients=strided), parts)
    table, same = Table(), True
    for i, s in enumerate(steps, 1):
        m, lines = metrics[i], drawn[i]
        if strided:
            ours = {k: [[[b[k][j] for b in d["blocks"]] for j in range(n)] for d in lines] for k in ("reward", "advantage")}
            same &= bool((blocks_of(i, torch.tensor([d["document_ids"] for d in lines]).repeat_interleave(n, 0)) == s["drawn"]).all())
        else:
            ours = {k: [x[k] for d in lines for x in d["samples"]] for k in ("reward", "advantage")}
            same &= [x["ids"] for d in lines for x in d["samples"]] == s["drawn"]
        table.add("rewards", ours["reward"], s["rewards"], 1e-1)
        table.add("advantages", ours["advantage"], s["advantages"], 1e-3)
        table.add("loss", m["loss"], s["loss"], 1e-2)
        table.add("gradient norm", m["grad_norm"], s["grad_norm"], 1e-3)
        if i == 1:
            table.add("gradient norm of the first step", m["grad_norm"], s["grad_norm"], 1e-3)
        for k, v in s["log"].items():
            if k != "ebft/anchor_offset":
                table.add(k, m[k], v, 1e-2)
    before, final = weights_of(load()), load_file(work / "out" / ("adapter_model.safetensors" if "adapter" in case else "model.safetensors"))
    moved = apart = 0.0
    for k, v in weights_of(model).items():
        if k in final:
            moved += float((v - before[k]).double().pow(2).sum())
            apart += float((v - final[k].float()).double().pow(2).sum())
    out = dict(case=name, steps=len(steps), same_tokens=same, losses=[s["loss"] for s in steps], grad_norms=[s["grad_norm"] for s in steps],
               worst=table.worst, weights=math.sqrt(apart / moved) if moved else math.sqrt(apart))
    if strided and len(steps):
        fixes = tuple(f for f in case["fixes"] if f in ("device", "accumulate"))
        released = whole_steps(watched(make(load(), dict(case, fixes=fixes, max_steps=1)), gradients=True), parts)[0]
        a, b = released["gradient"].double(), steps[0]["gradient"].double()
        out["as_released"] = dict(loss=released["loss"], mended_loss=steps[0]["loss"], grad_norm=released["grad_norm"],
                                  mended_grad_norm=steps[0]["grad_norm"], cosine=float(a @ b / (a.norm() * b.norm())))
    return out


def show(r):
    worst = ", ".join(f"{k.removeprefix('ebft/')} {v:.0e}" for k, v in r["worst"].items())
    list_of = lambda values, digits: ", ".join(f"{x:.{digits}f}" for x in values)
    print(f"{r['case']}: {r['steps']} steps, {'the same tokens' if r['same_tokens'] else 'OTHER TOKENS'}; losses {list_of(r['losses'], 5)}; "
          f"gradient norms {list_of(r['grad_norms'], 4)}\n    relative differences at most: {worst}; weights {r['weights']:.0e} of their update")
    if "as_released" in r:
        a = r["as_released"]
        print(f"    as released: loss {a['loss']:.5f} (mended {a['mended_loss']:.5f}), gradient norm {a['grad_norm']:.4f} "
              f"({a['mended_grad_norm']:.4f}), cosine of the gradients {a['cosine']:.3f}")


def compare(options):
    results = []
    for name, case in CASES.items():
        if options.only and options.only != name:
            continue
        with tempfile.TemporaryDirectory() as work:
            results.append(compare_case(name, case, options, pathlib.Path(work)))
        show(results[-1])
        sys.stdout.flush()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    bad = [r["case"] for r in results if not r["same_tokens"] or max(r["worst"].values()) > options.tolerance]
    if bad:
        sys.exit(f"differ: {', '.join(bad)}")


def step_time(options):
    """One strided step of axolotl's trainer as bench_trainer_strided_step makes it: one document, n = 4, stride = G = 8, random weights."""
    import resource
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    shape = AutoConfig.from_pretrained(options.model)
    if options.layers:
        shape.num_hidden_layers = options.layers
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(shape, attn_implementation="eager", dtype=torch.float32)
    random.seed(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    case = dict(sequence_len=options.tokens, micro_batch_size=1, max_steps=1, rows="text", fixes=("device",))
    config = dict(learning_rate=1e-6, ebft=dict(temperature=1.0, use_whitening=True, ce_coef=0.03))
    with tempfile.TemporaryDirectory() as work:
        rows = [{"text": " ".join(str(random.randrange(10000)) for _ in range(options.tokens))}]
        trainer = strided_trainer(model, rows, case, config, tokenizer, pathlib.Path(work))
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        trainer.train()
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    seconds = lambda usage: usage.ru_utime + usage.ru_stime
    print(json.dumps(dict(tokens=options.tokens, layers=shape.num_hidden_layers, wall=round(wall, 1),
                          processor=round(seconds(after) - seconds(before), 1),
                          peak_above_start_MB=round((after.ru_maxrss - before.ru_maxrss) / 1024), threads=torch.get_num_threads())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    p = verbs.add_parser("compare")
    p.add_argument("--rlalgo", default=str(ROOT / "build/release/bin/rlalgo"))
    p.add_argument("--model", default=str(ROOT / "examples/quickstart/model"))
    p.add_argument("--rows", default=str(ROOT / "examples/quickstart/data/train.jsonl"), help="JSON lines with question and answer")
    p.add_argument("--only")
    p.add_argument("--json")
    p.add_argument("--tolerance", type=float, default=1e-2)
    p = verbs.add_parser("time")
    p.add_argument("--model", required=True)
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--layers", type=int)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("AXOLOTL_DO_NOT_TRACK", "1")
    (compare if options.verb == "compare" else step_time)(options)


if __name__ == "__main__":
    main()
