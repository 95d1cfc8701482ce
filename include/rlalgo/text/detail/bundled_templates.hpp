// The chat templates that come with the library, by the names axolotl gives them.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include <rlalgo/text/detail/bundled_gemma4_templates.hpp>
#include <rlalgo/text/detail/bundled_tool_templates.hpp>
#include <rlalgo/text/detail/bundled_vision_templates.hpp>

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
{{ open('system') ~ instructions if tools else open('system') + instructions }}
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
inline constexpr std::string_view qwen3_template = R"jinja({%- macro words(content) -%}
    {%- if content is string -%}
        {{ content }}
    {%- else -%}
        {%- for part in content if part is mapping and part.text is defined -%}
            {{ part.text }}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro open(role) -%}
    {{ '<|im_start|>' + role + '\n' }}
{%- endmacro -%}
{%- set close = '<|im_end|>\n' -%}
{%- set system = words(messages[0].content) if messages[0].role == 'system' else none -%}
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
{%- set final = real_last_index if real_last_index is defined and real_last_index is not none else messages | length - 1 -%}
{%- for message in messages[::-1] -%}
    {%- set text = message.content if message.content is string else '' -%}
    {%- set answer = text.startswith('<tool_response>') and text.endswith('</tool_response>') -%}
    {%- if message.role == 'user' and not answer -%}
        {%- set question.index = messages | length - loop.index -%}
        {%- break -%}
    {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set content = words('' if message.role == 'assistant' and message.content is none else message.content) -%}
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
        {%- if loop.index0 > question.index and (loop.index0 == final or thoughts) -%}
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

// ### Instruction and ### Response headings, blank lines between messages.
inline constexpr std::string_view alpaca_template = R"jinja({{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '### Instruction:\n' + message.content }}
    {%- elif message.role == 'assistant' %}
        {{- '### Response:\n' + message.content + eos_token }}
    {%- elif message.role == 'system' and loop.first %}
        {{- message.content }}
    {%- endif %}
    {{- '\n\n' if not loop.last }}
{%- endfor %}
{{- '\n\n### Response:\n' if add_generation_prompt }}
)jinja";

// [|role|] before, [|endofturn|] behind all but user messages.
inline constexpr std::string_view exaone_template = R"jinja({%- for message in messages %}
    {{- '[|system|][|endofturn|]\n' if loop.first and message.role != 'system' }}
    {{- '[|' + message.role + '|]' + message.content + ('\n' if message.role == 'user' else '[|endofturn|]\n') }}
{%- endfor %}
{{- '[|assistant|]' if add_generation_prompt }}
)jinja";

// <|role|> … <|end|>; a user message already opens the answer.
inline constexpr std::string_view phi_3_template = R"jinja({{- bos_token }}
{%- for message in messages %}
    {%- if message.role in ['system', 'user'] %}
        {{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
        {{- '<|assistant|>\n' if message.role == 'user' }}
    {%- elif message.role == 'assistant' %}
        {{- message.content + '<|end|>\n' }}
    {%- endif %}
{%- endfor %}
)jinja";

// <|role|> … <|end|>.
inline constexpr std::string_view phi_35_template = R"jinja({%- for message in messages %}
    {%- if message.role in ['user', 'assistant'] or message.role == 'system' and message.content %}
        {{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
    {%- endif %}
{%- endfor %}
{{- '<|assistant|>\n' if add_generation_prompt }}
)jinja";

// Full-width bars around User and Assistant, the system message bare.
inline constexpr std::string_view deepseek_v2_template = R"jinja({{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<｜User｜>' + message.content }}
    {%- elif message.role == 'assistant' %}
        {{- '<｜Assistant｜>' + message.content + eos_token }}
    {%- elif message.role == 'system' %}
        {{- message.content + '\n\n' }}
    {%- endif %}
{%- endfor %}
{{- '<｜Assistant｜>' if add_generation_prompt }}
)jinja";

// <start_of_turn>role … <end_of_turn>, no system message, strict turns, the assistant is called model.
inline constexpr std::string_view gemma_template = R"jinja({{- bos_token }}
{%- if messages[0].role == 'system' %}
    {{- raise_exception('System role not supported') }}
{%- endif %}
{%- for message in messages %}
    {%- if (loop.index0 % 2 == 0) != (message.role == 'user') %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {%- if message.content is string %}
        {{- message.content | trim }}
    {%- else %}
        {%- for part in message.content if 'text' in part %}
            {{- part.text | trim }}
        {%- endfor %}
    {%- endif %}
    {{- '<end_of_turn>\n' }}
{%- endfor %}
{{- '<start_of_turn>model\n' if add_generation_prompt }}
)jinja";

// Turn tokens of Command-R and Aya, strict turns, contents stripped.
inline constexpr std::string_view cohere_template = R"jinja({%- macro turn(name, words) %}
    {{- '<|START_OF_TURN_TOKEN|><|' + name + '_TOKEN|>' + words + '<|END_OF_TURN_TOKEN|>' }}
{%- endmacro %}
{{- bos_token }}
{%- set has_system = messages[0].role == 'system' %}
{{- turn('SYSTEM', messages[0].content) if has_system }}
{%- for message in (messages[1:] if has_system else messages) %}
    {%- if (loop.index0 % 2 == 0) != (message.role == 'user') %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- turn('USER', message.content.strip()) }}
    {%- elif message.role == 'assistant' %}
        {{- turn('CHATBOT', message.content.strip()) }}
    {%- endif %}
{%- endfor %}
{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' if add_generation_prompt }}
)jinja";

