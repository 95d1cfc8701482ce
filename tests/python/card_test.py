"""benchmarks/distributed/card.py: its counts are those of the shapes, its predictions move the right way, its error is what the document says."""

import contextlib
import io
import pathlib
import sys
import traceback

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/distributed"))
import card  # noqa: E402
import shapes  # noqa: E402

CASES = {}
H100 = card.CARDS["h100"]
# A layer: 4·8·8 + 3·8·16 = 640 weights in products; width 8; outside 10·8, tied.
TINY = shapes.Model(2, 8, 16, 2, 2, 10, True)
PLAIN = card.Card(1e3, 1e3, 1e9, products=1.0, attention=1.0, stream=1.0, launch=1.0, layer_gap=0.5)


def close(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def case(function):
    CASES[function.__name__] = function
    return function


@case
def parts_of_a_step_are_counted_by_hand():
    found = card.train(TINY, PLAIN, 3, 5, operators=7, passes=10)
    assert close(found["products"], 2 * 3 * 640 * 3 * 2 / 1e3)  # 2 forward and 4 backward for each weight, two layers
    assert found["attention"] == 6 * 3 * 5 * 8 * 2 / 1e3
    assert close(found["head"], (8 * 3 * 8 * 10 + 22 * 3 * 10) / 1e3)
    assert found["between"] == 2 * 10 * 2 * 3 * 8 / 1e3
    assert found["optimizer"] == 30 * TINY.parameters / 1e3
    assert found["host"] == 14.0 and found["step"] == max(14.0, sum(found[p] for p in ("products", "attention", "head", "between", "optimizer")))
    # Of these forward: a third of the products and of the attention, a quarter of the head's products, a third of all else.
    forward = (found["products"] + found["attention"] + found["between"]) / 3 + (2 * 3 * 8 * 10 + 22 * 3 * 10 / 3) / 1e3
    device = sum(found[p] for p in ("products", "attention", "head", "between"))
    assert device > 14.0 and close(found["passes"], device) and close(found["forward"], forward)
    slow = card.train(TINY, PLAIN, 3, 5, operators=int(device), passes=10)
    assert slow["passes"] == slow["host"] > device and close(slow["forward"], forward * slow["host"] / device)
    kept = card.train(TINY, PLAIN, 3, 5, operators=0, passes=10, again=False)
    assert close(kept["head"], found["head"] - 2 * 3 * 8 * 10 / 1e3) and close(kept["passes"], device - 2 * 3 * 8 * 10 / 1e3)
    again = card.train(TINY, PLAIN, 3, 5, checkpointing=True)
    assert close(again["products"], found["products"] * 8 / 6) and again["attention"] == found["attention"] * 8 / 6


@case
def a_block_without_a_gate_has_two_matrices():
    plain = shapes.Model(2, 8, 16, 2, 2, 10, True, gated=False)
    assert plain.layer_parameters == TINY.layer_parameters - 8 * 16
    assert sum(outs * ins for outs, ins in card.maps(plain)) == plain.layer_parameters - 2 * 8
    assert sum(outs * ins for outs, ins in card.maps(TINY)) == TINY.layer_parameters - 2 * 8


@case
def adapters_leave_the_weights_gradient_out():
    full, lora = card.train(TINY, PLAIN, 3, 5), card.train(TINY, PLAIN, 3, 5, lora=2)
    adapters = card.lora_parameters(TINY, 2)
    assert adapters == 2 * 2 * (4 * (8 + 8) + 2 * (8 + 16) + (16 + 8))
    assert abs(lora["products"] - (full["products"] * 4 / 6 + 6 * 3 * adapters / 1e3)) < 1e-12
    assert close(lora["head"], full["head"] - 2 * 3 * 8 * 10 / 1e3) and lora["optimizer"] == 30 * adapters / 1e3
    assert card.train_memory(TINY, 3, 2) < card.train_memory(TINY, 3)


@case
def a_token_step_reads_the_weights_once_and_the_pages_of_every_row():
    weights = 2 * (2 * TINY.layer_parameters + 80)
    assert abs(card.token_step(TINY, PLAIN, 1, 6) - ((weights + 4 * 6 * 2 * 8) / 1e3 + 1.0)) < 1e-12
    more = card.token_step(shapes.MODELS["qwen3-4b"], H100, 64, 600) - card.token_step(shapes.MODELS["qwen3-4b"], H100, 1, 600)
    assert abs(more - 63 * 4 * 600 * 36 * 8 * 128 / (3.35e12 * H100.stream)) < 1e-9
    # Rows draw together: twice the rows take less than twice the time.
    one = card.serve(shapes.MODELS["0.5b"], H100, 64, 256, 128)
    assert one < card.serve(shapes.MODELS["0.5b"], H100, 128, 256, 128) < 2 * one < card.serve(shapes.MODELS["0.5b"], H100, 128, 512, 256)


@case
def a_product_is_as_fast_as_its_tiles_fill_the_card():
    one = card.Card(1e6, 1e12, 1e9, products=0.5, stream=1.0, processors=4)
    rate = 1e6 * 0.5
    # Four tiles of 128 x 256 are one wave, a fifth is a second one; the largest tile is the fastest a wave.
    wave = 4 * 2 * 128 * 256 * (4096 + card.FILL) / rate
    assert close(card.product(one, 512, 256, 4096), wave)
    assert wave < card.product(one, 513, 256, 4096) <= 2 * wave
    # One tile alone: its sum is cut, or smaller tiles are taken, so that the others do not wait; never faster than the share of the peak.
    alone = card.product(one, 128, 256, 4096)
    assert 2 * 128 * 256 * 4096 / rate < alone < wave / 2
    for shape in ((16384, 896, 896), (896, 1152, 16384), (16384, 151936, 896), (8192, 131072, 4096), (1, 896, 896)):
        seconds = card.product(H100, *shape)
        rows, columns, inner = shape
        assert seconds >= 2 * rows * columns * inner / (H100.flops * H100.products), shape
        assert seconds >= 2 * (rows * inner + inner * columns + rows * columns) / (H100.bandwidth * H100.stream), shape
    share = lambda *shape: 2 * shape[0] * shape[1] * shape[2] / card.product(H100, *shape) / H100.flops
    assert share(16384, 896, 896) < share(16384, 9728, 896) < share(8192, 8192, 8192) < H100.products
    forward, inputs, weights = card.layer_products(shapes.MODELS["0.5b"], H100, 16384)
    assert forward > 0 and inputs > 0 and weights > 0
    assert close(card.train(shapes.MODELS["0.5b"], H100, 16384, 1024)["products"], 24 * (forward + inputs + weights))


@case
def a_step_of_single_launches_waits_for_the_host_where_the_model_is_small():
    small = card.train(shapes.MODELS["0.5b"], H100, 1024, 1024, operators=card.OPERATORS["operators"])
    assert small["step"] == small["host"]
    assert card.train(shapes.MODELS["0.5b"], H100, 16384, 1024)["step"] > small["host"]


@case
def the_error_is_what_the_document_says():
    lines = []
    off = card.check(lines.append)
    assert len(off) == 7 and abs(off[0]) < 0.01, lines  # fitted
    assert max(map(abs, off[1:3])) < 0.16, lines  # token steps
    assert all(-0.54 < one < -0.42 for one in off[3:6]), lines  # whole programs take about twice what their parts need
    assert abs(off[6]) < 0.20, lines


@case
def the_program_prints_parts_and_tokens():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert card.main(["--model", "70b", "--checkpointing"]) == 0
        assert card.main(["--model", "qwen3-4b", "--lora", "16"]) == 0
        assert card.main(["check"]) == 0
    text = out.getvalue()
    assert text.count("GRPO, 8 x 8") == 2 and "largest deviation" in text, text


failed = 0
for name, function in CASES.items():
    try:
        function()
        print(f"ok {name}")
    except Exception:
        failed += 1
        print(f"FAIL {name} {' | '.join(traceback.format_exc().splitlines())[-1500:]}")
sys.exit(1 if failed else 0)
