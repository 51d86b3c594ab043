"""Writes text_golden.jsonl: what transformers makes of texts, ids and conversations.

Run by hand after a change here: python tests/golden/export_text.py (needs transformers). The stored
output is what src/text/golden_test.cc compares with; the tests themselves need no Python.
"""

import json
import pathlib
import random

from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "models" / "braid-tiny"

TEXTS = [
    "", " ", "  ", "\n", "\r\n\r\n", "\t\tx", "Hello, world!", " leading and trailing ", "don't WE'LL i'm",
    "1234567890 3.14159 -7e-12", "a" * 300, "ab" * 100, " " * 257, "\n" * 65, "é e\u0301 ñ n\u0303", "ﬁ ligature Å",
    "naïve café — “quotes” … ‘x’", "Привет, мир! Как дела?", "你好,世界。今天天气很好。", "日本語のテキスト、カタカナ",
    "안녕하세요 세계", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "👋🌍👨‍👩‍👧‍👦🏳️‍🌈🇩🇪",
    "\u200b\u200d\ufeff zero width", "a\u0300\u0301\u0302\u0303b", "\U00010348\U0001d11e", "\x00\x01\x7f",
    "\u2028\u2029\u0085\u00a0nbsp", "def f(x):\n    return x + 1\n\n\nprint(f(2))\n", "{\"a\": [1, 2, {\"b\": null}]}",
    "<|im_start|>user\nHi<|im_end|>\n", "<think>\nhm\n</think>\n\nyes", "<tool_call>\n{}\n</tool_call><|endoftext|>",
    "<|im_star|> <|im_end |> <think", "mixed <think>inside</think> words<|im_end|>tail", "İstanbul ıİ ß ẞ ΣΑΣ",
    "x\u0338= \u2260 \u212b \u1e9b\u0323", "The quick brown fox jumps over the lazy dog. " * 8, "CamelCaseAndsnake_case99",
    "http://example.org/a?b=c&d=%20#frag", "½ ² ³ Ⅷ ٣ ५", "a\u00adb soft", "q\u0307\u0323 q\u0323\u0307",
]

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city, in °C & <html> 'x'.",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer",
      "default": 1}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "sum", "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "  You are brief.\n"}
HELLO = {"role": "user", "content": "Hello 'you' & <all> \"ä\" 世界"}
TWO_TURNS = [
    HELLO,
    {"role": "assistant", "content": "Hi!", "reasoning_content": "\nA greeting.\n"},
    {"role": "user", "content": "And now?"},
]
TOOL_TURNS = [
    SYSTEM,
    {"role": "user", "content": "Weather in Köln?"},
    {"role": "assistant", "content": "", "reasoning_content": "I need the tool.",
     "tool_calls": [call("get_weather", {"city": "Köln", "days": 2, "deep": {"a": [1, 2.5, None, True]}}),
                    call("sum", {})]},
    {"role": "tool", "content": "{\"t\": 21}"},
    {"role": "tool", "content": " 3 "},
    {"role": "assistant", "content": "<think>\nNow I know.\n</think>\n\nIt is 21 °C.",
     "tool_calls": [call("sum", {"x": 1e-05, "y": 1e20, "z": 0.1, "n": None, "b": False, "s": "a\nb\"c"})]},
    {"role": "tool", "content": "done"},
]
BARE = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call("sum", {"a": []})]}]

