"""The Python side of rollout functions, on host.py. Questions:
  {"op": "load", "function": "module.name", "paths": […]}       → {"form": "model" | "trainer"}
  {"op": "roll", "prompts": […], "rows": [{column: …}, …], "run": {…}}
                   → {"completions": [{"text": …} | {"prompt_ids", "ids", "log_probs", "mask"}, …], "columns": [{…}, …]}
While it works on "roll" it asks in turn, and a function is shown an answer with "refused" as a ValueError:
  {"ask": "generate", "prompts": [[id, …], …], "sampling": {…}}  → {"completions": [[{"ids", "log_probs", "text"}, …], …]}
  {"ask": "encode", "text": …, "special": true | false} → {"ids": […]};   {"ask": "prompt", "prompt": …} → {"ids": […]}
  {"ask": "decode", "ids": [[id, …], …], "skip": true | false}   → {"texts": […]}
  {"ask": "render", "messages": […], "generation_prompt": …, "tools": …, "variables": {…}} → {"text": …}

Two forms of a function, told apart by its parameters:
  f(model, processing_class, prompts, generation_config) → a text for each prompt (or {"content": …}, or messages)
  f(prompts, trainer) → {"prompt_ids", "completion_ids", "logprobs"[, "env_mask", …]}, TRL's
processing_class is transformers' tokenizer where this Python has transformers and torch, else a stand-in that asks the
trainer. Tensors are torch's where there is torch, else lists with a shape.
"""

import inspect
import json
import math
import random
import sys
import types
import zlib

from host import Refusal, ask, has, imported, offer_trl, serve, trace_of

function, path, form = None, "", ""
tokenizer = None


class Ids:
    """Rows of token ids: what of a tensor a rollout function touches."""

    def __init__(self, values):
        self.values = values

    @property
    def shape(self):
        one = self.values
        out = []
        while isinstance(one, list):
            out.append(len(one))
            one = one[0] if one else None
        return tuple(out)

    device = "cpu"

    def __getitem__(self, at):
        if isinstance(at, tuple):
            first, rest = at[0], at[1:]
            rows = self.values[first]
            if not rest:
                return wrapped(rows)
            if isinstance(first, slice):
                return wrapped([unwrapped(wrapped(row)[rest if len(rest) > 1 else rest[0]]) for row in rows])
            return wrapped(rows)[rest if len(rest) > 1 else rest[0]]
        return wrapped(self.values[at])

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return (wrapped(value) for value in self.values)

    def __eq__(self, other):
        return self.values == unwrapped(other)

    def __repr__(self):
        return "Ids(%r)" % (self.values,)

    def size(self, at=None):
        return self.shape if at is None else self.shape[at]

    def tolist(self):
        return self.values

    def to(self, *_, **__):
        return self

    cpu = cuda = detach = long = to

    def unsqueeze(self, at):
        return Ids([self.values]) if at == 0 else Ids([[value] for value in self.values])

    def squeeze(self, at=0):
        return Ids(self.values[0]) if at == 0 and len(self.values) == 1 else self


def wrapped(value):
    return Ids(value) if isinstance(value, list) else value


def unwrapped(value):
    # Lists of numbers, of whatever holds them.
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [unwrapped(v) for v in value]
    return value


def tensor(rows, like=None):
    # As torch has it, where there is torch and the other side has not chosen otherwise.
    if isinstance(like, Ids) or not has("torch"):
        return Ids(rows)
    import torch

    return torch.tensor(rows, dtype=torch.long)


