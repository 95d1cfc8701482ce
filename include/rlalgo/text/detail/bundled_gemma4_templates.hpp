// The bundled chat template of Gemma 4: JSON without quotation marks, tools by their schema, thoughts in a channel.
#pragma once

#include <string_view>

namespace rlalgo::text::detail {

// gemma4_unified is the same.
inline constexpr std::string_view gemma4_template = R"jinja({%- macro quoted(text) %}
    {{- '<|"|>' ~ text ~ '<|"|>' }}
{%- endmacro %}
{%- macro value_of(value, quote_keys=true) %}
    {%- if value is string %}
        {{- quoted(value) }}
    {%- elif value is boolean %}
        {{- 'true' if value else 'false' }}
    {%- elif value is mapping %}
        {{- '{' }}
        {%- for key, inner in value | dictsort %}
            {{- '' if loop.first else ',' }}
            {{- quoted(key) if quote_keys else key }}
            {{- ':' + value_of(inner, quote_keys) }}
        {%- endfor %}
        {{- '}' }}
    {%- elif value is sequence %}
        {{- '[' }}
        {%- for inner in value %}
            {{- ('' if loop.first else ',') + value_of(inner, quote_keys) }}
        {%- endfor %}
        {{- ']' }}
    {%- else %}
        {{- value }}
    {%- endif %}
{%- endmacro %}
{%- macro names(list) %}
    {{- 'required:[' }}
    {%- for name in list %}
        {{- ('' if loop.first else ',') + quoted(name) }}
    {%- endfor %}
    {{- ']' }}
{%- endmacro %}
{%- macro items_of(items) %}
    {{- 'items:{' }}
    {%- set told = namespace(any=false) %}
    {%- for key, value in items | dictsort if value is not none %}
        {{- ',' if told.any }}
        {%- set told.any = true %}
        {%- if key == 'properties' %}
            {{- 'properties:{' + (properties_of(value) if value is mapping else '') + '}' }}
        {%- elif key == 'required' %}
            {{- names(value) }}
        {%- elif key == 'type' %}
            {{- 'type:' + value_of(value | upper if value is string else value | map('upper') | list) }}
        {%- else %}
            {{- key ~ ':' ~ value_of(value) }}
        {%- endif %}
    {%- endfor %}
    {{- '}' }}
{%- endmacro %}
{#- Of a schema without properties, its own unusual keys stand in for them: keywords = true. #}
{%- macro properties_of(properties, keywords=false) %}
    {%- set told = namespace(any=false) %}
    {%- for key, value in properties | dictsort %}
        {%- if not (keywords and key in ['description', 'type', 'properties', 'required', 'nullable']) %}
            {%- set kind = value.type | upper %}
            {{- (',' if told.any else '') ~ key ~ ':{' }}
            {%- set told.any = true %}
            {{- 'description:' + quoted(value.description) + ',' if value.description }}
            {{- 'enum:' + value_of(value.enum) + ',' if kind == 'STRING' and value.enum }}
            {{- items_of(value['items']) + ',' if kind == 'ARRAY' and value['items'] is mapping and value['items'] }}
            {{- 'nullable:true,' if value.nullable }}
            {%- if kind == 'OBJECT' %}
                {%- set inner = value.properties is defined and value.properties is mapping %}
                {{- 'properties:{' + (properties_of(value.properties) if inner else properties_of(value, true)) + '},' }}
                {{- names(value.required) + ',' if value.required }}
            {%- endif %}
            {{- 'type:' + quoted(kind) + '}' }}
        {%- endif %}
    {%- endfor %}
{%- endmacro %}
{%- macro declared(function) %}
    {{- 'declaration:' ~ function.name ~ '{description:' ~ quoted(function.description) }}
    {%- set given = function.parameters %}
    {%- if given %}
        {{- ',parameters:{' + ('properties:{' + properties_of(given.properties) + '},' if given.properties else '') }}
        {{- names(given.required) + ',' if given.required }}
        {{- 'type:' + quoted(given.type | upper) + '}' if given.type }}
    {%- endif %}
    {%- if 'response' in function %}
        {%- set kind = function.response.type | upper %}
        {{- ',response:{' }}
        {{- 'description:' + quoted(function.response.description) + ',' if function.response.description }}
        {{- 'type:' + quoted(kind) + '}' if kind == 'OBJECT' }}
    {%- endif %}
    {{- '}' }}
{%- endmacro %}
{%- macro fields(values) %}
    {%- for key, value in values | dictsort %}
        {{- ('' if loop.first else ',') ~ key ~ ':' ~ value_of(value, false) }}
    {%- endfor %}
{%- endmacro %}
{%- macro answered(name, answer) %}
    {{- '<|tool_response>response:' + name + '{' }}
    {{- fields(answer) if answer is mapping else 'value:' + value_of(answer, false) }}
    {{- '}<tool_response|>' }}
{%- endmacro %}
{#- What a model wrote, without its thoughts. #}
{%- macro spoken(text) %}
    {%- set kept = namespace(text='') %}
    {%- for part in text.split('<channel|>') %}
        {%- set kept.text = kept.text + part.split('<|channel>')[0] %}
    {%- endfor %}
    {{- kept.text | trim }}
{%- endmacro %}
{%- set media = {'image': '<|image|>', 'audio': '<|audio|>', 'video': '<|video|>'} %}
{%- set thinking = enable_thinking is defined and enable_thinking %}
{%- set turns = messages %}
{{- bos_token }}
{%- if thinking or tools or messages[0].role in ['system', 'developer'] %}
    {{- '<|turn>system\n' + ('<|think|>\n' if thinking else '') }}
    {%- if messages[0].role in ['system', 'developer'] %}
        {%- set turns = messages[1:] %}
        {%- if messages[0].content is string %}
            {{- messages[0].content | trim }}
        {%- elif messages[0].content is sequence %}
            {%- for part in messages[0].content %}
                {{- part.text | trim + ' ' }}
            {%- endfor %}
        {%- endif %}
    {%- endif %}
    {%- for tool in tools or [] %}
        {{- '<|tool>' + declared(tool.function) | trim + '<tool|>' }}
    {%- endfor %}
    {{- '<turn|>\n' }}
{%- endif %}
{%- set last = namespace(user=-1, role='', kind='') %}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- set last.user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in turns %}
    {%- if message.role != 'tool' %}
        {%- set role = 'model' if message.role == 'assistant' else message.role %}
        {%- set calls = message.get('tool_calls') %}
        {%- set last.kind = '' %}
        {{- '<|turn>' + role + '\n' if role != 'model' or last.role != 'assistant' }}
        {%- set last.role = message.role %}
        {%- set thoughts = message.get('reasoning') or message.get('reasoning_content') %}
        {{- '<|channel>thought\n' + thoughts + '\n<channel|>' if thoughts and calls and loop.index0 > last.user }}
        {%- for call in calls or [] %}
            {%- set last.kind = 'call' %}
            {%- set given = call.function.arguments %}
            {{- '<|tool_call>call:' + call.function.name + '{' }}
            {{- fields(given) if given is mapping else given if given is string else '' }}
            {{- '}<tool_call|>' }}
        {%- endfor %}
        {#- Answers come with the message, or in the tool messages behind it. #}
        {%- set answers = namespace(any=false) %}
        {%- for response in message.get('tool_responses') or [] %}
            {{- answered(response.name | default('unknown'), response.response) }}
            {%- set answers.any = true %}
        {%- endfor %}
        {%- if calls and not message.get('tool_responses') %}
            {%- for follow in turns[loop.index:] %}
                {%- if follow.role != 'tool' %}
                    {%- break %}
                {%- endif %}
                {%- set answers.any = true %}
                {%- set named = namespace(name=follow.get('name') | default('unknown')) %}
                {%- for call in calls if call.get('id') == follow.get('tool_call_id') %}
                    {%- set named.name = call.function.name %}
                {%- endfor %}
                {%- set body = follow.get('content') %}
                {%- if body is sequence and body is not string %}
                    {%- set words = namespace(text='') %}
                    {%- for part in body if part.get('type') == 'text' %}
                        {%- set words.text = words.text + (part.get('text') | default('')) %}
                    {%- endfor %}
                    {{- answered(named.name, words.text) }}
                    {%- for part in body %}
                        {{- media.get(part.get('type'), '') }}
                    {%- endfor %}
                {%- else %}
                    {{- answered(named.name, body) }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {%- if answers.any %}
            {%- set last.kind = 'answer' %}
        {%- endif %}
        {%- set shown %}
            {%- if message.content is string or message.content is sequence %}
                {%- for part in ([{'type': 'text', 'text': message.content}] if message.content is string else message.content) %}
                    {%- if part.type == 'text' %}
                        {{- spoken(part.text) if role == 'model' else part.text | trim }}
                    {%- elif part.type in media %}
                        {{- media[part.type] }}
                        {%- set last.kind = part.type %}
                    {%- endif %}
                {%- endfor %}
            {%- endif %}
        {%- endset %}
        {{- shown }}
        {%- if last.kind == 'call' and not answers.any %}
            {{- '<|tool_response>' }}
        {%- elif not answers.any or shown | trim %}
            {{- '<turn|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and last.kind not in ['call', 'answer'] %}
    {{- '<|turn>model\n' + ('' if thinking else '<|channel>thought\n<channel|>') }}
{%- endif %}
)jinja";

}  // namespace rlalgo::text::detail
