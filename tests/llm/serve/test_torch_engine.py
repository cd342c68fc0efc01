"""The embedded engine behind OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from skate.serve.llm import LLMConfig
from tests.llm.engine.models import write_adapter, write_model
from tests.llm.serve.conftest import Run

MESSAGES = [{"role": "user", "content": "The quick brown fox"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "model")
    write_adapter(folder / "adapters" / "poet", seed=3)
    return folder


@pytest.fixture(scope="module")
def url(run_app: Run, folder: Path) -> str:
    config = LLMConfig(
        model_loading_config={"model_id": "small", "model_source": str(folder / "model")},
        engine_kwargs={"max_num_seqs": 4, "num_threads": 1},
        lora_config={"dynamic_lora_loading_path": str(folder / "adapters")},
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 1}},
    )
    return run_app(config)


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_a_stream_gives_the_text_of_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"model": "small", "messages": MESSAGES, "temperature": 0, "max_tokens": 20}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 20


def test_a_schema_is_followed(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="small",
        messages=MESSAGES,
        max_tokens=60,
        seed=1,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    )
    assert set(json.loads(answer.choices[0].message.content)) == {"ok"}


def test_samples_of_one_request_differ_and_repeat_with_their_seed(client: openai.OpenAI) -> None:
    def texts() -> list[str]:
        answer = client.completions.create(model="small", prompt="The quick", n=3, seed=7, max_tokens=12)
        return [choice.text for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 3
    assert texts() == first


def test_an_adapter_is_loaded_by_its_name(client: openai.OpenAI) -> None:
    def text(model: str) -> str:
        return (
            client.completions.create(model=model, prompt="The quick", temperature=0, max_tokens=12)
            .choices[0]
            .text
        )

    assert text("small:poet") != text("small")
    with pytest.raises(openai.NotFoundError):
        text("small:missing")


def test_embeddings_have_the_size_of_the_model(client: openai.OpenAI) -> None:
    found = client.embeddings.create(model="small", input=["The quick", "brown fox"], encoding_format="float")
    assert [len(each.embedding) for each in found.data] == [48, 48]


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"256"):
        client.completions.create(model="small", prompt="x" * 1000)
