"""Language models on a cluster: serving, batch inference and fine-tuning give what one process gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import skate
import skate.data
from skate import serve
from skate.data.llm import build_processor, vLLMEngineProcessorConfig
from skate.llm import FinetuneConfig, GenerationRequest, SamplingParams, finetune, load_engine
from skate.serve.llm import LLMConfig, build_openai_app
from tests.llm.engine.models import write_model
from tests.llm.finetune.models import chats, make_model, write_rows
from tests.plugins.ray_clusters import THREE_NODES, Clusters

pytestmark = pytest.mark.timeout(300)  # workers import torch, on a busy machine too

ENGINE = {"num_threads": 1, "max_num_seqs": 4}
PROMPTS = [f"The quick {word}" for word in ("brown", "red", "blue", "green", "lazy")]


@pytest.fixture(autouse=True)
def session(clusters: Clusters) -> Iterator[None]:
    skate.init(clusters.address(*THREE_NODES), engine="ray", preflight="off")
    yield
    serve.shutdown()
    skate.shutdown()


def texts_of_one_process(model: Path) -> list[str]:
    async def run() -> list[str]:
        engine = load_engine(model, **ENGINE)

        async def text(number: int, prompt: str) -> str:
            request = GenerationRequest(
                request_id=str(number),
                prompt=engine.tokenizer.encode(prompt),
                params=SamplingParams(temperature=0, max_tokens=8),
            )
            return "".join([piece.text async for piece in engine.generate(request)])

        try:
            return list(await asyncio.gather(*(text(*each) for each in enumerate(PROMPTS))))
        finally:
            await engine.close()

    return asyncio.run(run())


def test_a_served_model_answers_with_the_texts_of_one_process(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    config = LLMConfig(
        model_loading_config={"model_id": "small", "model_source": str(model)},
        engine_kwargs=ENGINE,
        accelerator_config={"kind": "cpu"},
        deployment_config={"ray_actor_options": {"num_cpus": 1}},
    )
    serve.start(http_options={"port": 0})
    serve.run(build_openai_app({"llm_configs": [config]}))
    host, port = serve.address()
    with openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", timeout=60) as client:
        options: dict[str, Any] = {"model": "small", "temperature": 0, "max_tokens": 8}
        found = [client.completions.create(prompt=prompt, **options).choices[0].text for prompt in PROMPTS]
        streams = [client.completions.create(prompt=prompt, stream=True, **options) for prompt in PROMPTS]
        streamed = ["".join(chunk.choices[0].text for chunk in stream) for stream in streams]
    assert found == streamed == texts_of_one_process(model)


def test_a_processor_fills_rows_with_the_texts_of_one_process(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    config = vLLMEngineProcessorConfig(model_source=model, engine_kwargs=ENGINE, batch_size=2)
    processor = build_processor(
        config,
        preprocess=lambda row: {
            "prompt": row["text"],
            "sampling_params": {"temperature": 0.0, "max_tokens": 8},
        },
    )
    rows = processor(skate.data.from_items([{"text": text} for text in PROMPTS])).take_all()
    assert {row["text"]: row["generated_text"] for row in rows} == dict(
        zip(PROMPTS, texts_of_one_process(model), strict=True)
    )


def test_two_workers_have_the_losses_of_one_process(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "base_model": str(make_model(tmp_path / "base")),
        "datasets": [{"path": write_rows(tmp_path / "rows.jsonl", chats(12)), "type": "chat_template"}],
        "sequence_len": 128,
        "num_epochs": 1,
        "save_model": False,
    }
    one = finetune(FinetuneConfig(**keys, micro_batch_size=4, output_dir=tmp_path / "one"))
    two = finetune(FinetuneConfig(**keys, micro_batch_size=2, num_workers=2, output_dir=tmp_path / "two"))
    assert [row["loss"] for row in two.history] == pytest.approx(
        [row["loss"] for row in one.history], abs=1e-5
    )
