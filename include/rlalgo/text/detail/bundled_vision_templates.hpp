// Bundled chat templates of models that also see: a message's content is a text, or a list of parts with a type.
#pragma once

#include <string_view>

namespace rlalgo::text::detail {

// <start_of_turn>role … <end_of_turn>, the system message in front of the first turn, turns strictly alternating.
inline constexpr std::string_view gemma3_template = R"jinja({{ bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' -%}
{%- set lead = namespace(text='') -%}
{%- if messages[0].role == 'system' -%}
    {%- for part in ([{'text': system}] if system is string else system) if 'text' in part -%}
        {%- set lead.text = lead.text + part.text -%}
    {%- endfor -%}
    {%- set lead.text = lead.text + '\n\n' -%}
{%- endif -%}
{%- for message in (messages[1:] if messages[0].role == 'system' else messages) -%}
    {%- if (message.role == 'user') != (loop.index is odd) -%}
        {{ raise_exception('user and assistant must take turns, the user first') }}
    {%- endif -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- lead.text if loop.first }}
    {%- if message.content is string -%}
        {{ message.content | trim }}
    {%- elif message.content is iterable -%}
        {%- for part in message.content -%}
            {{ '<start_of_image>' if part.type == 'image' }}
            {{- part.text | trim if part.type == 'text' }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('the content of a message is neither text nor a list of parts') }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}
)jinja";

// The same with other marks for images, and with sounds.
inline constexpr std::string_view gemma3n_template = R"jinja({{ bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' -%}
{%- set lead = namespace(text='') -%}
{%- if messages[0].role == 'system' -%}
    {%- for part in ([{'text': system}] if system is string else system) if 'text' in part -%}
        {%- set lead.text = lead.text + part.text -%}
    {%- endfor -%}
    {%- set lead.text = lead.text + '\n\n' -%}
{%- endif -%}
{%- set marks = {'image': '<image_soft_token>', 'audio': '<audio_soft_token>'} -%}
{%- for message in (messages[1:] if messages[0].role == 'system' else messages) -%}
    {%- if (message.role == 'user') != (loop.index is odd) -%}
        {{ raise_exception('user and assistant must take turns, the user first') }}
    {%- endif -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- lead.text if loop.first }}
    {%- if message.content is string -%}
        {{ message.content | trim }}
    {%- elif message.content is iterable -%}
        {%- for part in message.content -%}
            {{ part.text | trim if part.type == 'text' else marks.get(part.type, '') }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('the content of a message is neither text nor a list of parts') }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}
)jinja";

// USER: and ASSISTANT:, a space behind every text, images first.
inline constexpr std::string_view llava_template = R"jinja({%- for message in messages %}
    {{- message.role | upper + ': ' if message.role != 'system' }}
    {%- if message.content is string %}
        {{- message.content + ' ' }}
    {%- else %}
        {%- for part in message.content or [] if part.type == 'image' %}
            {{- '<image>\n' }}
        {%- endfor %}
        {%- for part in message.content or [] if part.type == 'text' %}
            {{- part.text + ' ' }}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{{- 'ASSISTANT:' if add_generation_prompt }}
)jinja";