# In the style of Qwen3.5: macro, namespace, reversed scan, XML-like calls, `| items`, `| string`.
XML_STYLE = r'''{%- macro text_of(content, trimmed=true) %}
    {%- if content is string %}
        {{- content | trim if trimmed else content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if 'text' in part %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('Only text parts are read.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Content of an unknown kind.') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('No messages were given.') }}
{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n' }}
    {{- '# Tools\n\nThese functions exist:\n\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>' }}
    {{- '\n\nCall one like this:\n\n<tool_call>\n<function=NAME>\n<parameter=ARG>\nVALUE\n</parameter>\n</function>\n</tool_call>' }}
    {%- if messages[0].role == 'system' %}
        {%- set content = text_of(messages[0].content) | trim %}
        {%- if content %}
            {{- '\n\n' + content }}
        {%- endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + text_of(messages[0].content) + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set content = text_of(message.content) | trim %}
        {%- if not (content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.searching = false %}
            {%- set ns.last = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}
    {{- raise_exception('No user query found in messages.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = text_of(message.content) | trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('System message must be at the beginning.') }}
        {%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- set reasoning = reasoning | trim %}
        {%- if loop.index0 > ns.last %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {%- if loop.first %}
                    {%- if content | trim %}
                        {{- '\n\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- else %}
                        {{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- endif %}
                {%- else %}
                    {{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                {%- endif %}
                {%- if tool_call.arguments is defined %}
                    {%- for name, value in tool_call.arguments | items %}
                        {{- '<parameter=' + name + '>\n' }}
                        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                        {{- value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
'''

# In the style of Qwen3 and Qwen3-Next: Hermes JSON calls, arguments as a string or an object.
JSON_STYLE = r'''{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}'''

# What else occurs in published templates: block lines with trim and lstrip, loop controls, printing of
# Python values, tojson with options, filters, string methods, generation marks, special tokens.
LANGUAGE = r'''{# a comment #}
{{ bos_token }}{{ missing }}{{ eos_token }}
{% for key, value in values.items() %}
  {% if key == "skip" %}{% continue %}{% endif %}
  {{ key }}: {{ value }} | {{ value | string }} | {{ value | tojson }}
  {% if key == "last" %}
    {% break %}
  {% endif %}
{% endfor %}
{{ values | tojson(indent=2) }}
{{ values | tojson(ensure_ascii=true, sort_keys=true) }}
{{ values | tojson(separators=(",", ":")) }}
{{ values | length }} {{ values.keys() | list | join("/") }} {{ "text" in values }} {{ values.get("nope") }} {{ values.get("nope", 3) }}
{{ messages[0]["content"][1:4] }} {{ messages[-1].content[::-1] }} {{ messages | map(attribute="role") | list }}
{{ messages | selectattr("role", "equalto", "user") | list | length }} {{ messages | rejectattr("role", "equalto", "user") | list }}
{{ "a,b,c".split(",") }} {{ "a,b,c".split(",", 1) }} {{ " x ".strip() ~ "|" ~ "xxyxx".strip("x") }} {{ "Ab".upper() + "Ab".lower() }}
{{ "abc".replace("b", "--") }} {{ "title case".title() }} {{ "x" * 3 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ 1e20 }} {{ 3.0 }}
{{ [1, 2.5, "a'b", none, true, {"k": "v"}] }} {{ (1, 2) }} {{ {"a": {"b": [1]}} }} {{ "é\n" | tojson }} {{ [] }} {{ {} }}
{{ "yes" if values.flag else "no" }} {{ values.nested.list | first }} {{ values.nested.list | last }} {{ values.number | int + 1 }}
{% set ns = namespace(n=0, seen=[]) %}
{% for i in range(5) if i is odd %}{% set ns.n = ns.n + i %}{% set ns.seen = ns.seen + [i] %}{{ loop.index }}/{{ loop.length }}{{ "," if not loop.last }}{% endfor %} {{ ns.n }} {{ ns.seen }}
{% macro twice(x, sep="-") -%} {{ x }}{{ sep }}{{ x }} {%- endmacro %}
{{ twice("m") }} {{ twice("m", sep="+") }} {% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}c{% endcall %}
{% set block %}captured {{ 1 + 1 }}{% endset %}{{ block | upper }}
{%- generation -%} marked {%- endgeneration %}
{% filter upper %}filtered{% endfilter %}
{{ values is mapping }} {{ values.nested.list is sequence }} {{ "s" is sequence }} {{ "s" is iterable }} {{ 3 is number }} {{ none is none }} {{ true is boolean }} {{ missing is defined }} {{ 3 is integer }} {{ 3.5 is float }}
{{ values.text | trim }}|{{ values.text | length }}|{{ values.text | replace("é", "e") }}|{{ values.text | default("d") }}|{{ missing | default("d") }}|{{ "" | default("d", true) }}
{{ values.nested.list | sort | join(", ") }} {{ values.nested.list | unique | list }} {{ values.nested.list | reverse | list }} {{ values.nested.list | sum }} {{ values | dictsort | first }}
{% if strftime_now is defined %}{{ strftime_now("%Y") | length }}{% endif %}
{% raw %}{{ raw }}{% endraw %}
{%+ if true %}  kept{% endif %}
   end'''

