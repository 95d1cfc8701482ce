"""Energy-based fine-tuning as a user runs it: both modes from YAML, resumed to the same bytes, and its bad input."""
import json
import math
import pathlib
import random
import shutil
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, ROOT, is_measured, main, same_files  # noqa: E402

CASES = {}
COMMON = {"base_model": str(QUICKSTART / "model"), "rl": "ebft", "learning_rate": 1e-3, "lr_scheduler": "constant", "warmup_steps": 0,
          "max_steps": 2, "logging_steps": 1, "save_strategy": "no", "output_dir": "out", "float32": True}
STRIDED = {**COMMON, "datasets": [{"path": str(QUICKSTART / "data/train.jsonl"), "type": "ebft_strided_structured.transform"}],
           "sequence_len": 48, "micro_batch_size": 2, "gradient_accumulation_steps": 2,
           "ebft": {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3, "n_samples_per_prompt": 3, "temperature": 1.0,
                    "use_whitening": True, "ce_coef": 0.1, "save_rollouts": True}}
STRUCTURED = {**COMMON, "datasets": [{"path": "rows.jsonl", "type": "ebft_opencode.transform"}], "chat_template": "tokenizer_default",
              "micro_batch_size": 4, "gradient_accumulation_steps": 2,
              "ebft": {"mode": "structured", "embed_method": "completion_mean", "ce_coef": 0.1, "save_rollouts": True},
              "trl": {"num_generations": 4, "max_completion_length": 12}}
TURNS = [{"role": "user", "content": "2 + 3 ="}, {"role": "assistant", "content": "5"}, {"role": "user", "content": "and 1 more?"},
         {"role": "assistant", "content": "6"}]


def case(function):
    CASES[function.__name__] = function
    return function


