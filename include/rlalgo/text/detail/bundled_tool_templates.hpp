// Bundled chat templates of models that call tools or think.
#pragma once

#include <string_view>

namespace rlalgo::text::detail {

// <|system|>, <|user|> and <|model|>, contents stripped, a default system message.
inline constexpr std::string_view metharme_template = R"jinja({%- set has_system = messages[0].role == 'system' %}
{{- bos_token ~ '<|system|>' }}
{%- if has_system %}
    {{- messages[0].content + '' }}
{%- else %}
    {{- 'Enter RP mode. You shall reply to the user while staying in character. Your responses must be detailed, creative, ' }}
    {{- 'immersive, and drive the scenario forward.' }}
{%- endif %}
{%- for message in (messages[1:] if has_system else messages) if message.role in ['user', 'assistant'] %}
    {{- ('<|user|>' if message.role == 'user' else '<|model|>') + message.content.strip() }}
{%- endfor %}
{{- '<|model|>' if add_generation_prompt else eos_token }}
)jinja";

// ChatML with <|im_sep|> behind the role and no line ends; a default system message that asks for thoughts.
inline constexpr std::string_view phi_4_template = R"jinja({%- macro open(role) %}
    {{- '<|im_start|>' + role + '<|im_sep|>' }}
{%- endmacro %}
{%- set has_system = messages and messages[0].role == 'system' %}
{{- open('system') }}
{%- if has_system %}
    {{- messages[0].content }}
{%- else %}
    {{- 'You are Phi, a language model trained by Microsoft to help users. Your role as an assistant involves thoroughly ' }}
    {{- 'exploring questions through a systematic thinking process before providing the final precise and accurate ' }}
    {{- 'solutions. This requires engaging in a comprehensive cycle of analysis, summarizing, exploration, reassessment, ' }}
    {{- 'reflection, backtracing, and iteration to develop well-considered thinking process. Please structure your ' }}
    {{- 'response into two main sections: Thought and Solution using the specified format: <think> {Thought section} ' }}
    {{- '</think> {Solution section}. In the Thought section, detail your reasoning process in steps. Each step should ' }}
    {{- 'include detailed considerations such as analysing questions, summarizing relevant findings, brainstorming new ' }}
    {{- 'ideas, verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In the ' }}
    {{- 'Solution section, based on various attempts, explorations, and reflections from the Thought section, ' }}
    {{- 'systematically present the final solution that you deem correct. The Solution section should be logical, ' }}
    {{- 'accurate, and concise and detail necessary steps needed to reach the conclusion. Now, try to solve the ' }}
    {{- 'following question through the above guidelines:' }}
{%- endif %}
{{- '<|im_end|>' }}
{%- for message in (messages[1:] if has_system else messages) if message.role in ['user', 'assistant'] %}
    {{- open(message.role) + message.content + '<|im_end|>' }}
{%- endfor %}
{{- open('assistant') if add_generation_prompt }}
)jinja";

