"""What is saved converts to GGUF: names, shapes and vocabulary by the package `gguf`, with and without an adapter.

Not run where that package (and numpy) is not installed: pip install gguf.
"""
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import NotRun, main  # noqa: E402
from experts_test import PAIRS, model, rows, write  # noqa: E402

CASES = {}
ARCHITECTURES = {"llama": "LLAMA", "qwen3_moe": "QWEN3MOE", "qwen2_moe": "QWEN2MOE", "mixtral": "LLAMA", "gpt_oss": "GPT_OSS"}


def case(function):
    CASES[function.__name__] = function
    return function


def package():
    try:
        import gguf
        import numpy
    except ImportError as missing:
        raise NotRun(f"the Python package {missing.name} is not installed") from None
    return gguf, numpy


def tensors(path, numpy):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", entry
        begin, end = (8 + size + at for at in entry["data_offsets"])
        out[name] = numpy.frombuffer(data[begin:end], dtype=numpy.float32).reshape(entry["shape"])
    return out


def with_stacked_experts(found, numpy):
    """As llama.cpp's converter has them: one tensor of three dimensions for a map of all experts, [E, out, in]."""
    out, experts = {}, {}
    for name, value in found.items():
        block, dot, rest = name.partition(".experts.")
        number, _, last = rest.partition(".")
        if dot and number.isdigit():
            experts.setdefault(f"{block}.experts.{last}", {})[int(number)] = value
        elif dot and last == "" and rest.startswith("gate_up_proj"):  # of gpt-oss: gate and up in turn
            end = "_bias" if rest.endswith("_bias") else ""
            rows = value if end else value.transpose(0, 2, 1)
            for first, part in enumerate(("gate_proj", "up_proj")):
                out[f"{block}.experts.{part}." + ("bias" if end else "weight")] = rows[:, first::2]
        elif dot and rest.startswith("down_proj"):
            out[f"{block}.experts.down_proj." + ("bias" if rest.endswith("_bias") else "weight")] = value if rest.endswith("_bias") else value.transpose(0, 2, 1)
        else:
            out[name] = value
    for name, each in experts.items():
        out[name] = numpy.stack([each[e] for e in range(len(each))])
    return out


def names_of(gguf, config):
    known = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, ARCHITECTURES[config["model_type"]]), config["num_hidden_layers"])

    def name_of(name):
        found = known.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, f"gguf has no name for {name}"
        return found
    return name_of


def convert(folder, target):
    """A file by the names of gguf; {name there: what it holds}."""
    gguf, numpy = package()
    config = json.loads((folder / "config.json").read_text())
    tokens = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = {**tokens["model"]["vocab"], **{t["content"]: t["id"] for t in tokens["added_tokens"]}}
    name_of = names_of(gguf, config)
    written = {name_of(name): value for name, value in with_stacked_experts(tensors(folder / "model.safetensors", numpy), numpy).items()}
    writer = gguf.GGUFWriter(target, "test")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    for name, value in written.items():
        writer.add_tensor(name, numpy.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = gguf.GGUFReader(target)
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == len(vocabulary) <= config["vocab_size"]
    read = {t.name: t for t in reader.tensors}
    assert set(read) == set(written), set(read) ^ set(written)
    for name, value in written.items():
        assert list(read[name].shape) == list(reversed(value.shape)), (name, read[name].shape, value.shape)
        assert (read[name].data.reshape(value.shape) == value).all(), name
    assert written["token_embd.weight"].shape == (config["vocab_size"], config["hidden_size"])
    return written


@case
def what_is_saved_has_names_in_gguf(c):
    package()
    rows(c)
    for kind in ("qwen3_moe", "qwen2_moe", "mixtral", "gpt_oss"):
        base = {**PAIRS, "base_model": model(c, kind, kind), "rl": "dpo", "max_steps": 1, "output_dir": kind + "-out"}
        c.run("train", write(c, base, "full.yaml")).expect(0)
        before, after = (convert(c.folder / folder, c.folder / f"{folder}.gguf") for folder in (kind, kind + "-out"))
        assert {n: v.shape for n, v in before.items()} == {n: v.shape for n, v in after.items()}


@case
def merged_adapters_have_them_and_what_is_not_merged_names_its_base(c):
    gguf, numpy = package()
    rows(c)
    for kind, more in (("qwen3_moe", {"lora_target_parameters": ["mlp.experts.down_proj"]}), ("mixtral", {}), ("gpt_oss", {})):
        base = {**PAIRS, "base_model": model(c, kind, kind), "rl": "dpo", "max_steps": 1, "output_dir": kind + "-out", "adapter": "lora",
                "lora_r": 2, "lora_alpha": 4, "lora_target_linear": True, **more}
        config = write(c, base, "lora.yaml")
        c.run("train", config).expect(0)
        c.run("merge-lora", config).expect(0)
        convert(c.folder / (kind + "-out") / "merged", c.folder / f"{kind}.gguf")
        name_of = names_of(gguf, json.loads((c.folder / kind / "config.json").read_text()))
        for name in tensors(c.folder / (kind + "-out") / "adapter_model.safetensors", numpy):
            path, _, part = name.removeprefix("base_model.model.").partition(".lora_")
            assert name.startswith("base_model.model.") and part in ("A.weight", "B.weight"), name
            if ".experts" not in path:  # llama.cpp's convert_lora_to_gguf takes no adapter of all experts: merge those
                name_of(path + ".weight")


if __name__ == "__main__":
    main(CASES)