class Encoding(dict):
    """input_ids and attention_mask, as items and as attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, *_, **__):
        return self


class Tokenizer:
    """The trainer's tokenizer, as far as a rollout function goes: for a Python without transformers."""

    padding_side = "left"

    def __init__(self, facts):
        self.name_or_path = facts["tokenizer"]
        self.eos_token_id, self.eos_token = facts["eos_id"], facts["eos_token"]
        self.pad_token_id, self.pad_token = facts["pad_id"], facts["pad_token"]
        self.bos_token_id, self.bos_token = facts["bos_id"], facts["bos_token"]
        self.vocab_size, self.model_max_length = facts["vocab_size"], facts["max_positions"]

    def __len__(self):
        return self.vocab_size

    def __call__(self, text, return_tensors=None, add_special_tokens=True, padding=False, truncation=False,
                 max_length=None, padding_side=None, **_):
        rows = [self.encode(t, add_special_tokens) for t in ([text] if isinstance(text, str) else text)]
        if truncation and max_length is not None:
            rows = [row[:max_length] for row in rows]
        masks = [[1] * len(row) for row in rows]
        if padding or (return_tensors is not None and len({len(row) for row in rows}) > 1):
            longest = max_length if padding == "max_length" and max_length else max(map(len, rows), default=0)
            left = (padding_side or self.padding_side) == "left"
            fill = self.pad_token_id if self.pad_token_id is not None else self.eos_token_id
            for i, row in enumerate(rows):
                gap = max(0, longest - len(row))
                rows[i] = [fill] * gap + row if left else row + [fill] * gap
                masks[i] = [0] * gap + masks[i] if left else masks[i] + [0] * gap
        if return_tensors is not None:
            return Encoding(input_ids=tensor(rows), attention_mask=tensor(masks))
        if isinstance(text, str):
            return Encoding(input_ids=rows[0], attention_mask=masks[0])
        return Encoding(input_ids=rows, attention_mask=masks)

    def encode(self, text, add_special_tokens=True, return_tensors=None, **_):
        ids = ask({"ask": "encode", "text": text, "special": bool(add_special_tokens)})["ids"]
        return ids if return_tensors is None else tensor([ids])

    def decode(self, ids, skip_special_tokens=False, **_):
        ids = unwrapped(ids)
        if isinstance(ids, int):
            ids = [ids]
        if ids and isinstance(ids[0], list):
            return self.batch_decode(ids, skip_special_tokens)
        return ask({"ask": "decode", "ids": [ids], "skip": bool(skip_special_tokens)})["texts"][0]

    def batch_decode(self, ids, skip_special_tokens=False, **_):
        return ask({"ask": "decode", "ids": unwrapped(ids), "skip": bool(skip_special_tokens)})["texts"]

    def apply_chat_template(self, conversation, tools=None, tokenize=True, add_generation_prompt=False, return_dict=None,
                            return_tensors=None, padding=False, **variables):
        many = bool(conversation) and isinstance(conversation[0], list)
        texts = []
        for messages in conversation if many else [conversation]:
            question = {"ask": "render", "messages": messages, "generation_prompt": bool(add_generation_prompt),
                        "tools": tools, "variables": variables}
            texts.append(ask(question)["text"])
        if not tokenize:
            return texts if many else texts[0]
        encoding = self(texts if many else texts[0], return_tensors=return_tensors, add_special_tokens=False, padding=padding)
        return encoding if return_dict else encoding["input_ids"]


def chosen_tokenizer(facts):
    out = None
    if has("transformers") and has("torch"):
        try:
            from transformers import AutoTokenizer

            out = AutoTokenizer.from_pretrained(facts["tokenizer"], local_files_only=True)
        except Exception as error:
            print("rlalgo: transformers cannot read the tokenizer, the trainer's is used: %s" % error, file=sys.stderr)
    if out is None:
        out = Tokenizer(facts)
    template = out.apply_chat_template

    def apply_chat_template(conversation, *arguments, **keywords):
        # axolotl's page of rollout functions writes processing_class=False where it means tokenize=False.
        if keywords.pop("processing_class", None) is False:
            keywords["tokenize"] = False
        return template(conversation, *arguments, **keywords)

    out.apply_chat_template = apply_chat_template
    return out


