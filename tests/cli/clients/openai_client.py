"""openai_client.py URL MODEL KEY: the openai package against a server: plain, asynchronous, streams, tools, errors."""
import asyncio
import json
import sys

import openai

base, model, key = sys.argv[1] + "/v1", sys.argv[2], sys.argv[3]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)
PROMPT = {"model": model, "prompt": "3 + 4 =", "max_tokens": 12, "temperature": 0, "extra_body": {"ignore_eos": True}}
CHAT = {"model": model, "messages": [{"role": "user", "content": "3 + 4 ="}], "max_tokens": 12, "temperature": 0}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds",
          "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}},
                         "required": ["a", "b"], "additionalProperties": False}}}]

assert [m.id for m in client.models.list()] == [model]
assert client.models.retrieve(model).id == model
whole = client.completions.create(**PROMPT)
assert whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length", whole

# Streams bring the same text, and their usage when it is asked for.
pieces = list(client.completions.create(**PROMPT, stream=True, stream_options={"include_usage": True}))
assert "".join(p.choices[0].text for p in pieces if p.choices) == whole.choices[0].text
assert pieces[-1].usage.completion_tokens == 12 and not pieces[-1].choices
several = client.completions.create(**{**PROMPT, "prompt": ["1 + 1 =", "3 + 4 ="]}, n=2, logprobs=2)
assert [c.index for c in several.choices] == [0, 1, 2, 3]
assert several.choices[2].text == several.choices[3].text == whole.choices[0].text
assert len(several.choices[0].logprobs.token_logprobs) == 12

chat = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=3)
assert chat.choices[0].message.role == "assistant" and len(chat.choices[0].logprobs.content[0].top_logprobs) == 3
text = ""
for piece in client.chat.completions.create(**CHAT, stream=True):
    text += piece.choices[0].delta.content or ""
assert text == chat.choices[0].message.content, (text, chat)

# Calls that the request insists on, whole and through the package's own gathering of a stream.
for choice in ("required", {"type": "function", "function": {"name": "add"}}):
    made = client.chat.completions.create(**{**CHAT, "max_tokens": 120}, tools=TOOLS, tool_choice=choice)
    call = made.choices[0].message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "add" and set(arguments) == {"a", "b"} and arguments["b"] in ("x", "y"), made
    assert made.choices[0].finish_reason in ("tool_calls", "stop")
    with client.chat.completions.stream(**{**CHAT, "max_tokens": 120}, tools=TOOLS, tool_choice=choice) as stream:
        gathered = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert json.loads(gathered.function.arguments) == arguments, (gathered, arguments)
again = CHAT["messages"] + [made.choices[0].message.model_dump(exclude_none=True),
                            {"role": "tool", "tool_call_id": call.id, "content": "7"}]
assert client.chat.completions.create(**{**CHAT, "messages": again}, tools=TOOLS).choices[0].message.content is not None

schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
made = client.chat.completions.create(**{**CHAT, "max_tokens": 60}, response_format={
    "type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}})
assert json.loads(made.choices[0].message.content)["n"] in (1, 2), made


async def together():
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, timeout=60) as many:
        async def one(streamed):
            if not streamed:
                return (await many.completions.create(**PROMPT)).choices[0].text
            out = ""
            async for part in await many.completions.create(**PROMPT, stream=True):
                out += part.choices[0].text
            return out
        texts = await asyncio.gather(*(one(i % 2 == 1) for i in range(16)))
        leaving = await many.completions.create(**{**PROMPT, "max_tokens": 400}, stream=True)
        async for _ in leaving:
            break
        await leaving.close()  # in the middle
        return texts
assert set(asyncio.run(together())) == {whole.choices[0].text}

for wrong, kind in (({"max_tokens": -1}, openai.BadRequestError), ({"model": "nobody"}, openai.NotFoundError),
                    ({"temperature": float("nan")}, ValueError), ({"n": 10**9}, openai.BadRequestError),
                    ({"extra_headers": {"Authorization": "Bearer other"}}, openai.AuthenticationError)):
    try:
        client.completions.create(**{**PROMPT, **wrong})
    except kind as error:
        assert not isinstance(error, openai.APIStatusError) or "[rlalgo.serve." in str(error), error
    else:
        raise AssertionError(f"{wrong} was answered")
assert client.completions.create(**PROMPT).choices[0].text == whole.choices[0].text
print(json.dumps({"package": f"openai {openai.__version__}"}))
