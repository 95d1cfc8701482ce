"""What a step costs: the share of the device's peak that it uses, and inputs of layers that lie elsewhere until the backward pass."""
import hashlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
PAIRS = "".join(json.dumps({"prompt": f"{i} + 1 =", "chosen": f" {i + 1}", "rejected": " 9"}) + "\n" for i in range(8))
DPO = {"base_model": str(QUICKSTART / "model"), "rl": "dpo", "datasets": [{"path": "pairs.jsonl"}], "sequence_len": 64, "micro_batch_size": 2,
       "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "max_steps": 2, "logging_steps": 1, "save_strategy": "no"}


def case(function):
    CASES[function.__name__] = function
    return function


def train(c, out, **keys):
    (c.folder / "pairs.jsonl").write_text(PAIRS)
    (c.folder / f"{out}.yaml").write_text(json.dumps({**DPO, "output_dir": out, **keys}))
    return c.run("train", f"{out}.yaml")


def records(c, out):
    return [json.loads(line) for line in (c.folder / out / "metrics.jsonl").read_text().splitlines()]


def weights(c, out):
    return hashlib.sha256((c.folder / out / "model.safetensors").read_bytes()).hexdigest()


@case
def mfu_is_the_share_of_a_peak(c):
    train(c, "none").expect(0)
    assert not any("train/mfu" in one for one in records(c, "none")), "a CPU has no peak"
    flops = []
    for out, peak in (("small", 0.001), ("large", 0.1)):
        shown = train(c, out, peak_tflops=peak).expect(0)
        assert "  mfu " in shown.out + shown.err
        flops.append([one["train/mfu"] * peak * 1e12 * (one["time/train"] + one["time/optimizer"]) for one in records(c, out)])
    # Operations do not depend on the peak or the clock.
    for a, b in zip(*flops, strict=True):
        assert abs(a - b) < 1e-6 * a and a > 0, flops
    # By hand, of all matrices but the embedding: 6 for each element and token, less where tokens are targets alone.
    config = json.loads((QUICKSTART / "model/config.json").read_text())
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    width = (config["num_attention_heads"] * 2 + config["num_key_value_heads"] * 2) * head
    elements = layers * hidden * (width + 3 * config["intermediate_size"])
    tokens = flops[0][0] / (6 * elements)
    assert 20 < tokens < 200, tokens  # 4 pairs of some 5 tokens, and the head on top
    # With weights that are frozen a third of it goes.
    train(c, "lora", peak_tflops=0.1, adapter="lora", lora_r=2, lora_alpha=4, lora_target_modules=["q_proj"]).expect(0)
    one = records(c, "lora")[0]
    share = one["train/mfu"] * 1e11 * (one["time/train"] + one["time/optimizer"]) / flops[0][0]
    assert 0.6 < share < 0.75, share
    train(c, "bad", peak_tflops=0).expect(2, "peak_tflops")


@case
def inputs_of_layers_may_lie_elsewhere(c):
    train(c, "whole").expect(0)
    train(c, "kept", gradient_checkpointing=True).expect(0)
    done = train(c, "disk", gradient_checkpointing=True, activation_offloading="disk").expect(0)
    assert "activation_offloading" not in done.err, done.err
    train(c, "older", gradient_checkpointing="offload_disk").expect(0)
    for out in ("kept", "disk", "older"):
        assert weights(c, out) == weights(c, "whole"), out
        for a, b in zip(records(c, out), records(c, "whole"), strict=True):
            assert (a["loss"], a["grad_norm"]) == (b["loss"], b["grad_norm"]), out
    for word in (True, "legacy", "hidden_states"):
        done = train(c, "host", gradient_checkpointing=True, activation_offloading=word).expect(0)
        assert "activation_offloading" in done.err and "has no effect" in done.err, done.err
        assert weights(c, "host") == weights(c, "whole")
    assert "activation_offloading" not in train(c, "off", activation_offloading=False).expect(0).err


@case
def what_does_not_go_together_is_refused(c):
    train(c, "alone", activation_offloading=True).expect(2, "[rlalgo.config.8]", "gradient_checkpointing: true")
    train(c, "word", gradient_checkpointing=True, activation_offloading="gpu").expect(2, "activation_offloading")


if __name__ == "__main__":
    main(CASES)
