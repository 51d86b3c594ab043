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
    "",
    " ",
    "  ",
    "\n",
    "\r\n\r\n",
    "\t\tx",
    "Hello, world!",
    " leading and trailing ",
    "don't WE'LL i'm",
    "1234567890 3.14159 -7e-12",
    "a" * 300,
    "ab" * 100,
    " " * 257,
    "\n" * 65,
    "é e\u0301 ñ n\u0303",
    "ﬁ ligature Å",
    "naïve café — “quotes” … ‘x’",
    "Привет, мир! Как дела?",
    "你好,世界。今天天气很好。",
    "日本語のテキスト、カタカナ",
    "안녕하세요 세계",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "👋🌍👨‍👩‍👧‍👦🏳️‍🌈🇩🇪",
    "\u200b\u200d\ufeff zero width",
    "a\u0300\u0301\u0302\u0303b",
    "\U00010348\U0001d11e",
    "\x00\x01\x7f",
    "\u2028\u2029\u0085\u00a0nbsp",
    "def f(x):\n    return x + 1\n\n\nprint(f(2))\n",
    '{"a": [1, 2, {"b": null}]}',
    "<|im_start|>user\nHi<|im_end|>\n",
    "<think>\nhm\n</think>\n\nyes",
    "<tool_call>\n{}\n</tool_call><|endoftext|>",
    "<|im_star|> <|im_end |> <think",
    "mixed <think>inside</think> words<|im_end|>tail",
    "İstanbul ıİ ß ẞ ΣΑΣ",
    "x\u0338= \u2260 \u212b \u1e9b\u0323",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "CamelCaseAndsnake_case99",
    "http://example.org/a?b=c&d=%20#frag",
    "½ ² ³ Ⅷ ٣ ५",
    "a\u00adb soft",
    "q\u0307\u0323 q\u0323\u0307",
]

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

RAISES = "{{ raise_exception('Roles must alternate: ' + messages[0].role) }}"


def render_cases():
    # xml: in the style of Qwen3.5 (macro, reversed scan, XML-like calls); json: in that of Qwen3
    # and Qwen3-Next (Hermes calls); language: what else occurs in published templates.
    templates = {
        name: (HERE / "templates" / f"{name}.jinja").read_text()
        for name in ("xml", "json", "language")
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
    for name in ("braid-tiny", "xml", "json"):
        for messages in conversations:
            for tools in (None, TOOLS):
                for extra in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
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
        return {
            "text": tokenizer.apply_chat_template(
                messages,
                tools=tools,
                chat_template=source,
                tokenize=False,
                add_generation_prompt=prompt,
                **context,
            )
        }
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
