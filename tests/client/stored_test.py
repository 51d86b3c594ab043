"""Stored responses through the official `openai` client: read, continued, referred to, deleted."""

import json
import time

import openai
import pytest

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
# Long enough for the prefix cache to have something of it.
NOTES = " ".join(f"{name} keeps the {colour} {thing} in the {room}."
                 for name in ("Ella", "Tom", "Rosa", "Paul", "Mira", "Finn")
                 for colour, thing, room in (("red", "kettle", "kitchen"), ("blue", "lamp", "hall"),
                                             ("green", "drum", "cellar")))
CALCULATE = {"type": "function", "name": "calculate", "description": "Evaluate an expression.",
             "parameters": {"type": "object", "properties": {"expression": {"type": "string"}},
                            "required": ["expression"]}}


@pytest.fixture
def ask(client, model):
    def create(items, **more):
        return client.responses.create(**{"model": model, "input": items, "temperature": 0,
                                          "max_output_tokens": 60, "extra_body": NO_THINKING,
                                          **more})

    return create


def dumped(item):
    return item.model_dump(exclude_none=True)


def test_a_response_comes_back_as_it_was(client, ask):
    made = ask("Where is the lamp?", metadata={"ticket": "7", "who": "Ännä"})
    assert made.store is True and made.metadata == {"ticket": "7", "who": "Ännä"}
    assert dumped(client.responses.retrieve(made.id)) == dumped(made)
    assert client.responses.delete(made.id) is None
    for call in (client.responses.retrieve, client.responses.delete,
                 client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as failure:
            call(made.id)
        assert made.id in failure.value.message


def test_what_is_not_to_be_stored_is_not(client, ask):
    made = ask("Where is the lamp?", store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as failure:
        ask("And now?", previous_response_id=made.id)
    assert failure.value.param == "previous_response_id"
    assert failure.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError) as failure:
        ask([{"type": "item_reference", "id": made.output[0].id}])
    assert failure.value.param == "input[0].id"


def test_a_chain_says_what_the_whole_conversation_says_and_reuses_the_cache(client, ask, model):
    questions = [NOTES + " Where is the drum?", "Where is the kettle?", "Where is the lamp?"]
    items, previous = [], None
    for number, question in enumerate(questions):
        chained = ask(question, previous_response_id=previous)
        assert chained.previous_response_id == previous
        items.append({"role": "user", "content": question})
        whole = ask(items, store=False)
        assert chained.output_text == whole.output_text
        assert chained.usage.input_tokens == whole.usage.input_tokens
        items.append({"role": "assistant", "content": whole.output_text})
        if number > 0 and model != "fake":
            cached = chained.usage.input_tokens_details.cached_tokens
            assert cached >= 0.6 * before, (cached, before)
        before = chained.usage.input_tokens
        previous = chained.id


def test_a_chain_goes_on_when_its_first_response_is_deleted(client, ask):
    first = ask("Where is the lamp?")
    second = ask("And the drum?", previous_response_id=first.id)
    client.responses.delete(first.id)
    third = ask("And the kettle?", previous_response_id=second.id)
    listed = client.responses.input_items.list(third.id, order="asc").data
    assert [item.type for item in listed] == ["message"] * 5
    assert listed[1].id == first.output[0].id, "items keep their ids"
    with pytest.raises(openai.BadRequestError):
        ask("And now?", previous_response_id=first.id)


def test_items_are_listed_page_by_page(client, ask):
    words = [f"word {number}" for number in range(7)]
    made = ask([{"role": "user", "content": word} for word in words])

    def texts(**page):
        found = client.responses.input_items.list(made.id, **page)
        return [item.content[0].text for item in found.data], found

    assert texts()[0] == words[::-1]
    first, page = texts(order="asc", limit=3)
    assert first == words[:3] and page.has_more is True
    assert texts(order="asc", limit=3, after=page.last_id)[0] == words[3:6]
    assert [item.content[0].text for item in client.responses.input_items.list(
        made.id, limit=2, order="asc")] == words, "the client asks for all pages"
    for wrong in ({"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "msg_none"}):
        with pytest.raises(openai.BadRequestError) as failure:
            client.responses.input_items.list(made.id, extra_query=wrong)
        assert failure.value.param == next(iter(wrong))


def test_a_loop_of_tools_refers_to_items_by_their_ids(ask, model):
    if model == "fake":
        pytest.skip("the hash LM calls no tools")
    question = {"role": "user", "content": "What is 706 + 778? Use the calculator."}
    asked = ask([question], tools=[CALCULATE])
    (call,) = [item for item in asked.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id,
              "output": json.dumps({"result": 1484})}
    by_id = ask([question, *({"type": "item_reference", "id": item.id} for item in asked.output),
                 result], tools=[CALCULATE])
    assert "1484" in by_id.output_text
    in_full = ask([question, *map(dumped, asked.output), result], tools=[CALCULATE])
    continued = ask([result], previous_response_id=asked.id, tools=[CALCULATE])
    for other in (in_full, continued):
        assert other.output_text == by_id.output_text
        assert other.usage.input_tokens == by_id.usage.input_tokens
    untyped = ask([question, *({"id": item.id} for item in asked.output), result],
                  tools=[CALCULATE])
    assert untyped.output_text == by_id.output_text
    with pytest.raises(openai.BadRequestError) as failure:
        ask([question, {"type": "item_reference", "id": call.id},
             {"type": "item_reference", "id": call.id}])
    assert failure.value.param == "input[2].id"
    with pytest.raises(openai.BadRequestError) as failure:
        ask([{"type": "item_reference", "id": call.id}], previous_response_id=asked.id)
    assert failure.value.param == "input[0].id"


def test_references_that_name_nothing_are_refused_by_field(ask):
    for items, field in (([{"type": "item_reference"}], "input[0].id"),
                         ([{"role": "user", "content": "a"},
                           {"type": "item_reference", "id": "msg_1"}], "input[1].id"),
                         ([{"type": "item_reference", "id": 7}], "input[0].id")):
        with pytest.raises(openai.BadRequestError) as failure:
            ask(items)
        assert failure.value.param == field
    with pytest.raises(openai.BadRequestError) as failure:
        ask("a", background=True)
    assert failure.value.param == "background" and "stream" in failure.value.message


def test_a_stream_is_stored_before_its_last_event(client, ask):
    for _ in range(5):
        events = list(ask("Where is the lamp?", stream=True))
        final = events[-1].response
        assert dumped(client.responses.retrieve(final.id)) == dumped(final)
        assert ask("And the drum?", previous_response_id=final.id).usage.input_tokens > 0


def test_a_stream_that_is_left_is_stored_as_incomplete(client, ask, model):
    body = {**NO_THINKING, "ignore_eos": True}
    stream = ask("Tell me a story.", stream=True, max_output_tokens=5000, extra_body=body)
    text = ""
    for event in stream:
        if event.type == "response.created":
            made = event.response
            assert made.status == "in_progress"
            assert client.responses.retrieve(made.id).status == "in_progress"
        if event.type == "response.output_text.delta":
            text += event.delta
        if len(text) > 20:
            break
    stream.close()
    end = time.monotonic() + 20
    while (left := client.responses.retrieve(made.id)).status == "in_progress":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert left.status == "incomplete" and left.incomplete_details.reason == "client_disconnected"
    assert left.output_text.startswith(text)
    assert ask("Go on.", previous_response_id=made.id).usage.input_tokens > len(text) / 10


def test_ids_are_long_and_have_nothing_in_common(ask):
    ids = [ask("a", max_output_tokens=1).id for _ in range(8)]
    digits = [made.removeprefix("resp_") for made in ids]
    assert all(len(made) == 32 and int(made, 16) for made in digits)
    for one, other in zip(digits, digits[1:]):
        assert sum(a == b for a, b in zip(one, other)) < 16
