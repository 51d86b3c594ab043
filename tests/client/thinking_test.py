"""How long a model may think: a budget ends the thought cleanly and changes nothing else."""

import anthropic
import openai
import pytest

STORY = "Tell me a story about a fox named Finn in the meadow."
SPELLINGS = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
             "reasoning_budget")


def think(client, model, stream=False, **extra):
    return client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": STORY}], temperature=0, max_tokens=200,
        stream=stream, extra_body={"return_token_ids": True, **extra})


@pytest.fixture(scope="module")
def unbounded(client, model):
    answer = think(client, model)
    assert answer.usage.completion_tokens_details.reasoning_tokens > 6
    return answer


def token_of(client, text):
    body = client.post("/tokenize", cast_to=object, body={"prompt": text,
                                                          "add_special_tokens": False})
    assert body["count"] == 1
    return body["tokens"][0]


@pytest.mark.parametrize("budget", [0, 1, 2, 4, 5])
def test_a_budget_ends_the_thought_and_the_rest_is_what_the_model_says_then(
        client, model, unbounded, budget):
    choice = think(client, model, thinking_budget=budget).choices[0]
    free = unbounded.choices[0].token_ids
    opens, close = token_of(client, "<think>"), token_of(client, "</think>")
    begin = free.index(opens) + 1 if opens in free[:8] else 0
    end = begin + budget
    assert choice.token_ids[:end] == free[:end] and choice.token_ids[end] == close
    assert free[end] != close
    prompt = choice.prompt_token_ids + choice.token_ids[:end + 1]
    rest = client.completions.create(
        model=model, prompt=prompt, temperature=0, max_tokens=200 - end - 1,
        extra_body={"return_token_ids": True}).choices[0]
    assert rest.token_ids == choice.token_ids[end + 1:]
    assert rest.finish_reason == choice.finish_reason
    assert free[begin:end] == [] or choice.message.reasoning_content


def test_a_budget_that_is_not_reached_changes_nothing(client, model, unbounded):
    for budget in (-1, 150, 2**40):
        assert think(client, model, thinking_budget=budget).choices[0].token_ids \
            == unbounded.choices[0].token_ids


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_means_the_same(client, model, name):
    wanted = think(client, model, thinking_budget=5).choices[0]
    assert think(client, model, **{name: 5}).choices[0].token_ids == wanted.token_ids
    chunks = think(client, model, stream=True, **{name: 5})
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert content == wanted.message.content


def test_a_grammar_begins_behind_a_bounded_thought(client, model):
    answer = think(client, model, thinking_budget=3, guided_choice=["yes", "no"]).choices[0]
    assert answer.message.content in ("yes", "no") and answer.message.reasoning_content


def test_anthropics_budget_is_the_same(client, base_url, model):
    wanted = think(client, model, thinking_budget=4).choices[0].message
    messages = anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0)
    answer = messages.messages.create(
        model=model, max_tokens=200, messages=[{"role": "user", "content": STORY}],
        extra_body={"temperature": 0,
                    "thinking": {"type": "enabled", "budget_tokens": 4}})
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[0].thinking == wanted.reasoning_content
    assert answer.content[1].text == wanted.content


def test_thinking_is_turned_off_in_every_spelling(client, model):
    for extra in ({"enable_thinking": False}, {"reasoning_effort": "none"},
                  {"thinking": {"type": "disabled"}},
                  {"chat_template_kwargs": {"enable_thinking": False}}):
        message = think(client, model, **extra).choices[0].message
        assert not getattr(message, "reasoning_content", None), extra


def test_reasoning_can_be_left_out_of_the_answer(client, model, unbounded):
    message = think(client, model, include_reasoning=False).choices[0].message
    assert not getattr(message, "reasoning_content", None)
    assert message.content == unbounded.choices[0].message.content


def test_reasoning_can_stay_in_the_content(client, model, unbounded):
    message = think(client, model, separate_reasoning=False).choices[0].message
    apart = unbounded.choices[0].message
    assert not getattr(message, "reasoning_content", None)
    assert apart.reasoning_content.strip() in message.content
    assert message.content.endswith(apart.content)


def test_wrong_budgets_are_refused(client, model):
    for budget in (-2, 1.5, "many"):
        with pytest.raises(openai.BadRequestError, match="thinking_budget"):
            think(client, model, thinking_budget=budget)