class Settings:
    """The run's sampling; a function may change its own."""

    def __init__(self, values):
        self.__dict__.update(values)

    def to_dict(self):
        return dict(self.__dict__)

    def update(self, **changes):
        self.__dict__.update(changes)
        return {}


def flat(*sources):
    # What was said of sampling, the last word first.
    said = {}
    for source in sources:
        if source is None:
            continue
        values = source if isinstance(source, dict) else source.to_dict() if hasattr(source, "to_dict") else vars(source)
        said.update({k: v for k, v in values.items() if v is not None})
    return said


spelled = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
# of transformers' generate(): what changes nothing in what is drawn here
idle = {"pad_token_id", "bos_token_id", "use_cache", "return_dict_in_generate", "output_scores", "output_logits",
        "output_attentions", "output_hidden_states", "synced_gpus", "tokenizer", "attention_mask", "cache_implementation",
        "disable_compile", "token_type_ids"}


def sampling_of(run, generation_config, keywords):
    out = {name: run[name] for name in spelled}
    own = flat(keywords)
    unknown = set(own) - spelled - idle - {"max_new_tokens", "max_length", "do_sample", "num_return_sequences",
                                           "eos_token_id", "max_tokens", "n"}
    for name, value in flat({k: own[k] for k in unknown}).items():
        if value not in (False, 0, 1, 1.0, "", [], ()):  # what asks for nothing
            raise TypeError("model.generate() cannot do %s=%r here; it knows %s, max_new_tokens, max_length, do_sample, "
                            "num_return_sequences and eos_token_id" % (name, value, ", ".join(sorted(spelled))))
    said = flat(generation_config, own)
    out.update({name: said[name] for name in spelled if name in said})
    if said.get("do_sample") is False:
        out["temperature"] = 0.0
    out["count"] = int(said.get("num_return_sequences", said.get("n", 1)))
    out["max_new_tokens"] = own.get("max_new_tokens", own.get("max_tokens"))
    if out["max_new_tokens"] is None and own.get("max_length") is None:
        out["max_new_tokens"] = said.get("max_new_tokens", run["max_new_tokens"])
    ends = said.get("eos_token_id", run["stop_ids"])
    out["stop_ids"] = [ends] if isinstance(ends, int) else list(ends)
    return out, own.get("max_length")


class Model:
    """What a rollout function may ask of the model: generate(). Weights and passes stay with the trainer."""

    training = False

    def __init__(self, facts, run):
        self.run, self.name_or_path = run, facts["base_model"]
        self.pad_id = facts["pad_id"] if facts["pad_id"] is not None else facts["eos_id"]
        self.generation_config = Settings(run["generation_config"])
        self.config = types.SimpleNamespace(vocab_size=facts["vocab_size"], eos_token_id=facts["eos_id"],
                                            pad_token_id=facts["pad_id"], bos_token_id=facts["bos_id"],
                                            max_position_embeddings=facts["max_positions"],
                                            _name_or_path=facts["base_model"])

    @property
    def device(self):
        if "torch" not in sys.modules:
            return "cpu"
        return sys.modules["torch"].device("cpu")

    def eval(self):
        return self

    def train(self, mode=True):
        return self

    to = cpu = eval

    def __call__(self, *_, **__):
        raise NotImplementedError("the model is the trainer's and can only generate() here")

    def generate(self, inputs=None, generation_config=None, input_ids=None, attention_mask=None, **keywords):
        if input_ids is None:
            input_ids = inputs
        if input_ids is None:
            raise ValueError("model.generate() needs input_ids")
        rows = unwrapped(input_ids)
        if rows and not isinstance(rows[0], list):
            raise ValueError("input_ids has the shape [%d]; generate() needs [rows, tokens]" % len(rows))
        masks = unwrapped(attention_mask) if attention_mask is not None else [[1] * len(row) for row in rows]
        prompts = [[i for i, shown in zip(row, mask) if shown] for row, mask in zip(rows, masks)]
        sampling, longest = sampling_of(self.run, generation_config, keywords)
        if sampling["max_new_tokens"] is None:
            sampling["max_new_tokens"] = longest - max(map(len, rows), default=0)
        answers = drawn(prompts, sampling)
        made = [row + one["ids"] for row, group in zip(rows, answers) for one in group]
        width = max(map(len, made), default=0)
        out = tensor([row + [self.pad_id] * (width - len(row)) for row in made], like=input_ids)
        return types.SimpleNamespace(sequences=out) if keywords.get("return_dict_in_generate") else out


