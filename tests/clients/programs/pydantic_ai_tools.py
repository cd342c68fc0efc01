"""Run an agent of Pydantic AI with a tool and a typed answer, which is a tool call, too.

    python pydantic_ai_tools.py URL MODEL

Prints a JSON object: the version, the calls of the tool, and the answer.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

calls: list[dict[str, object]] = []


class Offer(BaseModel):
    """The price that the shop asks for."""

    item: Literal["apple", "pear"]
    euros: Literal[2, 4, 6]


def price(item: Literal["apple", "pear"], count: Literal[1, 2, 3]) -> str:
    """Return the price of some fruit."""
    calls.append({"item": item, "count": count})
    return f"{2 * count} euros"


def main() -> None:
    url, name = sys.argv[1:]
    model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    settings = {"temperature": 0.0, "max_tokens": 40, "parallel_tool_calls": False}
    agent = Agent(model, output_type=Offer, tools=[price], system_prompt="You sell fruit.")
    result = agent.run_sync(
        "How much are two apples?", model_settings=settings, usage_limits=UsageLimits(request_limit=8)
    )
    plain = Agent(model, system_prompt="Answer in one word.").run_sync(
        "What is the capital of France?", model_settings=settings
    )
    print(
        json.dumps(
            {
                "version": importlib.metadata.version("pydantic-ai-slim"),
                "calls": calls,
                "offer": result.output.model_dump(),
                "requests": result.usage().requests if callable(result.usage) else result.usage.requests,
                "answer": plain.output,
            }
        )
    )


main()