// [INST] … [/INST], the system message inside the first of them, strict turns.
inline constexpr std::string_view mistral_v1_template = R"jinja({%- macro words(message) %}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {{- message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
    {%- endif %}
{%- endmacro %}
{%- set strange = 'Only user and assistant roles are supported, with the exception of an initial optional system message!' %}
{%- set uneven = 'After the optional system message, conversation roles must alternate user/assistant/user/assistant/...' %}
{%- set has_system = messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (loop.index0 % 2 == 0) != (message.role == 'user') %}
        {{- raise_exception(uneven) }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {%- set before = words(messages[0]) + '\n\n' if has_system and loop.first else '' %}
        {{- ' [INST] ' + before + words(message) + ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + words(message) + eos_token }}
    {%- else %}
        {{- raise_exception(strange) }}
    {%- endif %}
{%- endfor %}
)jinja";

// As mistral_v1 with tools; the system message goes into a last user message, as its authors have it.
inline constexpr std::string_view mistral_v2v3_template = R"jinja({%- macro words(message) %}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {{- message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
    {%- endif %}
{%- endmacro %}
{%- set strange = 'Only user and assistant roles are supported, with the exception of an initial optional system message!' %}
{%- set uneven = 'After the optional system message, conversation roles must alternate user/assistant/user/assistant/...' %}
{%- set has_system = messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- set users = turns | selectattr('role', 'equalto', 'user') | list %}
{%- set count = namespace(turns=0) %}
{%- for message in turns %}
    {%- set calls = message.tool_calls is defined and message.tool_calls is not none %}
    {%- if message.role not in ['tool', 'tool_results'] and not calls %}
        {%- if (count.turns % 2 == 0) != (message.role == 'user') %}
            {{- raise_exception(uneven) }}
        {%- endif %}
        {%- set count.turns = count.turns + 1 %}
    {%- endif %}
{%- endfor %}
{%- macro checked(id) %}
    {%- if id is not defined or id | length != 9 %}
        {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
    {%- endif %}
    {{- id }}
{%- endmacro %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- if tools is defined and tools is not none and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for name, value in tool.function.items() if name != 'return' %}
                    {{- '"' + name + '": ' + ('"' + value + '"' if value is string else value | tojson) }}
                    {{- ', ' if not loop.last }}
                {%- endfor %}
                {{- '}}' + (']' if loop.last else ', ') }}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {%- set before = words(messages[0]) + '\n\n' if has_system and loop.last else '' %}
        {{- '[INST] ' + before + words(message) + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + checked(call.id) + '"}' }}
            {{- ']' + eos_token if loop.last else ', ' }}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + words(message) | trim + eos_token }}
    {%- elif message.role in ['tool', 'tool_results'] %}
        {%- set nested = message.content is defined and message.content.content is defined %}
        {%- set result = message.content.content if nested else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + result | string + ', "call_id": "' + checked(message.tool_call_id) }}
        {{- '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception(strange) }}
    {%- endif %}
{%- endfor %}
)jinja";

// As mistral_v2v3, for a tokenizer that needs no spaces.
inline constexpr std::string_view mistral_v3_tekken_template = R"jinja({%- macro words(message) %}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {{- message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
    {%- endif %}
{%- endmacro %}
{%- set strange = 'Only user and assistant roles are supported, with the exception of an initial optional system message!' %}
{%- set uneven = 'After the optional system message, conversation roles must alternate user/assistant/user/assistant/...' %}
{%- set has_system = messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- set users = turns | selectattr('role', 'equalto', 'user') | list %}
{%- set count = namespace(turns=0) %}
{%- for message in turns %}
    {%- set calls = message.tool_calls is defined and message.tool_calls is not none %}
    {%- if message.role not in ['tool', 'tool_results'] and not calls %}
        {%- if (count.turns % 2 == 0) != (message.role == 'user') %}
            {{- raise_exception(uneven) }}
        {%- endif %}
        {%- set count.turns = count.turns + 1 %}
    {%- endif %}
{%- endfor %}
{%- macro checked(id) %}
    {%- if id is not defined or id | length != 9 %}
        {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
    {%- endif %}
    {{- id }}
{%- endmacro %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- if tools is defined and tools is not none and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS][' }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for name, value in tool.function.items() if name != 'return' %}
                    {{- '"' + name + '": ' + ('"' + value + '"' if value is string else value | tojson) }}
                    {{- ', ' if not loop.last }}
                {%- endfor %}
                {{- '}}' + (']' if loop.last else ', ') }}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {%- set before = words(messages[0]) + '\n\n' if has_system and loop.last else '' %}
        {{- '[INST]' + before + words(message) + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + checked(call.id) + '"}' }}
            {{- ']' + eos_token if loop.last else ', ' }}
        {%- endfor %}
    {%- elif message.role == 'assistant' %}
        {{- words(message) + eos_token }}
    {%- elif message.role in ['tool', 'tool_results'] %}
        {%- set nested = message.content is defined and message.content.content is defined %}
        {%- set result = message.content.content if nested else message.content %}
        {{- '[TOOL_RESULTS]{"content": ' + result | string + ', "call_id": "' + checked(message.tool_call_id) }}
        {{- '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception(strange) }}
    {%- endif %}
{%- endfor %}
)jinja";

// ChatML of user and assistant turns, a system message only in front.
inline constexpr std::string_view nemotron_h_template = R"jinja({%- for message in messages %}
    {%- if message.role not in ['user', 'assistant'] and not (message.role == 'system' and loop.first) %}
        {{- raise_exception('no turn of a conversation: ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
)jinja";

inline constexpr std::array<std::pair<std::string_view, std::string_view>, 33> bundled_templates = {{
    {"chatml", chatml_template},
    {"llama3", llama3_template},
    {"qwen_25", qwen_25_template},
    {"qwen3", qwen3_template},
    {"alpaca", alpaca_template},
    {"exaone", exaone_template},
    {"phi_3", phi_3_template},
    {"phi_35", phi_35_template},
    {"deepseek_v2", deepseek_v2_template},
    {"gemma", gemma_template},
    {"cohere", cohere_template},
    {"mistral_v1", mistral_v1_template},
    {"mistral_v2v3", mistral_v2v3_template},
    {"mistral_v3_tekken", mistral_v3_tekken_template},
    {"aya", cohere_template},
    {"nemotron_h", nemotron_h_template},
    {"gemma3", gemma3_template},
    {"gemma3n", gemma3n_template},
    {"llava", llava_template},
    {"qwen2_vl", qwen2_vl_template},
    {"metharme", metharme_template},
    {"phi_4", phi_4_template},
    {"mistral_v7_tekken", mistral_v7_tekken_template},
    {"falcon_h1", falcon_h1_template},
    {"deepseek_v3", deepseek_v3_template},
    {"exaone4", exaone4_template},
    {"jamba", jamba_template},
    {"pixtral", pixtral_template},
    {"llama3_2_vision", llama3_2_vision_template},
    {"llama4", llama4_template},
    {"qwen3_5", qwen3_5_template},
    {"gemma4", gemma4_template},
    {"gemma4_unified", gemma4_template},
}};

// Names of axolotl's whose text its authors' licence (CC BY-NC) keeps out of this library.
inline constexpr std::array<std::string_view, 3> unbundled_templates = {"command_a", "command_a_tool_use",
                                                                        "command_a_rag"};

}  // namespace rlalgo::text::detail
