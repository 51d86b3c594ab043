"""Writes text_golden.jsonl: what transformers makes of texts, ids and conversations.

Run by hand after a change here: python tests/golden/export_text.py (needs transformers). The stored
output is what src/text/golden_test.cc compares with; the tests themselves need no Python.
"""

import json
import pathlib
import random

from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from export_texts import TEXTS

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "models" / "braid-tiny"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city, in °C & <html> 'x'.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer", "default": 1},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "sum", "parameters": {"type": "object", "properties": {}}},
    },
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
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I need the tool.",
        "tool_calls": [
            call("get_weather", {"city": "Köln", "days": 2, "deep": {"a": [1, 2.5, None, True]}}),
            call("sum", {}),
        ],
    },
    {"role": "tool", "content": '{"t": 21}'},
    {"role": "tool", "content": " 3 "},
    {
        "role": "assistant",
        "content": "<think>\nNow I know.\n</think>\n\nIt is 21 °C.",
        "tool_calls": [
            call("sum", {"x": 1e-05, "y": 1e20, "z": 0.1, "n": None, "b": False, "s": 'a\nb"c'})
        ],
    },
    {"role": "tool", "content": "done"},
]
BARE = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": None, "tool_calls": [call("sum", {"a": []})]},
]

VALUES = {
    "text": "  é < > & ' \" \\ / \u2028 \x7f \t 🙂 ",
    "skip": 1,
    "number": 3,
    "big": 9007199254740993,
    "negative": -5,
    "small": 1e-05,
    "smaller": 1.5e-07,
    "edge": 0.0001,
    "large": 1e16,
    "below": 123456789012345.6,
    "third": 1 / 3,
    "whole": 2.0,
    "zero": 0.0,
    "flag": True,
    "off": False,
    "nothing": None,
    "empty": "",
    "quotes": 'it\'s "x"',
    "nested": {"list": [3, 1, 2, 3], "object": {}, "strings": ["a'b", "c\nd"]},
    "last": [],
    "after": "unseen",
}

STYLES = ("xml", "json", "turns", "roles_json", "roles_xml", "bars_fence", "bars_plain")
SWITCHES = {
    None: ({}, {"enable_thinking": False}, {"enable_thinking": True}),
    "turns": ({},),
    "roles_json": ({},),
    "bars_fence": ({},),
    "bars_plain": ({}, {"thinking": False}, {"thinking": True}),
}
RAISES = "{{ raise_exception('Roles must alternate: ' + messages[0].role) }}"


def render_cases():
    # In the style of what the families publish. xml: Qwen3.5 (macro, reversed scan, XML-like
    # calls); json: Qwen3 and Qwen3-Next (Hermes calls); turns: Kimi; roles_json: Ling-2; roles_xml:
    # Ling-3 and Ring; bars_fence: DeepSeek-V3 and R1; bars_plain: DeepSeek-V3.1. language: what
    # else occurs in published templates.
    templates = {
        name: (HERE / "templates" / f"{name}.jinja").read_text()
        for name in (*STYLES, "language")
    }
    templates["braid-tiny"] = (MODEL / "chat_template.jinja").read_text()
    templates["raises"] = RAISES
    conversations = [
        [HELLO],
        [SYSTEM, HELLO],
        TWO_TURNS,
        [SYSTEM] + TWO_TURNS,
        TOOL_TURNS,
        BARE,
        BARE + [HELLO],
        [SYSTEM],
        [HELLO, SYSTEM],
        [{"role": "user", "content": ""}],
    ]
    cases = []
    for name in ("braid-tiny", *STYLES):
        for messages in conversations:
            for tools in (None, TOOLS):
                for extra in SWITCHES.get(name, SWITCHES[None]):
                    for prompt in ((True,) if extra else (True, False)):
                        cases.append(
                            (
                                name,
                                {
                                    "messages": messages,
                                    "tools": tools,
                                    "add_generation_prompt": prompt,
                                    **extra,
                                },
                            )
                        )
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
        # Not by apply_chat_template, which drops keys that are None: some published templates ask
        # whether a content is none.
        rendered, _ = render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=source,
            add_generation_prompt=prompt,
            **tokenizer.special_tokens_map,
            **context,
        )
        return {"text": rendered[0]}
    except Exception as error:  # jinja2's errors have no common public base
        return {"error": str(error)}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rng = random.Random(4)
    lines = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True)
        lines.append({"kind": "encode", "text": text, "ids": ids})
        assert ids == tokenizer.encode(
            text, add_special_tokens=False
        ), "the model adds special tokens"
    for size in [1] * 20 + [2] * 20 + [3, 5, 8, 13, 21, 34] * 4:
        ids = [rng.randrange(len(tokenizer)) for _ in range(size)]
        lines.append(
            {
                "kind": "decode",
                "ids": ids,
                "text": tokenizer.decode(ids),
                "visible": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    for _ in range(20):  # single bytes in any order: broken UTF-8
        ids = [rng.randrange(256) for _ in range(40)]
        lines.append(
            {
                "kind": "decode",
                "ids": ids,
                "text": tokenizer.decode(ids),
                "visible": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    templates, cases = render_cases()
    for name, source in templates.items():
        if name != "braid-tiny":
            lines.append({"kind": "template", "name": name, "source": source})
    for name, context in cases:
        lines.append(
            {
                "kind": "render",
                "template": name,
                "context": context,
                **render(tokenizer, templates[name], context),
            }
        )
    out = HERE / "text_golden.jsonl"
    out.write_text(
        "".join(
            json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
        )
    )
    print(f"{out.name}: {len(lines)} lines, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
