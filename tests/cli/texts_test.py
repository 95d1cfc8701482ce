"""What the model sees of messages: null fields, tools, documents, variables and chat templates, through every way in."""
import json
import pathlib
import re
import signal
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
# Shows what it is given; fails on a message without content that is no call.
TEMPLATE = ("{% if tools %}[{{ tools | map(attribute='function.name') | join(',') }}]{% endif %}{% for d in documents or [] %}({{ d.text }}){% endfor %}"
            "{{ mode or '' }}{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}{{ m.reasoning_content }}~{% endif %}"
            "{% if 'content' in m %}{{ m.content + '' }}{% elif not m.tool_calls %}{{ raise_exception('nothing said') }}{% endif %}"
            "{% for c in m.tool_calls or [] %}!{{ c.function.name }}{% endfor %}{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def case(function):
    CASES[function.__name__] = function
    return function


def tool(name):
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}}}


def user(text, **more):
    return {"role": "user", "content": text, **more}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


CALL = [{"type": "function", "function": {"name": "add", "arguments": {"a": 3}}}]


def model(c):
    directory = c.model_copy()
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return str(directory)


def write(c, name, rows):
    (c.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def prepared(c, rows, rl="dpo", code=0, **entry):
    """The prompt and answers that `preprocess --debug` shows of the rows, as texts."""
    write(c, "rows.jsonl", rows)
    base = c.folder / "model" if (c.folder / "model").exists() else model(c)
    c.config(text=json.dumps({"base_model": str(base), "rl": rl, "learning_rate": 1e-3, "max_steps": 1, "output_dir": "out", "shuffle_merged_datasets": False, "micro_batch_size": 2,
                              "datasets": [{"path": "rows.jsonl", **entry}]}))
    r = c.run("preprocess", "config.yaml", "--debug")
    assert r.code == code, r.err[-1500:]
    said_lines = r.out.splitlines()
    lines = [said_lines[i + 1].replace("⟦", "").replace("⟧", "") for i, line in enumerate(said_lines) if " tokens, " in line and " with loss" in line]
    return r, ["".join(part.rsplit("(", 1)[0] for part in line.split(") ")).strip() for line in lines]


@case
def tokenize(c):
    base = model(c)

    def rendered(line, code=0):
        r = c.run("tokenize", "--model", base, stdin=json.dumps(line) + "\n").expect(code)
        return json.loads(r.out)

    nulls = {"messages": [user("q", tool_calls=None, name=None), said(None, tool_calls=CALL, reasoning_content=None),
                          {"role": "tool", "content": "7", "tool_call_id": None}, said("7", tool_calls=[])]}
    assert rendered(nulls)["rendered"] == "<user>q<|im_end|><assistant>!add<|im_end|><tool>7<|im_end|><assistant>7<|im_end|>"
    ask = {"messages": [user("q")]}
    for documents in ({"documents": [{"text": "D"}]}, {"chat_template_kwargs": {"documents": [{"text": "D"}]}}):
        assert rendered({**ask, **documents})["rendered"] == "(D)<user>q<|im_end|>"
    assert rendered({**ask, "chat_template_kwargs": {"tools": [tool("f")], "mode": "M"}})["rendered"] == "[f]M<user>q<|im_end|>"
    assert rendered({**ask, "chat_template_kwargs": {"chat_template": "{{ messages[0].content }}."}})["rendered"] == "q."
    for wrong in ({"chat_template_kwargs": "x"}, {"chat_template_kwargs": {"messages": []}}, {"tools": ["f"]}, {"documents": {"text": "D"}},
                  {"tools": [tool("f")], "chat_template_kwargs": {"tools": [tool("g")]}}):
        answer = rendered({**ask, **wrong}, 1)
        assert re.match(r"\[rlalgo\.(text\.10|cli\.11)\]", answer["error"]) and "line 1" in answer["error"], answer
    answer = rendered({"messages": [user("q"), {"role": "user", "content": None}]}, 1)
    assert "[rlalgo.text.8]" in answer["error"] and "nothing said" in answer["error"], answer


@case
def the_server_reads_them_alike(c):
    """What /tokenize of the server makes of a conversation is what the verb makes of it."""
    base = model(c)
    lines = [{"messages": [user("q", tool_calls=None, name=None), said(None, tool_calls=CALL, reasoning_content=None), {"role": "tool", "content": "7", "name": None}]},
             {"messages": [user("q"), said(None, tool_calls=CALL), user("r", tool_calls=None)], "tools": [tool("f")]},
             {"messages": [user("q"), said("7", tool_calls=[], reasoning="hm")], "chat_template_kwargs": {"documents": [{"text": "D"}], "mode": "M"}},
             {"messages": [user("q")], "documents": [{"text": "D"}], "chat_template_kwargs": None, "tools": None}]
    lines = [{**line, "add_generation_prompt": True} for line in lines]
    told = c.run("tokenize", "--model", base, stdin="".join(json.dumps(line) + "\n" for line in lines)).expect(0).out.splitlines()
    process = c.start("vllm-serve", base, "--port", "0", once=True)
    try:
        port = next(found[1] for line in process.stderr if (found := re.search(r"at http://127\.0\.0\.1:(\d+)", line)))
        for line, answer in zip(lines, told):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/tokenize", data=json.dumps(line).encode())
            with urllib.request.urlopen(request, timeout=60) as reply:
                assert json.loads(reply.read())["tokens"] == json.loads(answer)["ids"], (line, answer)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@case
def preferences(c):
    """Tools and variables of a row, for every method; calls and thoughts of its answers."""
    rows = [{"prompt": [user("q", tool_calls=None)], "chosen": [said(None, tool_calls=CALL)], "rejected": [said("8", reasoning_content="hm")],
             "tools": [tool("add")], "chat_template_kwargs": {"mode": "M", "documents": [{"text": "D"}]}}]
    for rl in ("dpo", "ipo", "orpo", "simpo", "cpo"):
        _, texts = prepared(c, rows, rl)
        assert texts == ["[add](D)M<user>q<|im_end|><assistant>!add<|im_end|>", "[add](D)M<user>q<|im_end|><assistant>hm~8<|im_end|>"], (rl, texts)
    unpaired = [{"prompt": [user("q")], "completion": [said("a")], "label": bool(i % 2), "tools": json.dumps([tool("add")])} for i in range(2)]
    _, texts = prepared(c, unpaired, "kto")
    assert set(texts) == {"[add]<user>q<|im_end|><assistant>a<|im_end|>"}, texts
    default = [{"messages": [user("q")], "chosen": said("", tool_calls=CALL), "rejected": said("8"), "tools": [tool("add")]}]
    for kind in ("chat_template.default", "chat_template"):
        _, texts = prepared(c, default, type=kind)
        assert texts == ["[add]<user>q<|im_end|><assistant>!add<|im_end|>", "[add]<user>q<|im_end|><assistant>8<|im_end|>"], texts


@case
def what_a_row_cannot_carry(c):
    plain = {"prompt": "q", "chosen": "a", "rejected": "b"}
    for rows, number, entry in (
            ([plain, {**plain, "tools": [tool("f")]}], "data.33", {}),
            ([{"question": "q", "chosen": "a", "rejected": "b", "chat_template_kwargs": {"mode": "M"}}] * 2, "data.33", {"type": "chatml.intel"}),
            ([{**plain, "prompt": [user("q")]}, {"prompt": [user("q")], "chosen": "a", "rejected": "b", "tools": "f"}], "data.32", {}),
            ([{"prompt": "other", "chosen": [user("q"), said("a")], "rejected": [user("q"), said("b")]}] * 2, "data.34", {}),
            ([{"prompt": [user("q")], "chosen": "a", "rejected": "b"}, {"prompt": [{"role": "assistant"}], "chosen": "a", "rejected": "b"}], "text.8", {})):
        r, _ = prepared(c, rows, code=1, **entry)
        line = 1 if rows[0] == rows[1] else 2
        assert f"[rlalgo.{number}]" in r.err and f"rows.jsonl:{line}" in r.err, (number, r.err[-600:])
    _, texts = prepared(c, [{"prompt": "q", "chosen": [user("q"), said("a")], "rejected": [user("q"), said("b")]}])
    assert texts[0] == "<user>q<|im_end|><assistant>a<|im_end|>", texts


@case
def templates_and_shards_of_a_data_set(c):
    rows = [{"messages": [user(f"q{i}")], "chosen": said("a"), "rejected": said("b")} for i in range(10)]
    _, texts = prepared(c, rows[:1], type="chat_template.default", chat_template="chatml")
    assert texts[0].startswith("<|im_start|>user"), texts
    _, texts = prepared(c, [{"prompt": [user("q")], "chosen": [said("a")], "rejected": [said("b")]}], chat_template="jinja",
                        chat_template_jinja="{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}{% if add_generation_prompt %}a{% endif %}")
    assert texts[0] == "uq;aa;", texts
    r, _ = prepared(c, rows, type="chat_template.default", chat_template="absent", code=1)
    assert "[rlalgo.text.9]" in r.err and "config.yaml:" in r.err, r.err
    for k, expected in enumerate(([5, 6, 0, 7], [3, 2, 4], [9, 1, 8])):
        _, texts = prepared(c, rows, type="chat_template.default", shards=3, shards_idx=k)
        assert [int(t.split("q")[1][0]) for t in texts[::2]] == expected, (k, texts[::2])
    _, texts = prepared(c, rows, type="chat_template.default", preprocess_shards=3)
    assert [int(t.split("q")[1][0]) for t in texts[::2]] == [5, 6, 0, 7, 3], texts[::2]
    for wrong in ({"shards_idx": 1}, {"shards": 3, "shards_idx": 3}, {"shards": 2, "preprocess_shards": 2}):
        r, _ = prepared(c, rows, type="chat_template.default", code=2, **wrong)
        assert "[rlalgo.config.8]" in r.err, r.err
    r, _ = prepared(c, rows, type="chat_template.default", code=2, shards=0)
    assert "[rlalgo.config.6]" in r.err, r.err


@case
def online_rows(c):
    """A run whose rows have tools, variables and null fields; a row that cannot be rendered is named."""
    base = model(c)
    rows = [{"prompt": [user(f"q{i}", name=None)], "tools": [tool("add")], "chat_template_kwargs": {"mode": "M"}, "answer": "1"} for i in range(8)]
    change = {"base_model": base, "datasets": [{"path": write(c, "rows.jsonl", rows)}], "max_steps": 1, "trl": {"max_completion_length": 4}}
    c.train(change).expect(0)
    rows[3]["prompt"] = [{"role": "assistant", "content": None}]
    write(c, "rows.jsonl", rows)
    c.train(change).expect(1, "[rlalgo.text.8]", "rows.jsonl:4")
    assert (QUICKSTART / "model").exists()


main(CASES)