// ChatML with a default system message; pictures and films as pads, counted with add_vision_id.
inline constexpr std::string_view qwen2_vl_template = R"jinja({%- set seen = namespace(pictures=0, films=0) %}
{%- for message in messages %}
    {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' if loop.first and message.role != 'system' }}
    {{- '<|im_start|>' ~ message.role ~ '\n' }}
    {%- for part in ([{'text': message.content}] if message.content is string else message.content) %}
        {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
            {%- set seen.pictures = seen.pictures + 1 %}
            {{- 'Picture ' ~ seen.pictures ~ ': ' if add_vision_id }}
            {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
        {%- elif part.type == 'video' or 'video' in part %}
            {%- set seen.films = seen.films + 1 %}
            {{- 'Video ' ~ seen.films ~ ': ' if add_vision_id }}
            {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
        {%- elif 'text' in part %}
            {{- part.text }}
        {%- endif %}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
)jinja";

// As mistral_v3_tekken without tools; the system message goes into a last user message.
inline constexpr std::string_view pixtral_template = R"jinja({%- macro words(part) %}
    {{- part.content if 'content' in part else part.text if 'text' in part }}
{%- endmacro %}
{%- macro shown(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if part.type not in ['text', 'image'] %}
                {{- raise_exception('Unrecognized content type!') }}
            {%- endif %}
            {{- words(part) if part.type == 'text' else '[IMG]' }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set has_system = messages[0].role == 'system' %}
{%- set system = namespace(text='') %}
{%- if has_system and messages[0].content is string %}
    {%- set system.text = messages[0].content %}
{%- elif has_system %}
    {%- for part in messages[0].content if part.type == 'text' %}
        {%- set system.text = system.text + words(part) %}
    {%- endfor %}
{%- endif %}
{{- bos_token }}
{%- for message in (messages[1:] if has_system else messages) %}
    {%- if (loop.index0 % 2 == 0) != (message.role == 'user') %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST]' + (system.text + '\n\n' if loop.last and has_system else '') + shown(message.content) + '[/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- shown(message.content) + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}
    {%- endif %}
{%- endfor %}
)jinja";

// As Llama-3.1, dated, tools for the first user message; no system message beside pictures.
inline constexpr std::string_view llama3_2_vision_template = R"jinja({%- macro header(role) %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- endmacro %}
{%- macro words(content) %}
    {{- (content if content is string else content | selectattr('text', 'defined') | map(attribute='text') | join) | trim }}
{%- endmacro %}
{%- macro described(tools) %}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- 'Do not use variables.\n\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) + '\n\n' }}
    {%- endfor %}
{%- endmacro %}
{%- set tools = custom_tools if custom_tools is defined else tools %}
{%- set for_user = tools is not none and (tools_in_user_message is not defined or tools_in_user_message) %}
{%- set has_system = messages[0].role == 'system' %}
{%- set system = words(messages[0].content) if has_system else '' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- set seen = namespace(image=false) %}
{%- for message in turns %}
    {%- for part in message.content if part.type == 'image' %}
        {%- set seen.image = true %}
    {%- endfor %}
{%- endfor %}
{{- bos_token }}
{%- if not seen.image %}
    {{- header('system') + ('Environment: ipython\n' if tools is not none else '') }}
    {{- 'Cutting Knowledge Date: December 2023\nToday Date: ' }}
    {{- (date_string if date_string is defined else strftime_now('%d %b %Y')) + '\n\n' }}
    {%- if tools is not none and not for_user %}
        {{- 'You have access to the following functions. To call a function, please respond with JSON for a function call.' }}
        {{- described(tools) }}
    {%- endif %}
    {{- system + '<|eot_id|>' }}
{%- elif system != '' %}
    {{- raise_exception('Prompting with images is incompatible with system messages.') }}
{%- endif %}
{%- if for_user %}
    {%- if not turns %}
        {{- raise_exception('Cannot put tools in the first user message when there\'s no first user message!') }}
    {%- endif %}
    {{- header('user') + 'Given the following functions, please respond with a JSON for a function call ' }}
    {{- 'with its proper arguments that best answers the given prompt.\n\n' + described(tools) }}
    {{- words(turns[0].content) + '<|eot_id|>' }}
{%- endif %}
{%- for message in (turns[1:] if for_user else turns) %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set function = message.tool_calls[0].function %}
        {{- header('assistant') + '{"name": "' + function.name + '", "parameters": ' + function.arguments | tojson + '}' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- header('ipython') }}
        {{- message.content | tojson if message.content is iterable else message.content }}
    {%- else %}
        {{- header(message.role) }}
        {%- for part in ([{'type': 'text', 'text': message.content}] if message.content is string else message.content) %}
            {{- '<|image|>' if part.type == 'image' else part.text if part.type == 'text' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{{- header('assistant') if add_generation_prompt }}
)jinja";

// As llama3_2_vision with other marks, and without a system message of its own.
inline constexpr std::string_view llama4_template = R"jinja({%- macro header(role) %}
    {{- '<|header_start|>' + role + '<|header_end|>\n\n' }}
{%- endmacro %}
{%- macro words(content) %}
    {{- (content if content is string else content | selectattr('text', 'defined') | map(attribute='text') | join) | trim }}
{%- endmacro %}
{%- macro shown(content) %}
    {%- for part in ([{'type': 'text', 'text': content}] if content is string else content) %}
        {{- '<|image|>' if part.type == 'image' else part.text if part.type == 'text' }}
    {%- endfor %}
{%- endmacro %}
{%- macro described(tools) %}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- 'Do not use variables.\n\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) + '\n\n' }}
    {%- endfor %}
{%- endmacro %}
{%- set tools = custom_tools if custom_tools is defined else tools %}
{%- set for_user = tools is not none and (tools_in_user_message is not defined or tools_in_user_message) %}
{%- set has_system = messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{{- bos_token }}
{%- if has_system %}
    {{- header('system') + ('Environment: ipython\n' if tools is not none else '') }}
    {%- if tools is not none and not for_user %}
        {{- 'You have access to the following functions. To call a function, please respond with JSON for a function call.' }}
        {{- described(tools) }}
    {%- endif %}
    {{- words(messages[0].content) + '<|eot|>' }}
{%- endif %}
{%- if for_user %}
    {%- if not turns %}
        {{- raise_exception('Cannot put tools in the first user message when there\'s no first user message!') }}
    {%- endif %}
    {{- header('user') + 'Given the following functions, please respond with a JSON for a function call ' }}
    {{- 'with its proper arguments that best answers the given prompt.\n\n' + described(tools) }}
    {{- words(turns[0].content) + '<|eot|>' }}
{%- endif %}
{%- for message in (turns[1:] if for_user else turns) %}
    {%- if message.role not in ['tool', 'ipython'] and 'tool_calls' not in message %}
        {{- header(message.role) + shown(message.content) + '<|eot|>' }}
    {%- elif 'tool_calls' in message and message.tool_calls | length > 0 %}
        {{- header('assistant') + '<|python_start|>' + shown(message.content) + '<|python_end|>' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' }}
        {%- endfor %}
        {{- '<|eot|>' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- header('ipython') }}
        {{- message.content | tojson if message.content is iterable else message.content }}
        {{- '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{{- header('assistant') if add_generation_prompt }}
)jinja";

// As qwen3, with pictures and films, and system messages in parts.
inline constexpr std::string_view qwen3_5_template = R"jinja({%- macro open(role) %}
    {{- '<|im_start|>' + role + '\n' }}
{%- endmacro %}
{%- macro instructions(content) %}
    {%- for part in ([content] if content is string else content) %}
        {%- if part is mapping %}
            {{- part.get('text') or part.get('content') or part.get('value') or '' }}
        {%- elif part is string %}
            {{- part }}
        {%- endif %}
    {%- endfor %}
{%- endmacro %}
{%- macro shown(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif part.type == 'video' or 'video' in part %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set close = '<|im_end|>\n' %}
{%- set has_system = messages[0].role == 'system' %}
{%- if tools %}
    {{- open('system') + (instructions(messages[0].content) + '\n\n' if has_system else '') }}
    {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' }}
    {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' }}
    {{- '</tool_call>' + close }}
{%- elif has_system %}
    {{- open('system') + instructions(messages[0].content) + close }}
{%- endif %}
{#- The last question: a user message that is not a tool's answer. #}
{%- set question = namespace(index=messages | length - 1) %}
{%- set final = real_last_index if real_last_index is defined and real_last_index is not none else messages | length - 1 %}
{%- for message in messages[::-1] %}
    {%- set text = message.content if message.content is string else '' %}
    {%- set answer = text.startswith('<tool_response>') and text.endswith('</tool_response>') %}
    {%- if message.role == 'user' and not answer %}
        {%- set question.index = messages | length - loop.index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or message.role == 'system' and not loop.first %}
        {{- open(message.role) + shown(message.content) + close }}
    {%- elif message.role == 'assistant' %}
        {%- set said = namespace(text=message.content if message.content is string else '') %}
        {%- for part in ([] if message.content is string else message.content) if 'text' in part %}
            {%- set said.text = said.text + part.text %}
        {%- endfor %}
        {%- set content = said.text %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- open(message.role) }}
        {%- if loop.index0 > question.index and (loop.index0 == final or thoughts) %}
            {{- '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function or call %}
            {{- '\n' if content or not loop.first }}
            {{- '<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- close }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' }}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {{- close if loop.last or loop.nextitem.role != 'tool' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- open('assistant') + '<think>\n\n' + ('</think>\n\n' if enable_thinking is defined and enable_thinking is false else '') }}
{%- endif %}
)jinja";

}  // namespace rlalgo::text::detail
