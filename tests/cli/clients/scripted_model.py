"""A model that says what follows from its prompt's text and the sample's number alone, for trainers of others and ours."""
import json

TEMPLATE = ("{% if tools %}<|im_start|>tools\n{% for t in tools %}{{ t.function.name }}({{ t.function.parameters.properties | join(',') }}): "
            "{{ t.function.description }};{% endfor %}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def call(name, **arguments):
    return '<tool_call>{"name": "%s", "arguments": %s}</tool_call>' % (name, json.dumps(arguments))


def says(prompt, k):
    """`prompt`: with its special tokens."""
    last = prompt.rsplit("<|im_start|>", 2)[1]
    if last.startswith("tool\n"):
        return "so " + last[5:].split("<")[0][-6:]
    if "take(title)" in prompt:
        return ["I take none.", call("take", title="ab"), call("take", title="a") + call("look"), "no"][k % 4]
    if "look(where)" in prompt:
        return [call("look", where="up"), call("take", title="a"), call("look"), call("look", where="bbb")][k % 4]
    return ["yes", "no no", "maybe", "yes yes yes"][k % 4]


def byte_symbols():
    """How byte-level tokenizers write each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


class Words:
    """Texts as ids, one a byte, and ids of any kind as texts. `vocabulary`: token → id."""

    def __init__(self, vocabulary, special):
        self.symbols, self.vocabulary = byte_symbols(), vocabulary
        bytes_of = {symbol: b for b, symbol in self.symbols.items()}
        self.texts = {i: token.encode() if token in special else bytes(bytes_of[s] for s in token) for token, i in vocabulary.items()}

    def ids(self, text):
        return [self.vocabulary[self.symbols[b]] for b in text.encode()]

    def text(self, ids):
        return b"".join(self.texts[i] for i in ids).decode(errors="replace")


class Speaker:
    """Answers the prompts of one request: equal ones are samples 0, 1, 2, …"""

    def __init__(self, words, end):
        self.words, self.end, self.said = words, end, []

    def answers(self, prompts):
        seen, out = {}, []
        for ids in prompts:
            prompt = self.words.text(ids)
            k = seen.get(prompt, 0)
            seen[prompt] = k + 1
            self.said.append([prompt, k])
            out.append(self.words.ids(says(prompt, k)) + [self.end])
        return out
