"""Processors that call a deployment of Serve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from skate import serve
from skate.data.llm import ServeDeploymentProcessorConfig, build_processor
from skate.serve.llm import build_llm_deployment
from skate.serve.llm.openai_api_models import CompletionRequest
from tests.llm.data.conftest import dataset
from tests.llm.serve.conftest import config as served_model


class Question(BaseModel):
    text: str
    times: int = 1


class Answer(BaseModel):
    words: list[str]


class Echo:
    async def ask(self, question: Question) -> AsyncIterator[Answer]:
        """Like the methods of language models: an asynchronous generator."""
        yield Answer(words=[question.text] * question.times)

    def length(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"length": len(fields["text"])}

    def number(self, fields: dict[str, Any]) -> int:
        return 3


@pytest.fixture(scope="module", autouse=True)
def application(session: None) -> Iterator[None]:
    deployment = serve.deployment(Echo, name="echo", ray_actor_options={"num_cpus": 0.1})
    serve.start(http_options={"port": 0})
    serve.run(deployment.bind(), name="app", route_prefix=None)
    yield
    serve.shutdown()


def test_rows_are_sent_to_methods_of_both_kinds() -> None:
    config = ServeDeploymentProcessorConfig(
        deployment_name="echo",
        app_name="app",
        dtype_mapping={"Question": Question},
        should_continue_on_error=True,
        request_timeout_s=60,
    )
    requests: list[dict[str, Any]] = [
        {"method": "ask", "dtype": "Question", "request_kwargs": {"text": "a", "times": 2}},
        {"method": "ask", "dtype": "Question", "request_kwargs": {"text": "b"}},
        {"method": "length", "request_kwargs": {"text": "four"}},
        {"method": "length", "request_kwargs": {}},
        {"method": "ask", "dtype": "Qestion", "request_kwargs": {"text": "a"}},
        {"method": "ask", "dtype": "Question", "request_kwargs": {"times": "many"}},
        {"method": "number", "request_kwargs": {}},
        {"request_kwargs": {}},
    ]
    processor = build_processor(config, preprocess=lambda row: requests[row["id"]])
    rows = processor(dataset([{"id": number} for number in range(len(requests))])).take_all()
    assert [row["words"] for row in rows[:2]] == [["a", "a"], ["b"]]
    assert rows[2]["length"] == 4
    assert [row["__inference_error__"] for row in rows[:3]] == [""] * 3
    reasons = [row["__inference_error__"] for row in rows[3:]]
    expected = ("KeyError", "Did you mean 'Question'", "times", "must return a dict", "has no `method`")
    for reason, part in zip(reasons, expected, strict=True):
        assert part in reason


def test_a_failed_call_fails_the_job_by_default() -> None:
    config = ServeDeploymentProcessorConfig(deployment_name="echo", app_name="app")
    with pytest.raises(RuntimeError, match="KeyError"):
        build_processor(config)(dataset([{"method": "length", "request_kwargs": {"t": "x"}}])).take_all()


def test_rows_are_sent_to_a_served_model() -> None:
    model = build_llm_deployment(served_model(), override_serve_options={"name": "tiny"})
    serve.run(model, name="models", route_prefix=None)
    config = ServeDeploymentProcessorConfig(
        deployment_name="tiny",
        app_name="models",
        dtype_mapping={"CompletionRequest": CompletionRequest},
        should_continue_on_error=True,
    )
    processor = build_processor(
        config,
        preprocess=lambda row: {
            "method": "completions",
            "dtype": "CompletionRequest",
            "request_kwargs": {"model": "tiny", "prompt": "Hello", "max_tokens": row["max_tokens"]},
        },
        postprocess=lambda row: {"text": row["choices"][0]["text"]},
    )
    good, bad = processor(dataset([{"max_tokens": 5}, {"max_tokens": 10**9}])).take_all()
    assert good["text"]
    assert "returned an error" in bad["__inference_error__"]
