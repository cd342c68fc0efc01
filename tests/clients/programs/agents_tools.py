"""Run agents of the OpenAI Agents SDK with tools, over chat completions and over responses.

    python agents_tools.py URL MODEL

Prints a JSON object: the version, and for each of the two APIs the calls of the tool and the last answer.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

calls: list[dict[str, object]] = []


@function_tool
def price(item: Literal["apple", "pear"], count: Literal[1, 2, 3]) -> str:
    """Return the price of some fruit."""
    calls.append({"item": item, "count": count})
    return f"{2 * count} euros"


def main() -> None:
    url, name = sys.argv[1:]
    set_tracing_disabled(True)
    report: dict[str, object] = {"version": importlib.metadata.version("openai-agents")}
    for kind, model in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
        calls.clear()
        agent = Agent(
            name="shop",
            instructions="You sell fruit. Ask the tool for prices. Answer in one short sentence.",
            tools=[price],
            model=model(
                model=name,
                openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=500),
            ),
            # The SDK drops the requirement after the first call, so that the model can answer.
            model_settings=ModelSettings(
                tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=200
            ),
        )
        result = Runner.run_sync(agent, "How much are two apples?", max_turns=6)
        report[kind] = {
            "calls": list(calls),
            "items": [item.type for item in result.new_items],
            "answer": result.final_output,
        }
    print(json.dumps(report))


main()