def drawn(prompts, sampling):
    return ask({"ask": "generate", "prompts": prompts, "sampling": sampling})["completions"]


class Trainer:
    """What a function of TRL's form may ask of its trainer."""

    def __init__(self, facts, run):
        self.run, self.processing_class, self.model = run, tokenizer, Model(facts, run)
        self.args = types.SimpleNamespace(**run["generation_config"])
        self.args.max_completion_length, self.args.num_generations = run["max_new_tokens"], run["num_generations"]
        self.args.seed, self.args.use_vllm = run["seed"], False
        self.num_generations, self.max_completion_length = run["num_generations"], run["max_new_tokens"]
        self.state = types.SimpleNamespace(global_step=run["step"])
        self.accelerator = types.SimpleNamespace(device="cpu", process_index=run["rank"], num_processes=run["ranks"],
                                                 is_main_process=run["rank"] == 0)
        for name in spelled:
            setattr(self, name, run[name])


def generate_rollout_completions(trainer, prompts, *, generation_overrides=None, as_chat=None):
    """TRL's: one completion for each prompt, a text or messages, with its token ids and log-probs."""
    sampling, _ = sampling_of(trainer.run, None, dict(generation_overrides or {}))
    ids = [ask({"ask": "prompt", "prompt": prompt})["ids"] for prompt in prompts]
    return [{"prompt_ids": prompt, "completion_ids": one["ids"], "logprobs": one["log_probs"], "text": one["text"]}
            for prompt, (one, *_) in zip(ids, drawn(ids, sampling))]


def load(question):
    global function, path, form
    path = question["function"]
    if not path.rpartition(".")[0]:
        raise Refusal("load", "a rollout function is named module.function")
    offer_trl(generate_rollout_completions, True)
    function = imported(path, question["paths"])
    names = list(inspect.signature(function).parameters)
    form = "model" if "model" in names or "processing_class" in names else "trainer"
    if form == "trainer" and "prompts" not in names[:1] and "trainer" not in names:
        raise Refusal("load", "'%s' takes (%s); a rollout function takes (model, processing_class, prompts, "
                              "generation_config) or (prompts, trainer)" % (path, ", ".join(names)))
    if inspect.iscoroutinefunction(function):
        raise Refusal("load", "'%s' is a coroutine; a rollout function is a plain one" % path)
    return {"form": form}


def text_of(value, at):
    # The completion that a function of the first form returned for one prompt.
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("content", "completion", "text"):
            if isinstance(value.get(name), str):
                return value[name]
    if isinstance(value, list) and value and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in value):
        return "".join(m["content"] for m in value if m.get("role", "assistant") == "assistant")
    raise Refusal("value", "completion %d is %s, not a text" % (at, repr(value)[:200]), row=at)


def numbers(values, at, name, kind):
    out = []
    for one in unwrapped(values):
        if isinstance(one, list):  # of the likeliest tokens, the drawn one first
            one = one[0] if one else None
        if (isinstance(one, bool) or not isinstance(one, (int, float)) or not math.isfinite(one)
                or (kind is int and one != int(one))):
            raise Refusal("value", "%s of row %d holds %r at token %d" % (name, at, one, len(out)), row=at)
        out.append(kind(one))
    return out


