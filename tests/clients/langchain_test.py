"""LangChain's adapter for OpenAI: whole, streamed, structured, with tools."""

import json
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

STORY = "Tell me a story about a fox named Finn in the meadow."


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)


# A tool and a question that braid-tiny was trained for; the schema bounds what it may say.
QUESTION = "What is 706 + 778? Use the calculator."


@tool
def calculate(expression: Annotated[str, Field(max_length=20)]) -> dict:
    """Evaluate an expression."""
    return {"result": 1484}


@pytest.fixture(scope="module")
def chat(base_url):
    def make(**more):
        extra = {"chat_template_kwargs": {"enable_thinking": False}}
        return ChatOpenAI(base_url=f"{base_url}/v1", api_key="none", model="braid-tiny",
                          temperature=0, max_tokens=120, max_retries=0, extra_body=extra, **more)

    return make


def test_whole_and_streamed_are_the_same(chat):
    whole = chat().invoke(STORY)
    assert "Finn" in whole.content and whole.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in chat().stream(STORY)) == whole.content


def test_structured_output_is_an_object(chat):
    model = chat().with_structured_output(Person, method="json_schema")
    person = model.invoke("Tell me about Ella, who is 30.")
    assert isinstance(person, Person)


def test_a_loop_of_tools(chat):
    messages = [HumanMessage(QUESTION)]
    asked = chat().bind_tools([calculate], tool_choice="required",
                              parallel_tool_calls=False).invoke(messages)
    (call,) = asked.tool_calls
    assert isinstance(asked, AIMessage) and call["args"] == {"expression": "706 + 778"}
    messages += [asked, ToolMessage(json.dumps(calculate.invoke(call["args"])),
                                    tool_call_id=call["id"])]
    concluded = chat().bind_tools([calculate], tool_choice="none").invoke(messages)
    assert "1484" in concluded.content


def test_batches_run_side_by_side(chat):
    answers = chat().batch([STORY] * 6)
    assert len({answer.content for answer in answers}) == 1
