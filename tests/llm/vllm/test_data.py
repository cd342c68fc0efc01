"""vLLM over datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate.data
from skate.data.llm import build_processor, vLLMEngineProcessorConfig
from skate.llm import load_engine
from tests.conftest import LeakWatch
from tests.llm.engine.engine_contract import pieces_of, tokens_in
from tests.llm.engine.models import write_model
from tests.llm.vllm.conftest import MODEL, SETTINGS

pytestmark = pytest.mark.vllm

PROMPTS = [f"The quick {word}" for word in ("brown", "red", "blue", "green", "lazy", "old", "new")]


@pytest.fixture
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield


@pytest.mark.usefixtures("session")
def test_rows_get_the_tokens_of_the_torch_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", **MODEL)
    processor = build_processor(
        vLLMEngineProcessorConfig(
            model_source=folder,
            llm_engine="vLLM",
            engine_kwargs=SETTINGS,
            batch_size=4,
            should_continue_on_error=True,
        ),
        preprocess=lambda row: {
            "prompt": row["text"],
            "sampling_params": {"temperature": row["temperature"], "max_tokens": 8, "ignore_eos": True},
        },
    )
    rows = [{"text": text, "temperature": 0.0} for text in PROMPTS]
    made = processor(skate.data.from_items([*rows, {"text": "hot", "temperature": 50.0}])).take_all()

    async def direct() -> list[list[int]]:
        engine = load_engine(folder, engine="torch", num_threads=1)
        try:
            return [tokens_in(await pieces_of(engine, text, max_tokens=8)) for text in PROMPTS]
        finally:
            await engine.close()

    *good, bad = made
    assert [list(row["generated_tokens"]) for row in good] == asyncio.run(direct())
    assert {row["__inference_error__"] for row in good} == {""}
    assert "temperature must be in [0, 2]" in bad["__inference_error__"]