def allowed(values, at, name):
    # Log-probs of probabilities, 1 rounded up among them; a mask of 0 and 1.
    for t, one in enumerate(values):
        if one > 1e-3 if name == "logprobs" else one not in (0, 1):
            expected = "a log-prob, at most 0" if name == "logprobs" else "0 or 1"
            raise Refusal("value", "%s of row %d holds %r at token %d, not %s" % (name, at, one, t, expected), row=at)
    return values


def plain(value):
    # What JSON can hold.
    value = unwrapped(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return str(value)


def counted(values, count, name):
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__"):
        raise Refusal("value", "%s is %s, not a list with one entry for each prompt" % (name, type(values).__name__))
    if len(values) != count:
        raise Refusal("value", "%s has %d entries for %d prompts" % (name, len(values), count))
    return values


def rows_of(result, count):
    # The rows of TRL's form: token ids, and what rewards see besides.
    if not isinstance(result, dict):
        raise Refusal("value", "it returned %s, not a dict" % type(result).__name__)
    missing = [name for name in ("prompt_ids", "completion_ids") if result.get(name) is None]
    if missing:
        raise Refusal("value", "the dict has no %s; it has %s" % (" and no ".join(missing), ", ".join(map(str, result))))
    made = {name: counted(result[name], count, name) for name in ("prompt_ids", "completion_ids")}
    for name in ("logprobs", "env_mask"):
        if result.get(name) is not None:
            made[name] = counted(result[name], count, name)
    completions, columns = [], []
    for i in range(count):
        one = {"prompt_ids": numbers(made["prompt_ids"][i], i, "prompt_ids", int),
               "ids": numbers(made["completion_ids"][i], i, "completion_ids", int)}
        for name, key, kind in (("logprobs", "log_probs", float), ("env_mask", "mask", int)):
            if name in made and made[name][i] is not None:
                one[key] = allowed(numbers(made[name][i], i, name, kind), i, name)
                if len(one[key]) != len(one["ids"]):
                    raise Refusal("value", "%s of row %d has %d entries for %d tokens" % (name, i, len(one[key]), len(one["ids"])), row=i)
        completions.append(one)
        columns.append({})
    for name, values in result.items():
        if name in ("prompt_ids", "completion_ids", "logprobs", "env_mask"):
            continue
        for i in range(count):
            if not isinstance(values, (list, tuple)):
                columns[i][str(name)] = plain(values)
            elif i < len(values):
                columns[i][str(name)] = plain(values[i])
    return {"completions": completions, "columns": columns}


def roll(question):
    global tokenizer
    run, facts = question["run"], question["run"]["model"]
    if tokenizer is None:
        tokenizer = chosen_tokenizer(facts)
    prompts, count = question["prompts"], len(question["prompts"])
    try:
        if form == "trainer":
            result = function(prompts, Trainer(facts, run))
        else:
            shown = []
            for prompt, row in zip(prompts, question["rows"]):
                messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
                shown.append({**row, "prompt": prompt, "messages": messages})
            given = {"model": Model(facts, run), "processing_class": tokenizer, "tokenizer": tokenizer, "prompts": shown,
                     "generation_config": Settings(run["generation_config"])}
            parameters = inspect.signature(function).parameters.values()
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                names = {p.name for p in parameters}
                given = {k: v for k, v in given.items() if k in names}
            result = function(**given)
    except Refusal:
        raise
    except BaseException as error:
        raise Refusal("raised", "%s: %s" % (type(error).__name__, error), trace_of(error))
    if form == "trainer":
        return rows_of(result, count)
    values = counted(result, count, "what it returned")
    return {"completions": [{"text": text_of(value, i)} for i, value in enumerate(values)], "columns": [{}] * count}


def work(question, line):
    seed = zlib.crc32(json.dumps([question["run"]["seed"], question["run"]["step"], question["prompts"]]).encode())
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    return roll(question)


if __name__ == "__main__":
    serve(load, work)
