"""Libraries for agents call tools of a small model: SmolLM2-135M, whose calls a grammar constrains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skate.serve.llm import LLMConfig, build_openai_app
from tests.clients.conftest import Run
from tests.llm.engine import gguf_files

CALLS = [{"item": item, "count": count} for item in ("apple", "pear") for count in (1, 2, 3)]

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def url(serving: Callable[[Any], str]) -> str:
    config = LLMConfig(
        model_loading_config={"model_id": "smol", "model_source": str(gguf_files.smollm2())},
        # Short steps on one thread, which a busy machine also finishes in time.
        engine_kwargs={
            "max_model_len": 2048,
            "max_num_seqs": 2,
            "max_num_batched_tokens": 64,
            "num_threads": 1,
        },
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 1}},
    )
    return serving(build_openai_app({"llm_configs": [config]}))


def test_an_agent_of_openais_sdk_calls_a_tool_and_answers(url: str, run_client: Run) -> None:
    report = run_client("agents", "agents_tools.py", url, "smol")
    for kind in ("chat", "responses"):
        found = report[kind]
        assert found["calls"]
        assert all(call in CALLS for call in found["calls"])
        assert found["items"][:2] == ["tool_call_item", "tool_call_output_item"]
        assert found["items"][-1] == "message_output_item"
        assert found["answer"]


def test_an_agent_of_pydantic_ai_answers_with_an_object(url: str, run_client: Run) -> None:
    report = run_client("agents", "pydantic_ai_tools.py", url, "smol")
    assert all(call in CALLS for call in report["calls"])
    assert report["offer"]["item"] in ("apple", "pear")
    assert report["offer"]["euros"] in (2, 4, 6)
    assert "Paris" in report["answer"]
