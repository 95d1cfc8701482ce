"""What the clients' programs share: transformers' log-probs of a completion, and modules that stand in for vLLM's."""
import importlib.abc
import importlib.machinery
import sys
import types

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)


class Oracle:
    """A model of transformers in float32."""

    def __init__(self, directory):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def log_probs(self, prompt, completion):
        with torch.no_grad():
            rows = self.model(torch.tensor([list(prompt) + list(completion)])).logits[0].float().log_softmax(-1)
        return [rows[len(prompt) - 1 + i, token].item() for i, token in enumerate(completion)]

    def check(self, prompt, completion, values, tolerance=1e-4):
        assert len(values) == len(completion) > 0, (values, completion)
        worst = max(abs(a - b) for a, b in zip(self.log_probs(prompt, completion), values))
        assert worst <= tolerance, f"log-probs are {worst:g} from transformers'"
        return worst


class VllmStandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every vllm.* module, with any name in it: TRL imports vLLM for the transport of weights alone."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "vllm" else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)

        def any_name(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})
        module.__getattr__ = any_name
        return module

    def exec_module(self, module):
        module.__path__ = []


def without_vllm():
    """TRL's modules for vLLM can be imported where it is not installed."""
    from trl import import_utils
    sys.meta_path.insert(0, VllmStandIn())
    import_utils.is_vllm_available = lambda min_version=None: True
    import trl.generation.vllm_client as client
    import trl.generation.vllm_generation as generation
    for module in (client, generation):
        module.is_vllm_available = lambda min_version=None: True
    return client
