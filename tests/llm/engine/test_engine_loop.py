"""The thread of an engine, and how requests get to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from skate.llm import FinishReason
from skate.llm._engine.torch_engine import TorchEngine
from tests.llm.engine.engine_contract import request
from tests.llm.engine.models import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine.load(folder, {"max_num_seqs": 8, "max_num_batched_tokens": 256, "num_threads": 1})
    yield engine
    await engine.close()


async def test_a_request_that_is_left_in_its_first_iteration_is_forgotten(engine: TorchEngine) -> None:
    async with aclosing(engine.generate(request(engine, max_tokens=200))) as pieces:
        first = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)  # it is submitted
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    assert await engine._loop.call(lambda: engine._loop.request_count) == 0


async def test_an_abort_finds_a_request_that_was_submitted_just_before(engine: TorchEngine) -> None:
    await engine.pause()
    given = request(engine, max_tokens=200)
    async with aclosing(engine.generate(given)) as pieces:
        first = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        await engine.abort(given.request_id)
        assert (await first).finish_reason is FinishReason.ABORT
