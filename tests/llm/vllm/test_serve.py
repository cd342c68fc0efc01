"""vLLM behind OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from skate.serve.llm import LLMConfig
from tests.llm.engine.models import write_adapter, write_model
from tests.llm.serve.conftest import Run
from tests.llm.vllm.conftest import MODEL, SETTINGS

pytestmark = pytest.mark.vllm

MESSAGES = [{"role": "user", "content": "The quick brown fox"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "model", max_position_embeddings=1024, **MODEL)
    write_adapter(folder / "adapters" / "poet", seed=3, hidden=MODEL["hidden_size"])
    return folder


@pytest.fixture(scope="module")
def client(run_app: Run, folder: Path) -> Iterator[openai.OpenAI]:
    config = LLMConfig(
        model_loading_config={"model_id": "small", "model_source": str(folder / "model")},
        llm_engine="vLLM",
        engine_kwargs=SETTINGS,
        lora_config={"dynamic_lora_loading_path": str(folder / "adapters")},
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 1}},
    )
    url = run_app(config)
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_a_stream_gives_the_text_of_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"model": "small", "messages": MESSAGES, "temperature": 0, "max_tokens": 20}
    whole = client.chat.completions.create(**options)
    chunks = list(
        client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 20
    assert whole.timing["prefill"] + whole.timing["decode"] > 0


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


def test_a_tool_call_is_constrained(client: openai.OpenAI) -> None:
    parameters = {
        "type": "object",
        "properties": {"sunny": {"type": "boolean"}},
        "required": ["sunny"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="small",
        messages=MESSAGES,
        max_tokens=100,
        seed=1,
        tools=[{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
        tool_choice="required",
    )
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert set(json.loads(call.function.arguments)) == {"sunny"}


def test_samples_of_one_request_differ_and_repeat_with_their_seed(client: openai.OpenAI) -> None:
    def texts() -> list[str]:
        answer = client.completions.create(
            model="small", prompt="The quick", n=3, seed=7, max_tokens=12, logprobs=2
        )
        return [choice.text for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 3
    assert texts() == first


def test_an_adapter_is_loaded_by_its_name(client: openai.OpenAI) -> None:
    def text(model: str) -> str:
        made = client.completions.create(model=model, prompt="The quick", temperature=0, max_tokens=12)
        return made.choices[0].text

    assert text("small:poet") != text("small")
    with pytest.raises(openai.NotFoundError):
        text("small:missing")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "x" * 5000}, "1024"),
        ({"prompt": "x", "extra_body": {"structured_outputs": {"regex": "(unclosed"}}}, "(?i)grammar"),
    ],
)
def test_a_request_that_can_never_run_is_a_400(
    client: openai.OpenAI, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.completions.create(model="small", **fields)


def test_embeddings_say_how_to_get_them(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="runner='pooling'"):
        client.embeddings.create(model="small", input="The quick")
