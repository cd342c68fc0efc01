"""One small model and one session for each module, because starting workers takes longer than most tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skate.data
from skate.llm import GenerationRequest, SamplingParams, load_engine
from tests.conftest import LeakWatch

ENGINE = {"num_threads": 1, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=4):
        yield


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and with an adapter for it."""
    from tests.llm.engine.models import write_adapter, write_model  # with torch, which other runs do not need

    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "model")
    write_adapter(folder / "adapters" / "poet", seed=3)
    return folder


@pytest.fixture
def direct(models: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return what the engine generates for prompts without a dataset."""

    async def run(prompts: list[str], **params: Any) -> list[dict[str, Any]]:
        engine = load_engine(models / "model", **ENGINE)
        try:
            return [await one(engine, number, text, params) for number, text in enumerate(prompts)]
        finally:
            await engine.close()

    async def one(engine: Any, number: int, text: str, params: dict[str, Any]) -> dict[str, Any]:
        # A rendered chat has the special tokens that it needs.
        prompt = engine.tokenizer.encode(text, add_special_tokens=not text.startswith("<|im_start|>"))
        request = GenerationRequest(request_id=str(number), prompt=prompt, params=SamplingParams(**params))
        pieces = [piece async for piece in engine.generate(request)]
        return {
            "generated_text": "".join(piece.text for piece in pieces),
            "generated_tokens": [token for piece in pieces for token in piece.tokens],
            "num_input_tokens": len(prompt),
            "embeddings": (await engine.embed([prompt]))[0],
        }

    return lambda prompts, **params: asyncio.run(run(prompts, **params))


def dataset(rows: list[dict[str, Any]]) -> skate.data.Dataset:
    return skate.data.from_items(rows)
