"""Every request field of the pinned official SDKs is classified: enforced, harmless or refused.

The SDKs' own types are walked, so that a new version's new field fails here until the field table
has a row for it. /openapi.json says what becomes of each.
"""

import json
import typing
import urllib.error
import urllib.request

import pytest
from anthropic.types import (beta, message_count_tokens_params, message_create_params,
                             output_config_param, thinking_config_enabled_param)
from anthropic.types.beta import beta_output_config_param
from openai.types import completion_create_params as completions
from openai.types.chat import chat_completion_stream_options_param
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from openai.types.responses import response_text_config_param
from openai.types.shared_params import reasoning

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"

# Types of the SDKs, and where their members stand: a path, and a field for members of a field.
TYPES = [
    (CHAT, None, chat.CompletionCreateParamsNonStreaming),
    (TEXT, None, completions.CompletionCreateParamsNonStreaming),
    (RESPONSES, None, responses.ResponseCreateParamsNonStreaming),
    (MESSAGES, None, message_create_params.MessageCreateParamsNonStreaming),
    (MESSAGES, None, beta.message_create_params.MessageCreateParamsNonStreaming),
    (COUNT, None, message_count_tokens_params.MessageCountTokensParams),
    (COUNT, None, beta.message_count_tokens_params.MessageCountTokensParams),
    (CHAT, "stream_options", chat_completion_stream_options_param.ChatCompletionStreamOptionsParam),
    (CHAT, "prompt_cache_options", chat.PromptCacheOptions),
    (RESPONSES, "stream_options", responses.StreamOptions),
    (RESPONSES, "prompt_cache_options", responses.PromptCacheOptions),
    (RESPONSES, "text", response_text_config_param.ResponseTextConfigParam),
    (RESPONSES, "reasoning", reasoning.Reasoning),
    (MESSAGES, "output_config", output_config_param.OutputConfigParam),
    (MESSAGES, "output_config", beta_output_config_param.BetaOutputConfigParam),
    (MESSAGES, "thinking", thinking_config_enabled_param.ThinkingConfigEnabledParam),
]
HEADERS = {"betas"}  # what the SDK sends as a header

BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "Say one."}], "max_tokens": 4},
    TEXT: {"prompt": "One two", "max_tokens": 4},
    RESPONSES: {"input": "Say one.", "max_output_tokens": 4},
    MESSAGES: {"messages": [{"role": "user", "content": "Say one."}], "max_tokens": 4},
    COUNT: {"messages": [{"role": "user", "content": "Say one."}]},
}
# Values that ask for something, where {"a": 1} would not be one of the field's.
SAMPLES = {
    "background": True, "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "fallbacks": "default", "function_call": {"name": "f"}, "functions": [{"name": "f"}],
    "image": {"context_compression": "auto"}, "include_obfuscation": True, "max_tool_calls": 3,
    "mcp_servers": [{"type": "url", "url": "http://localhost", "name": "a"}],
    "modalities": ["text", "audio"], "mode": "pro", "prewarm": True, "prompt_cache_key": "a",
    "prompt_cache_options": {"mode": "explicit", "ttl": "12h"}, "prompt_cache_retention": "24h",
    "safety_identifier": "a", "service_tier": "priority", "speed": "fast", "store": True,
    "suffix": "x", "summary": "detailed", "generate_summary": "concise", "top_logprobs": 3,
    "truncation": "auto", "user": "a", "inference_geo": "us", "previous_response_id": "resp_1",
    "conversation": "conv_1",
}


@pytest.fixture(scope="module")
def ask(base_url):
    """ask(path, body): (status, answer); an answer that is no JSON, as of a stream, is None."""

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base_url + path, data,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as refusal:
            status, text = refusal.code, refusal.read()
        return status, json.loads(text) if text.startswith(b"{") else None

    return ask


@pytest.fixture(scope="module")
def schemas(ask):
    """Path → the schema of its body."""
    paths = ask("/openapi.json")[1]["paths"]
    return {path: paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            for path in BODIES}


def classified(schemas):
    """(path, field or "field.member", effect) of everything that the SDKs can send."""
    for path, field, sdk_type in TYPES:
        properties = schemas[path]["properties"]
        if field is not None:
            properties = properties[field]["properties"]
        for name in sorted(set(typing.get_type_hints(sdk_type)) - HEADERS):
            entry = properties.get(name, {})
            yield path, f"{field}.{name}" if field else name, entry.get("x-braid-effect")


def with_sample(path, name):
    """The path's least body with a value of the field that asks for something."""
    field, _, member = name.partition(".")
    value = SAMPLES.get(member or field, {"a": 1})
    body = dict(BODIES[path], temperature=0) if path != COUNT else dict(BODIES[path])
    if field == "stream_options":
        body["stream"] = True
    body[field] = {member: value} if member else value
    return body


def answer_of(path, data):
    """What of an answer does not differ from one to the next."""
    if path == CHAT:
        return data["choices"][0]["message"]
    if path == TEXT:
        return data["choices"][0]["text"]
    if path == RESPONSES:
        return [item.get("content") for item in data["output"]]
    return data.get("content", data.get("input_tokens"))


def test_every_field_of_the_sdks_is_classified(schemas):
    rows = list(classified(schemas))
    assert len(rows) > 150
    assert [row[:2] for row in rows
            if row[2] not in ("enforced", "harmless", "refused")] == []


def test_what_is_refused_is_refused_by_name(ask, schemas):
    refused = [row[:2] for row in classified(schemas) if row[2] == "refused"]
    assert len(refused) > 20
    for path, name in refused:
        status, answer = ask(path, with_sample(path, name))
        assert status == 400, (path, name, answer)
        message = answer["error"]["message"]
        assert message.startswith(f"{name}: is not supported: "), (path, name, message)


def test_what_is_harmless_changes_nothing(ask, schemas):
    harmless = [row[:2] for row in classified(schemas) if row[2] == "harmless"]
    assert len(harmless) > 15
    plain = {path: answer_of(path, ask(path, {"temperature": 0, **body} if path != COUNT else body)
                             [1]) for path, body in BODIES.items()}
    for path, name in harmless:
        status, answer = ask(path, with_sample(path, name))
        assert status == 200, (path, name, answer)
        assert answer_of(path, answer) == plain[path], (path, name)


def test_a_field_that_nobody_knows_is_refused(ask):
    for path, body in BODIES.items():
        status, answer = ask(path, dict(body, made_up=1))
        assert status == 400 and "made_up" in answer["error"]["message"]
        assert ask(path, dict(body, made_up=None))[0] == 200, "null is absent"
