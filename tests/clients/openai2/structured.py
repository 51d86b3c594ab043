"""instructor on the server in argv[1]: pydantic objects, by tools and by a JSON schema."""

import json
import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)


def ask(mode):
    client = instructor.from_openai(OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none",
                                           max_retries=0), mode=mode)
    # A small model calls the tool again and again where it may.
    more = {"parallel_tool_calls": False} if mode == instructor.Mode.TOOLS else {}
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    return client.chat.completions.create(
        model="braid-tiny", response_model=Person, temperature=0, max_tokens=200, max_retries=0,
        messages=[{"role": "user", "content": "Tell me about Ella, who is 30."}],
        extra_body=extra, **more)


seen = {mode.name: ask(mode).model_dump()
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)}
print(json.dumps(seen))