VALUES = {
    "text": "  é < > & ' \" \\ / \u2028 \x7f \t 🙂 ", "skip": 1, "number": 3, "big": 9007199254740993, "negative": -5,
    "small": 1e-05, "smaller": 1.5e-07, "edge": 0.0001, "large": 1e16, "below": 123456789012345.6, "third": 1 / 3,
    "whole": 2.0, "zero": 0.0, "flag": True, "off": False, "nothing": None, "empty": "", "quotes": "it's \"x\"",
    "nested": {"list": [3, 1, 2, 3], "object": {}, "strings": ["a'b", "c\nd"]}, "last": [], "after": "unseen",
}

RAISES = "{{ raise_exception('Roles must alternate: ' + messages[0].role) }}"


def render_cases():
    shipped = (MODEL / "chat_template.jinja").read_text()
    templates = {"braid-tiny": shipped, "xml": XML_STYLE, "json": JSON_STYLE, "language": LANGUAGE, "raises": RAISES}
    conversations = [[HELLO], [SYSTEM, HELLO], TWO_TURNS, [SYSTEM] + TWO_TURNS, TOOL_TURNS, BARE, BARE + [HELLO],
                     [SYSTEM], [HELLO, SYSTEM], [{"role": "user", "content": ""}]]
    cases = []
    for name in ("braid-tiny", "xml", "json"):
        for messages in conversations:
            for tools in (None, TOOLS):
                for extra in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
                    for prompt in ((True,) if extra else (True, False)):
                        cases.append((name, {"messages": messages, "tools": tools,
                                             "add_generation_prompt": prompt, **extra}))
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Grüße"}]
    cases.append(("language", {"messages": messages, "values": VALUES}))
    cases.append(("raises", {"messages": messages}))
    return templates, cases


def render(tokenizer, source, context):
    context = json.loads(json.dumps(context))
    messages = context.pop("messages")
    tools = context.pop("tools", None)
    prompt = context.pop("add_generation_prompt", False)
    try:
        return {"text": tokenizer.apply_chat_template(messages, tools=tools, chat_template=source, tokenize=False,
                                                      add_generation_prompt=prompt, **context)}
    except Exception as error:  # jinja2's errors have no common public base
        return {"error": str(error)}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rng = random.Random(4)
    lines = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True)
        lines.append({"kind": "encode", "text": text, "ids": ids})
        assert ids == tokenizer.encode(text, add_special_tokens=False), "the model adds special tokens"
    for size in [1] * 20 + [2] * 20 + [3, 5, 8, 13, 21, 34] * 4:
        ids = [rng.randrange(len(tokenizer)) for _ in range(size)]
        lines.append({"kind": "decode", "ids": ids, "text": tokenizer.decode(ids),
                      "visible": tokenizer.decode(ids, skip_special_tokens=True)})
    for _ in range(20):  # single bytes in any order: broken UTF-8
        ids = [rng.randrange(256) for _ in range(40)]
        lines.append({"kind": "decode", "ids": ids, "text": tokenizer.decode(ids),
                      "visible": tokenizer.decode(ids, skip_special_tokens=True)})
    templates, cases = render_cases()
    for name, source in templates.items():
        if name != "braid-tiny":
            lines.append({"kind": "template", "name": name, "source": source})
    for name, context in cases:
        lines.append({"kind": "render", "template": name, "context": context,
                      **render(tokenizer, templates[name], context)})
    out = HERE / "text_golden.jsonl"
    out.write_text("".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines))
    print(f"{out.name}: {len(lines)} lines, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