// [SYSTEM_PROMPT] of its own, with the date in the default one; pictures are [IMG].
inline constexpr std::string_view mistral_v7_tekken_template = R"jinja({%- macro words(content) %}
    {{- content if content is string else content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
{%- endmacro %}
{{- bos_token }}
{%- if messages[0].role != 'system' %}
    {{- '[SYSTEM_PROMPT]You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup ' }}
    {{- 'headquartered in Paris.\nYour knowledge base was last updated on 2023-10-01. The current date is ' }}
    {{- strftime_now('%Y-%m-%d') + '.\n\nWhen you\'re not sure about some information, you say that you don\'t have the ' }}
    {{- 'information and don\'t make up anything.\nIf the user\'s question is not clear, ambiguous, or does not provide ' }}
    {{- 'enough context for you to accurately answer the question, you do not try to answer it right away and you rather ' }}
    {{- 'ask the user to clarify their request (e.g. "What are some good restaurants around me?" => "Where are you?" or ' }}
    {{- '"When is the next flight to Tokyo" => "Where do you travel from?")[/SYSTEM_PROMPT]' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- '[SYSTEM_PROMPT]' + words(message.content) + '[/SYSTEM_PROMPT]' }}
    {%- elif message.role == 'assistant' %}
        {{- words(message.content) + eos_token }}
    {%- elif message.role == 'user' %}
        {{- '[INST]' }}
        {%- for part in ([{'type': 'text', 'text': message.content}] if message.content is string else message.content) %}
            {%- if part.type not in ['text', 'image', 'image_url'] %}
                {{- raise_exception('Only text and image blocks are supported in message content!') }}
            {%- endif %}
            {{- part.text if part.type == 'text' else '[IMG]' }}
        {%- endfor %}
        {{- '[/INST]' }}
    {%- else %}
        {{- raise_exception('Only user, system and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}
)jinja";

// ChatML; with tools the system message ends where the first turn begins, as its authors have it.
inline constexpr std::string_view falcon_h1_template = R"jinja({{- bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' %}
{%- if tools %}
    {{- '<|im_start|>system\n' + (system + '\n\n' if messages[0].role == 'system' else '') }}
    {{- 'You are a function calling AI model. You are provided with function signature within <tools> </tools> XML tags. ' }}
    {{- 'You may call one or more functions to assist with the user query. Don\'t make assumptions about what values to ' }}
    {{- 'plug into functions.\n<tools>\n' }}
    {%- for tool in tools %}
        {{- '[' + tool | tojson + ']' }}
    {%- endfor %}
    {{- '\n</tools>\nFor each function call, return a json object with function name and arguments within <tool_call> ' }}
    {{- '</tool_call> tags with the following schema:\n<tool_call>\n{\'arguments\': <args-dict>, \'name\': ' }}
    {{- '<function-name>}\n</tool_call>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + system + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}
)jinja";

// Full-width marks, all system messages in front, thoughts of past turns dropped, tool calls and outputs.
inline constexpr std::string_view deepseek_v3_template = R"jinja({%- set end = '<｜end▁of▁sentence｜>' %}
{%- set outputs = namespace(open=false) %}
{{- bos_token }}
{%- for message in messages if message.role == 'system' %}
    {{- ('' if loop.first else '\n\n') + message.content }}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set outputs.open = false %}
        {{- '<｜User｜>' + message.content }}
    {%- elif message.role == 'assistant' and 'tool_calls' in message %}
        {{- '<｜tool▁outputs▁end｜>' if outputs.open }}
        {%- set outputs.open = false %}
        {%- for call in message.tool_calls %}
            {%- if loop.first %}
                {{- '<｜Assistant｜>' + ('' if message.content is none else message.content) + '<｜tool▁calls▁begin｜>' }}
            {%- endif %}
            {{- ('' if loop.first else '\n') + '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name }}
            {{- '\n```json\n' + call.function.arguments + '\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}
        {{- '<｜tool▁calls▁end｜>' + end }}
    {%- elif message.role == 'assistant' %}
        {%- set content = '' if message.content is none else message.content %}
        {{- '<｜tool▁outputs▁end｜>' + content if outputs.open else '<｜Assistant｜>' + content.split('</think>')[-1] }}
        {{- end }}
        {%- set outputs.open = false %}
    {%- elif message.role == 'tool' %}
        {{- '<｜tool▁outputs▁begin｜>' if not outputs.open }}
        {{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
        {%- set outputs.open = true %}
    {%- endif %}
{%- endfor %}
{{- '<｜tool▁outputs▁end｜>' if outputs.open else '<｜Assistant｜>' if add_generation_prompt }}
)jinja";

// [|role|] lines; empty thoughts unless skip_think is false, tools in the system message.
inline constexpr std::string_view exaone4_template = R"jinja({%- set end = '[|endofturn|]\n' %}
{%- set unthinking = '<think>\n\n</think>\n\n' %}
{%- macro begin(role) %}
    {{- '[|' + role + '|]\n' }}
{%- endmacro %}
{%- macro available(tools) %}
    {{- '# Available Tools\nYou can use none, one, or multiple of the following tools by calling them as functions to help ' }}
    {{- 'with the user’s query.\nHere are the tools available to you in JSON format within <tool> and </tool> tags:\n' }}
    {%- for tool in tools %}
        {{- '<tool>' + tool | tojson + '</tool>\n' }}
    {%- endfor %}
    {{- '\nFor each function call you want to make, return a JSON object with function name and arguments within ' }}
    {{- '<tool_call> and </tool_call> tags, like:\n' }}
    {{- '<tool_call>{"name": function_1_name, "arguments": {argument_1_name: argument_1_value, ' }}
    {{- 'argument_2_name: argument_2_value}}</tool_call>\n' }}
    {{- '<tool_call>{"name": function_2_name, "arguments": {...}}</tool_call>\n...\n' }}
    {{- 'Note that if no argument name is specified for a tool, you can just print the argument value directly, ' }}
    {{- 'without the argument name or JSON formatting.' }}
{%- endmacro %}
{%- for message in messages %}
    {%- set role = message.role %}
    {%- if role not in ['user', 'assistant', 'system', 'tool'] %}
        {{- raise_exception('Unknown role: ' ~ role) }}
    {%- endif %}
    {%- if loop.first and tools and role != 'system' %}
        {{- begin('system') + available(tools) + end }}
    {%- endif %}
    {{- begin(role) if role != 'tool' or loop.first or loop.previtem.role != 'tool' }}
    {%- if role == 'assistant' %}
        {%- set thought = '</think>' in message.content if message.content else false %}
        {%- if message.content %}
            {%- if message.reasoning_content %}
                {%- set thoughts = message.reasoning_content %}
            {%- elif thought %}
                {%- set thoughts = message.content.split('</think>')[0].strip() %}
                {%- set thoughts = thoughts[7:].strip() if thoughts.startswith('<think>') else thoughts %}
            {%- endif %}
            {%- if loop.last and skip_think is defined and not skip_think and thoughts is defined %}
                {{- '<think>\n' ~ thoughts ~ '\n</think>\n\n' }}
            {%- else %}
                {{- unthinking }}
            {%- endif %}
            {{- message.content.split('</think>')[-1].strip() if thought else message.content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {{- '\n' if message.content else unthinking }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function if call.function is defined else call %}
            {%- set arguments = function.arguments if function.arguments is defined else function.parameters %}
            {%- if arguments is not defined %}
                {{- raise_exception('a tool call without arguments: ' ~ function) }}
            {%- endif %}
            {{- '<tool_call>{"name": "' ~ function.name ~ '", "arguments": ' ~ arguments | tojson ~ '}</tool_call>' }}
            {{- '\n' if not loop.last }}
        {%- endfor %}
        {{- end }}
    {%- elif role == 'tool' %}
        {%- if message.content is defined %}
            {{- '<tool_result>{"result": ' ~ message.content | tojson ~ '}</tool_result>' }}
        {%- endif %}
        {{- end if loop.last or loop.nextitem.role != 'tool' else '\n' }}
    {%- else %}
        {{- message.content }}
        {{- '\n\n' + available(tools) if loop.first and tools and role == 'system' }}
        {{- end }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- begin('assistant') + ('<think>\n' if enable_thinking is defined and enable_thinking is true else unthinking) }}
{%- endif %}
)jinja";

// <|bom|> and <|eom|> around messages; tools, documents and output modes (knobs) in system messages.
inline constexpr std::string_view jamba_template = R"jinja({%- set open = bom_str or '<|bom|>' %}
{%- set close = eom_str or '<|eom|>' %}
{%- set told = namespace(any=false) %}
{%- macro has(thing, name) %}
    {{- 1 if name in thing and thing[name] is not none }}
{%- endmacro %}
{%- macro begin(role) %}
    {{- (close if told.any else '') + open + '<|' + role + '|> ' }}
    {%- set told.any = true %}
{%- endmacro %}
{%- macro listed(tools) %}
    {{- '<tool_definitions>\n# Tools\n\n## Functions' }}
    {%- for tool in tools %}
        {%- if has(tool, 'type') and tool.type != 'function' %}
            {{- raise_exception('a tool is a function, and nothing else yet: ' ~ tool.type) }}
        {%- endif %}
        {{- '\n\n' + (tool.function if has(tool, 'type') else tool) | tojson(indent=2) }}
    {%- endfor %}
    {{- '\n</tool_definitions>' }}
{%- endmacro %}
{%- macro quoted(documents) %}
    {{- '<documents>\n# Documents\n\nYou can use the following documents for reference:' }}
    {%- for document in documents %}
        {{- '\n\n## Document ID: ' ~ loop.index0 }}
        {{- '\nTitle: ' + document.title if has(document, 'title') }}
        {%- for key, value in document.items() if key not in ['title', 'text'] %}
            {{- '\n' + key | title + ': ' + value | string }}
        {%- endfor %}
        {{- '\nText: ' + document.text }}
    {%- endfor %}
    {{- '\n</documents>' }}
{%- endmacro %}
{%- macro modes(knobs) %}
    {{- '<active_output_modes>\n# Active Modes\n\nThe following modes configure the format or style of your responses. ' }}
    {{- 'You should adhere to all currently active modes simultaneously.' }}
    {%- if knobs.citation_mode == 'fast' %}
        {{- '\n\n## Citation Mode\n\nProvide a list of references only for the documents you base your response on. ' }}
        {{- 'Format your response with the original answer followed by a citation section. Use this template: ' }}
        {{- '`{answer}<citations>DOCUMENT_IDS</citations>`, where DOCUMENT_IDS are the relevant document numbers ' }}
        {{- '(e.g. [2, 5, 9]), or [] if the answer cannot be supported by the provided documents.' }}
    {%- endif %}
    {%- if knobs.response_format == 'json_object' %}
        {{- '\n\n## JSON Mode\n\nProvide your response in JSON format. Adhere strictly to any schema given by the user. ' }}
        {{- 'If an appropriate JSON format exists, use it without modification.' }}
    {%- endif %}
    {{- '\n</active_output_modes>' }}
{%- endmacro %}
{%- set has_system = messages and messages[0].role == 'system' %}
{%- set turns = messages[1:] if has_system else messages %}
{%- set system = messages[0].content if has_system else '' %}
{{- '<|startoftext|>' }}
{%- if tools or system is defined and system is not none %}
    {{- begin('system') ~ (system if system is defined and system is not none else '') }}
    {{- ('\n\n' if system else '') + listed(tools) if tools }}
{%- endif %}
{%- set last = namespace(user=0) %}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- set last.user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in turns %}
    {%- set moded = knobs is defined and knobs is not none and knobs.is_set %}
    {%- if loop.index0 == last.user and (documents or moded) %}
        {{- begin('system') }}
        {{- quoted(documents) if documents }}
        {{- '\n\n' if documents and moded }}
        {{- modes(knobs) if moded }}
    {%- endif %}
    {%- set content = message.content or '' %}
    {{- begin(message.role) + ('(' + message.name + ')' if has(message, 'name') else '') }}
    {{- content if content is string else content | tojson }}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<tool_calls>[\n' }}
        {%- for call in message.tool_calls %}
            {%- set call = call.function if has(call, 'function') else call %}
            {{- '    {"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}' if loop.last else '},\n' }}
        {%- endfor %}
        {{- '\n]</tool_calls>' }}
    {%- endif %}
    {%- if message.role == 'assistant' and message.citations %}
        {{- '<citations>' ~ message.citations | map(attribute='document_id') | list ~ '</citations>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- begin(role_to_predict or 'assistant')[:-1] }}
    {{- ' ' + generation_preamble if generation_preamble and generation_preamble.strip() }}
{%- elif told.any %}
    {{- close }}
{%- endif %}
)jinja";

}  // namespace rlalgo::text::detail
