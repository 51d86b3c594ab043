"""Programs that let a model act: pydantic-ai, openai-agents. Tools are those that braid-tiny knows,
and what it may say is bounded by schemas, so that no test depends on what it happens to say."""

import asyncio
import functools

import openai
import pytest
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner,
                    function_tool, set_tracing_disabled)
from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel as PydanticResponses
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "What is 706 + 778? Use the calculator."
STORY = "Tell me a story about a fox named Finn in the meadow."
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
SETTINGS = {"temperature": 0, "max_tokens": 200, "extra_body": NO_THINKING}


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)


@pytest.fixture
def client(base_url):
    return openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0)


@pytest.fixture(params=["chat", "responses"])
def pydantic_model(request, client):
    kind = OpenAIChatModel if request.param == "chat" else PydanticResponses
    return kind("braid-tiny", provider=OpenAIProvider(openai_client=client))


def in_one_loop(test):
    """A client's connections belong to one event loop."""

    @functools.wraps(test)
    def run(*arguments, **named):
        return asyncio.run(test(*arguments, **named))

    return run


@in_one_loop
async def test_pydantic_ai_runs_a_tool_and_goes_on(pydantic_model):
    called = []
    agent = PydanticAgent(pydantic_model, model_settings=SETTINGS)

    @agent.tool_plain
    def calculate(expression: str) -> dict:
        """Evaluate an expression."""
        called.append(expression)
        return {"result": 1484}

    first = await agent.run(QUESTION)
    assert "1484" in first.output and called == ["706 + 778"]
    second = await agent.run(QUESTION, message_history=first.all_messages())
    assert second.output and len(second.all_messages()) > len(first.all_messages())


@in_one_loop
async def test_pydantic_ai_joins_several_system_prompts(pydantic_model):
    agent = PydanticAgent(pydantic_model, system_prompt=("You are brief.", "You are kind."),
                          instructions="Be a helpful assistant.", model_settings=SETTINGS)
    assert (await agent.run(STORY)).output


@pytest.mark.parametrize("way", [NativeOutput, ToolOutput])
@in_one_loop
async def test_pydantic_ai_gets_objects(pydantic_model, way):
    settings = {**SETTINGS, "parallel_tool_calls": False} if way is ToolOutput else SETTINGS
    agent = PydanticAgent(pydantic_model, output_type=way(Person), model_settings=settings,
                          retries=0)
    person = (await agent.run("Tell me about Ella, who is 30.")).output
    assert isinstance(person, Person)


@in_one_loop
async def test_pydantic_ai_streams_what_it_says_whole(pydantic_model):
    agent = PydanticAgent(pydantic_model, model_settings=SETTINGS)
    async with agent.run_stream(STORY) as result:
        pieces = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 5 and "".join(pieces) == (await agent.run(STORY)).output


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
@in_one_loop
async def test_openai_agents_run_tools_and_go_on(client, kind):
    set_tracing_disabled(True)
    called = []

    @function_tool
    def calculate(expression: str) -> str:
        """Evaluate an expression."""
        called.append(expression)
        return '{"result": 1484}'

    settings = ModelSettings(temperature=0, max_tokens=200, extra_body=NO_THINKING)
    agent = Agent(name="clerk", tools=[calculate], model_settings=settings,
                  model=kind(model="braid-tiny", openai_client=client))
    first = await Runner.run(agent, QUESTION)
    assert "1484" in first.final_output and called == ["706 + 778"]
    again = [*first.to_input_list(), {"role": "user", "content": QUESTION}]
    assert (await Runner.run(agent, again)).final_output
    if kind is OpenAIResponsesModel:
        chained = await Runner.run(agent, QUESTION, previous_response_id=first.last_response_id)
        assert chained.final_output
        linked = await Runner.run(agent, QUESTION, auto_previous_response_id=True)
        assert linked.final_output == first.final_output


@in_one_loop
async def test_openai_agents_get_objects(client):
    set_tracing_disabled(True)
    settings = ModelSettings(temperature=0, max_tokens=200, extra_body=NO_THINKING)
    agent = Agent(name="clerk", output_type=Person, model_settings=settings,
                  model=OpenAIResponsesModel(model="braid-tiny", openai_client=client))
    found = await Runner.run(agent, "Tell me about Ella, who is 30.")
    assert isinstance(found.final_output, Person)
