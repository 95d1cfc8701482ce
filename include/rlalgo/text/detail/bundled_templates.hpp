// The chat templates that come with the library, by the names axolotl gives them.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace rlalgo::text::detail {

// <|im_start|>role … <|im_end|>, content as it stands.
inline constexpr std::string_view chatml_template = R"jinja({%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<|im_start|>assistant\n' }}
{%- endif -%}
)jinja";

// Headers and <|eot_id|>, content trimmed (or the text parts of it joined), begin-of-text before the first message.
inline constexpr std::string_view llama3_template = R"jinja({%- macro header(role) -%}
    {{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- endmacro -%}
{%- for message in messages -%}
    {%- if message.content is string -%}
        {%- set words = message.content -%}
    {%- else -%}
        {%- set words = message.content | selectattr('text', 'defined') | map(attribute='text') | join -%}
    {%- endif -%}
    {%- set turn = header(message.role) + words | trim + '<|eot_id|>' -%}
    {{ bos_token + turn if loop.first else turn }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ header('assistant') }}
{%- endif -%}
)jinja";

// ChatML with a default system message, tools in the system message, tool calls and grouped tool responses.
inline constexpr std::string_view qwen_25_template = R"jinja({%- macro open(role) -%}
    {{ '<|im_start|>' + role + '\n' }}
{%- endmacro -%}
{%- set close = '<|im_end|>\n' -%}
{%- if messages[0].role == 'system' -%}
    {%- set instructions = messages[0].content -%}
{%- else -%}
    {%- set instructions = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}
{%- endif -%}
{{ open('system') + instructions }}
{%- if tools -%}
    {{ '\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' }}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools -%}
        {{ '\n' + tool | tojson }}
    {%- endfor -%}
    {{ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' }}
    {{- '</tool_call>' }}
{%- endif -%}
{{ close }}
{%- for message in messages -%}
    {%- if message.role == 'user' or message.role == 'system' and not loop.first -%}
        {{ open(message.role) + message.content + close }}
    {%- elif message.role == 'assistant' and not message.tool_calls -%}
        {{ open(message.role) + message.content + close }}
    {%- elif message.role == 'assistant' -%}
        {{ '<|im_start|>' + message.role + ('\n' + message.content if message.content else '') }}
        {%- for call in message.tool_calls -%}
            {%- set function = call.function if call.function is defined else call -%}
            {{ '\n<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' }}
            {{- function.arguments | tojson + '}\n</tool_call>' }}
        {%- endfor -%}
        {{ close }}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}
            {{ '<|im_start|>user' }}
        {%- endif -%}
        {{ '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}
            {{ close }}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ open('assistant') }}
{%- endif -%}
)jinja";

// ChatML with thinking: kept for turns after the last real user query, dropped before; the generation prompt opens it.
inline constexpr std::string_view qwen3_template = R"jinja({%- macro open(role) -%}
    {{ '<|im_start|>' + role + '\n' }}
{%- endmacro -%}
{%- set close = '<|im_end|>\n' -%}
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- if tools -%}
    {{ open('system') + (system + '\n\n' if system is not none else '') }}
    {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' }}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools -%}
        {{ '\n' + tool | tojson }}
    {%- endfor -%}
    {{ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' }}
    {{- '</tool_call>' + close }}
{%- elif system is not none -%}
    {{ open('system') + system + close }}
{%- endif -%}
{#- The last question: a user message that is not a tool's answer. -#}
{%- set question = namespace(index=messages | length - 1) -%}
{%- for message in messages[::-1] -%}
    {%- set words = message.content if message.content is string else '' -%}
    {%- set answer = words.startswith('<tool_response>') and words.endswith('</tool_response>') -%}
    {%- if message.role == 'user' and message.content is string and not answer -%}
        {%- set question.index = messages | length - loop.index -%}
        {%- break -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.role == 'user' or message.role == 'system' and not loop.first -%}
        {{ open(message.role) + content + close }}
    {%- elif message.role == 'assistant' -%}
        {%- set thoughts = '' -%}
        {%- if message.reasoning_content is string -%}
            {%- set thoughts = message.reasoning_content -%}
        {%- elif '</think>' in content -%}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
            {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
        {%- endif -%}
        {{ open(message.role) }}
        {%- if loop.index0 > question.index and (loop.last or thoughts) -%}
            {{ '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else -%}
            {{ content }}
        {%- endif -%}
        {%- for call in message.tool_calls or [] -%}
            {%- set function = call.function or call -%}
            {{ '\n' if content or not loop.first }}
            {{- '<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor -%}
        {{ close }}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}
            {{ '<|im_start|>user' }}
        {%- endif -%}
        {{ '\n<tool_response>\n' ~ content ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}
            {{ close }}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ open('assistant') + '<think>\n\n' + ('</think>\n\n' if enable_thinking is defined and enable_thinking is false else '') }}
{%- endif -%}
)jinja";

inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> bundled_templates = {{
    {"chatml", chatml_template},
    {"llama3", llama3_template},
    {"qwen_25", qwen_25_template},
    {"qwen3", qwen3_template},
}};

}  // namespace rlalgo::text::detail
