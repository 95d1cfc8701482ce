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

}  // namespace rlalgo::text::detail
