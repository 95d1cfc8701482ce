"""Shapes of models: what plan.py and card.py count parameters, operations and bytes of."""

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    head: int = 0  # size of a head; 0: hidden / heads
    gated: bool = True  # three matrices of the block, as Llama's; else two

    @property
    def head_size(self):
        return self.head or self.hidden // self.heads

    @property
    def layer_parameters(self):
        head = self.head_size
        attention = 2 * self.hidden * head * self.heads + 2 * self.hidden * head * self.kv_heads
        return attention + (3 if self.gated else 2) * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def outer_parameters(self):
        return self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self):
        return self.layers * self.layer_parameters + self.outer_parameters

    def flops(self, tokens, sequence, checkpointing):
        """Of forward and backward: 6 per token and weight that is multiplied, causal attention 6·s·h per token and layer."""
        weights = self.layers * self.layer_parameters + self.vocab * self.hidden
        one = 6 * weights + 6 * self.layers * sequence * self.heads * self.head_size
        return tokens * one * (4 / 3 if checkpointing else 1)


def mpt(layers, hidden, heads):
    return Model(layers, hidden, 4 * hidden, heads, heads, 50368, True, gated=False)


# Shapes of Qwen2.5 (0.5B … 72B), Qwen3, Llama 2 (7B, 13B, 70B), Code Llama (34B), Llama 3 (with its larger vocabulary) and MPT.
MODELS = {
    "0.5b": Model(24, 896, 4864, 14, 2, 151936, True),
    "1.5b": Model(28, 1536, 8960, 12, 2, 151936, True),
    "3b": Model(36, 2048, 11008, 16, 2, 151936, True),
    "7b": Model(32, 4096, 11008, 32, 32, 32000),
    "13b": Model(40, 5120, 13824, 40, 40, 32000),
    "llama3-8b": Model(32, 4096, 14336, 32, 8, 128256),
    "llama3-70b": Model(80, 8192, 28672, 64, 8, 128256),
    "14b": Model(48, 5120, 13824, 40, 8, 152064),
    "32b": Model(64, 5120, 27648, 40, 8, 152064),
    "70b": Model(80, 8192, 28672, 64, 8, 32000),
    "qwen3-0.6b": Model(28, 1024, 3072, 16, 8, 151936, True, 128),
    "qwen3-1.7b": Model(28, 2048, 6144, 16, 8, 151936, True, 128),
    "qwen3-4b": Model(36, 2560, 9728, 32, 8, 151936, True, 128),
    "34b": Model(48, 8192, 22016, 64, 8, 32000),
    "mpt-760m": mpt(24, 1536, 12),
    "mpt-1b": mpt(24, 2048, 16),
    "mpt-3b": mpt(32, 2560, 20),
    "mpt-7b": mpt(32, 4096, 32),
    "mpt-13b": mpt(40, 5120, 40),
    "mpt-30b": mpt(48, 7168, 56),
    "mpt-70b": mpt(80, 8192, 64),
    "135m": Model(30, 576, 1536, 9, 3, 49152, True),
}


def read_config(path):
    """Of config.json of a Llama or Qwen model."""
    c = json.loads(pathlib.Path(path).read_text())
    return Model(c["num_hidden_layers"], c["hidden_size"], c["intermediate_size"], c["num_attention_heads"],
                 c.get("num_key_value_heads", c["num_attention_heads"]), c["vocab_size"], c.get("tie_word_embeddings", False),
                 c.get("head_dim") or 0)