def write(c, base, name="config.yaml", **changes):
    """A configuration; `ebft` and `trl` are merged. Rows of the structured mode stand beside it."""
    merged = json.loads(json.dumps(base))
    for key, value in changes.items():
        merged[key] = {**merged.get(key, {}), **value} if key in ("ebft", "trl") else value
    (c.folder / name).write_text(json.dumps(merged, indent=1))
    rows = [{"input": f"{i % 7} + {i % 5} =", "output": f"{i % 7 + i % 5}" + " apples" * (i % 3)} for i in range(16)]
    (c.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def train(c, base, *words, **changes):
    shutil.rmtree(c.folder / "out", ignore_errors=True)
    return c.run("train", write(c, base, **changes), *words)


def rollouts(c, folder="out"):
    return [json.loads(line) for line in (c.folder / folder / "ebft_rollouts.jsonl").read_text().splitlines()]


def finite(records):
    return all(math.isfinite(value) for record in records for value in record.values() if isinstance(value, (int, float)))


def resumed(c, base, **changes):
    """Killed at random moments and resumed each time: the files of an undisturbed run, rollouts included."""
    name = write(c, base, max_steps=6, save_strategy="steps", save_steps=2, logging_steps=2, auto_resume_from_checkpoints=True, **changes)
    begin = time.monotonic()
    c.run("train", name).expect(0)
    duration = time.monotonic() - begin
    (c.folder / "out").rename(c.folder / "whole")
    dice = random.Random(3)
    for _ in range(4):
        process = c.start("train", name, once=True)
        time.sleep(dice.uniform(0.3, 0.9) * duration)
        process.kill()
        process.communicate()
    for _ in range(2):
        c.run("train", name).expect(0)
        same_files(c.folder / "whole", c.folder / "out")
    shutil.rmtree(c.folder / "out/checkpoint-6")  # ended behind checkpoint 4, in the middle of a line
    with open(c.folder / "out/ebft_rollouts.jsonl", "a") as file:
        file.write('{"step": 6, "mo')
    c.run("train", name).expect(0)
    same_files(c.folder / "whole", c.folder / "out")
    assert {line["step"] for line in rollouts(c)} == set(range(1, 7))
    for at in (2, 4):
        c.run("train", name, "--resume-from-checkpoint", f"whole/checkpoint-{at}", "--output-dir", "half").expect(0)
        for file in ["model.safetensors", "adapter_model.safetensors", "checkpoint-6/optimizer.safetensors"]:
            path = c.folder / "half" / file
            assert not path.exists() or path.read_bytes() == (c.folder / "whole" / file).read_bytes(), (at, file)
        shutil.rmtree(c.folder / "half")
    c.run("train", name, "--ebft.alignment-coef", "2", "--resume-from-checkpoint", "whole/checkpoint-2").expect(1, "[rlalgo.run.12]", "alignment_coef")


@case
def strided_resumes(c):
    resumed(c, STRIDED)


@case
def structured_resumes(c):
    resumed(c, STRUCTURED, trl={"num_iterations": 2})


@case
def adapter_and_turns_resume(c):
    """An adapter with dropout, whose features are the base's; a conversation that the samples carry on."""
    (c.folder / "talk.jsonl").write_text("".join(json.dumps({"messages": TURNS}) + "\n" for _ in range(8)))
    resumed(c, STRUCTURED, datasets=[{"path": "talk.jsonl", "type": "ebft_chat_multiturn.transform"}], adapter="lora", lora_r=4, lora_alpha=8,
            lora_target_linear=True, lora_dropout=0.1)
    sample = rollouts(c)[0]["samples"][0]
    assert len(sample["feature_ids"]) > len(sample["ids"]), sample


@case
def packed_texts_resume(c):
    rows = [{"text": f"{i} + {i % 7} = {i + i % 7}."} for i in range(60)]
    (c.folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    resumed(c, STRIDED, datasets=[{"path": "texts.jsonl", "type": "ebft_pretrain.transform"}], sequence_len=32,
            ebft={"pack_documents": True, "document_masking": True})
    lines = rollouts(c)
    assert all(len(line["document_ids"]) <= 32 and line["texts"][0] == 0 for line in lines)
    for line in lines:
        ends = line["texts"][1:] + [len(line["document_ids"])]
        for block in line["blocks"]:
            begin = max(t for t in line["texts"] if t <= block["start"])
            assert begin < block["start"] and block["start"] + 3 <= min(e for e in ends if e > begin), (line["texts"], block["start"])


@case
def metrics_and_report(c):
    train(c, STRIDED).expect(0)
    record = c.metrics()[0]
    for name in ["rl_loss", "ce_loss", "cfm_loss", "mean_reward", "alignment", "diversity", "num_blocks", "advantages_std", "anchor_offset"]:
        assert math.isfinite(record["ebft/" + name]), name
    samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
    assert {"prompt", "completion", "rewards", "advantage", "logged"} <= samples[0].keys() and samples[0]["logged"]["ground_truth"], samples[0]
    assert set(samples[0]["rewards"]) == {"alignment", "diversity", "reward"}
    page = (c.folder / "out/report.html").read_text()
    assert "<h2>Feature matching</h2>" in page and "<h2>Sample blocks</h2>" in page and "Ground truth" in page
    train(c, STRUCTURED).expect(0)
    record = c.metrics()[0]
    for name in ["ce_loss", "cfm_loss", "reward", "alignment", "diversity", "advantages_std"]:
        assert math.isfinite(record["ebft/" + name]), name
    advantages = [s["advantage"] for line in rollouts(c) if line["step"] == 1 for s in line["samples"]]
    mean = sum(advantages) / len(advantages)
    spread = math.sqrt(sum((a - mean) ** 2 for a in advantages) / (len(advantages) - 1))
    assert abs(record["ebft/advantages_std"] - spread) < 1e-9 * spread, (record["ebft/advantages_std"], spread)
    samples = [json.loads(line) for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
    assert samples[0]["logged"]["ground_truth"] and "<h2>Feature matching</h2>" in (c.folder / "out/report.html").read_text()


def same_step(c, base, one, other):
    """The first step in two cuts: the same draws and rewards, the same losses but for the order of sums."""
    found = []
    for cut in (one, other):
        train(c, base, max_steps=1, **cut).expect(0)
        found.append((rollouts(c), c.metrics()[0]))
    (lines, a), (others, b) = found
    key = "document_ids" if "document_ids" in lines[0] else "prompt_ids"
    assert len(lines) == len(others)
    for x, y in zip(lines, others):
        assert x[key] == y[key]
        for p, q in zip(x.get("blocks", x.get("samples")), y.get("blocks", y.get("samples"))):
            assert p.get("samples", p.get("ids")) == q.get("samples", q.get("ids"))
            for name in ("reward", "advantage"):
                values = zip(p[name], q[name]) if isinstance(p[name], list) else [(p[name], q[name])]
                assert all(abs(v - w) <= 1e-4 * max(1, abs(v)) for v, w in values), (name, p[name], q[name])
    for name, value in a.items():
        if is_measured(name) or not isinstance(value, (int, float)) or name in ("entropy",):
            continue
        assert abs(value - b[name]) <= 2e-4 * max(1.0, abs(value)), (name, value, b[name])


@case
def micro_batches(c):
    """Any micro-batch size gives the same step."""
    for size in (1, 4):
        same_step(c, STRIDED, {}, {"micro_batch_size": size, "gradient_accumulation_steps": 4 // size})
        same_step(c, STRUCTURED, {}, {"micro_batch_size": 2 * size, "gradient_accumulation_steps": 4 // size})


@case
def completions_without_draws(c):
    """generation_kwargs: {do_sample: false}: every sample of a prompt is the same one, without advantage, at any temperature."""
    found = []
    for temperature in (1.0, 0.5):
        train(c, STRUCTURED, max_steps=1, trl={"temperature": temperature, "generation_kwargs": {"do_sample": False}}).expect(0)
        found.append(rollouts(c))
        for line in found[-1]:
            assert all(s["ids"] == line["samples"][0]["ids"] and abs(s["advantage"]) < 1e-9 for s in line["samples"]), line
    ids = lambda lines: [s["ids"] for line in lines for s in line["samples"]]
    assert ids(found[0]) == ids(found[1])


@case
def thoughts_without_likelihood(c):
    rows = [{"messages": [{"role": "user", "content": f"{i} + 1 ="}, {"role": "assistant", "content": f"<think>\nwe add 1\n</think>\n\n{i + 1} apples in all"}]}
            for i in range(8)]
    (c.folder / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = [{"path": "talk.jsonl", "type": "ebft_reasoning.transform_strided"}]
    trained = {}
    for mask in (False, True):
        train(c, STRIDED, datasets=data, chat_template="tokenizer_default", ebft={"mask_thinking_ce": mask}).expect(0)
        trained[mask] = sum(rollouts(c)[0]["loss_mask"])
    # Marks of more than one token, as this tokenizer has them, are not masked; with marks of one token see document_transform_test.
    assert trained[True] <= trained[False] and trained[True] > 0, trained


@case
def ground_truths_whose_thoughts_are_not_trained(c):
    """With marks of one token each, the likelihood of completions' ground truths is that of what stands outside of thoughts."""
    model = c.model_copy()
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    for token, text in ((440, "<think>"), (441, "</think>")):
        gone = next(k for k, v in tokenizer["model"]["vocab"].items() if v == token)
        del tokenizer["model"]["vocab"][gone]
        tokenizer["model"]["vocab"][text] = token
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if gone not in (*m, "".join(m))]
        tokenizer["added_tokens"].append({"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    rows = [{"messages": [{"role": "user", "content": f"{i} + 1 ="}, {"role": "assistant", "content": f"<think>we add 1</think>{i + 1}"}]} for i in range(8)]
    (c.folder / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = [{"path": "talk.jsonl", "type": "ebft_reasoning.transform"}]
    loss = {}
    for mask in (False, True):
        train(c, STRUCTURED, base_model=str(model), datasets=data, max_steps=1, learning_rate=0.0,
              ebft={"mask_thinking_ce": mask, "ce_coef": 1.0}).expect(0)
        loss[mask] = c.metrics()[0]["ebft/ce_loss"]
        assert {440, 441} <= set(rollouts(c)[0]["ground_truth_ids"])
    assert loss[True] > 0 and abs(loss[True] - loss[False]) > 1e-3, loss
    shutil.rmtree(model)


@case
def examples(c):
    """Every file of examples/ebft trains on rows of the kind that it names."""
    rows = [json.loads(line) for line in (QUICKSTART / "data/train.jsonl").read_text().splitlines()[:40]]
    kinds = {"strided": rows,
             "strided_chat": [{"messages": [{"role": "user", "content": r["question"]}, {"role": "assistant", "content": r["answer"]}]} for r in rows],
             "structured": [{"input": r["question"], "output": r["answer"]} for r in rows]}
    names = sorted(path.stem for path in (ROOT / "examples/ebft").glob("*.yaml"))
    assert set(kinds) <= set(names), names
    for name in names:
        (c.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kinds.get(name, [{"text": r["answer"]} for r in rows])))
        c.run("train", ROOT / "examples/ebft" / f"{name}.yaml", "--base-model", QUICKSTART / "model", "--datasets.0.path", "data.jsonl",
              "--max-steps", "2", "--output-dir", name).expect(0)
        records = c.metrics(name)
        assert len(records) == 2 and finite(records) and records[0]["ebft/cfm_loss"] > 0, records


@case
def others_make_the_completions(c):
    """An environment, tools, a rollout function: what the model says last is matched."""
    (c.folder / "play.py").write_text('''
class Once:
    def reset(self, **row):
        self.steps = 0
        return " Think again."
    def step(self, text):
        self.steps += 1
        return ("sure?", 0.0, False) if self.steps == 1 else (None, 1.0, True)
def solve(model, processing_class, prompts, generation_config=None):
    out = []
    for prompt in prompts:
        text = processing_class.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
        inputs = processing_class(text, return_tensors="pt").to(model.device)
        ids = model.generate(**inputs, max_new_tokens=6, generation_config=generation_config)
        out.append(processing_class.decode(ids[0][inputs.input_ids.shape[1]:], skip_special_tokens=True) + " = " + prompt["ground_truth"])
    return out
''')
    for trl in [{"environment_factory": "play.Once"}, {"rollout_func": "play.solve"}, {"tools": ["calculator"]}]:
        result = train(c, STRUCTURED, trl={"max_completion_length": 80, **trl}).expect(0)
        lines = c.metrics()
        assert len(lines) == 2 and finite(lines), lines
        assert lines[0]["grad_norm"] > 0 and 0 < lines[0]["ebft/alignment"] <= 2, lines[0]
        if "environment_factory" in trl:
            assert lines[0]["environment/turns"] > 1 and "rewards/Once/mean" not in lines[0], lines[0]
            assert "Once has no effect" in result.err + result.out, result.err
        if "rollout_func" in trl:
            texts = [json.loads(line)["completion"] for line in (c.folder / "out/samples.jsonl").read_text().splitlines()]
            assert texts and all(" = " in text for text in texts), texts
    lines = [json.loads(line) for line in (c.folder / "rows.jsonl").read_text().splitlines()]
    (c.folder / "named.jsonl").write_text("".join(json.dumps({**line, "environment": "ab"[i % 2]}) + "\n" for i, line in enumerate(lines)))
    several = {"environment_factory": {"a": "play.Once", "b": "play.Twice"}, "max_completion_length": 80}
    (c.folder / "play.py").write_text((c.folder / "play.py").read_text() + "\nclass Twice(Once):\n    pass\n")
    result = train(c, STRUCTURED, datasets=[{"path": "named.jsonl", "type": "ebft_opencode.transform"}], trl=several)
    result.expect(0, "Once, Twice has no effect")
    train(c, STRUCTURED, trl=several).expect(1, "[rlalgo.environment.3]", "rows.jsonl:")
    train(c, STRUCTURED, trl={"reward_funcs": ["rewards.correct"]}).expect(2, "[rlalgo.config.8]", "features are its reward")
    for trl in [{"environment_factory": "play.Once"}, {"rollout_func": "play.solve"}]:
        train(c, STRIDED, trl=trl).expect(2, "[rlalgo.config.8]", "strided")


@case
def too_short(c):
    """Texts without room for a block, of padding alone and of nothing: finite losses, and told."""
    (c.folder / "short.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ["1", "", "1 2", " ", "<|endoftext|>", "3 4", "", "5"]))
    short = {"datasets": [{"path": "short.jsonl", "type": "ebft_pretrain.transform"}]}
    for coefficient in (0.0, 0.5):
        train(c, STRIDED, **short, ebft={"ce_coef": coefficient}).expect(0, "long enough for a block")
        records = c.metrics()
        assert finite(records) and all(r["ebft/steps_without_blocks"] == 1 and r["ebft/rl_loss"] == 0 for r in records), records
        assert all(line["blocks"] == [] for line in rollouts(c))
    (c.folder / "short.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ["1", "", "1 2 3 4 5 6 7 8 9 10 11 12", " "]))
    train(c, STRIDED, **short).expect(0)
    assert c.metrics()[0]["ebft/steps_without_blocks"] == 0 and finite(c.metrics())
    (c.folder / "short.jsonl").write_text('{"text": "1"}\n')
    train(c, STRIDED, **short).expect(0, "long enough for a block")  # the only document of every step


@case
def last_step_of_an_epoch(c):
    """Seven documents, four a step: two steps an epoch, three documents in the second; every epoch shows all."""
    rows = [json.loads(line) for line in (QUICKSTART / "data/train.jsonl").read_text().splitlines()[:7]]
    (c.folder / "seven.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train(c, STRIDED, datasets=[{"path": "seven.jsonl", "type": "ebft_strided_structured.transform"}], max_steps=None, num_epochs=2).expect(0)
    records, lines = c.metrics(), rollouts(c)
    assert [r["step"] for r in records] == [1, 2, 3, 4] and [r["epoch"] for r in records] == [0.5, 1.0, 1.5, 2.0], records
    seen = {step: [tuple(line["document_ids"]) for line in lines if line["step"] == step] for step in range(1, 5)}
    assert [len(seen[step]) for step in seen] == [4, 3, 4, 3]
    assert set(seen[1] + seen[2]) == set(seen[3] + seen[4]) and len(set(seen[1] + seen[2])) == 7
    for record, step in zip(records, seen):
        of = [line for line in lines if line["step"] == step]
        mean = sum(sum(block["reward"]) for line in of for block in line["blocks"]) / sum(3 * len(line["blocks"]) for line in of)
        assert abs(record["ebft/mean_reward"] - mean) < 1e-6 * max(1, abs(mean)), (record, mean)


@case
def bad_settings(c):
    for changes, parts in [({"stride": 0}, ["[rlalgo.config.6]", "ebft.stride"]), ({"generate_max_len": 0}, ["[rlalgo.config.6]", "ebft.generate_max_len"]),
                           ({"feature_layers": [0.5, 1.5]}, ["[rlalgo.config.6]", "ebft.feature_layers", "1.5"]),
                           ({"n_samples_per_prompt": 1}, ["[rlalgo.config.8]", "reinforce"]),
                           ({"embed_method": "concat"}, ["[rlalgo.config.8]", "last_token or mean_pooling"]),
                           ({"document_masking": True}, ["[rlalgo.config.8]", "pack_documents"])]:
        train(c, STRIDED, ebft=changes).expect(2, *parts)
        assert not (c.folder / "out").exists(), changes
    train(c, STRIDED, torch_compile=True, gradient_checkpointing=True).expect(0, "torch_compile (config.yaml:", "has no effect")
    train(c, STRIDED, datasets=[{**STRIDED["datasets"][0], "type": "ebft_opencode.transform"}]).expect(2, "[rlalgo.config.34]", "ebft_pretrain.transform")
    twice = train(c, STRIDED, ebft={"feature_layers": [0.5, 0.5, 0.5]}).expect(0)
    assert (twice.out + twice.err).count("names a layer more than once") == 1, twice.err
    alone = train(c, STRIDED, ebft={"n_samples_per_prompt": 1, "advantage_estimator": "reinforce"}).expect(0)
    assert finite(c.metrics()) and all(r["ebft/diversity"] == 0 for r in c.metrics()), alone.err
    for whitening in ("feature", "sample"):  # temperature 0: every feature of a group is the same
        train(c, STRIDED, ebft={"temperature": 0, "whitening_space": whitening}).expect(0)
        assert finite(c.metrics()) and all(abs(r["ebft/advantages_std"]) < 1e-9 for r in c.metrics()), c.metrics()
        assert all(abs(r["ebft/diversity"] - 2 / 3) < 1e-9 for r in c.metrics()), c.metrics()
    for row, changes in [({"input": "1"}, {}), ({"input": "1", "output": ""}, {})]:
        write(c, STRUCTURED, **changes)
        (c.folder / "rows.jsonl").write_text((json.dumps({"input": "1", "output": "2"}) + "\n") * 3 + json.dumps(row) + "\n")
        c.run("train", "config.yaml").expect(1, "[rlalgo.config.33]" if "output" in row else "[rlalgo.data.10]")


@case
def features_that_are_not_finite(c):
    """NaN in the feature network only: an error that names what was compared, and no weights."""
    broken = c.model_copy()
    raw = bytearray((broken / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    begin, end = header["model.layers.0.mlp.down_proj.weight"]["data_offsets"]
    raw[8 + size + begin:8 + size + end] = b"\xff" * (end - begin)
    (broken / "model.safetensors").write_bytes(raw)
    for base in (STRIDED, STRUCTURED):
        train(c, base, ebft={"feature_model": "model"}).expect(1, "[rlalgo.feature.2]", "NaN")
        c.no_output()
    shutil.rmtree(broken)
    c.model_copy()  # whole again: features of another checkpoint that is the same
    train(c, STRIDED, max_steps=1).expect(0)
    own = rollouts(c)
    train(c, STRIDED, max_steps=1, ebft={"feature_model": "model"}).expect(0)
    assert own == rollouts(c), "a feature model of the same weights gives other rewards"


if __name__ == "__main__":
    main(CASES)
