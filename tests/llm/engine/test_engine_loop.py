"""The thread of an engine, and how requests get to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from skate.llm import FinishReason
from skate.llm._engine.runner import Runner
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


class PreparingRunner:
    """A runner that has something to prepare."""

    def __init__(self, runner: Runner, count: int) -> None:
        self._runner = runner
        self.left = count
        self.is_done = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def prepare(self) -> bool:
        if not self.left:
            self.is_done.set()
            return False
        self.left -= 1
        return True


async def prepare_with(engine: TorchEngine, count: int) -> PreparingRunner:
    model = engine._model
    runner = PreparingRunner(model.runner, count)

    def replace() -> None:
        model._runner = cast(Runner, runner)

    await engine._loop.call(replace)
    return runner


async def test_an_idle_engine_prepares_until_nothing_is_left(engine: TorchEngine) -> None:
    runner = await prepare_with(engine, 20)
    assert await asyncio.to_thread(runner.is_done.wait, 60)
    assert runner.left == 0
    assert [piece async for piece in engine.generate(request(engine, max_tokens=3))][-1].finish_reason


async def test_a_request_does_not_wait_for_what_is_left_to_prepare(engine: TorchEngine) -> None:
    endless = 10**12
    runner = await prepare_with(engine, endless)
    pieces = [piece async for piece in engine.generate(request(engine, max_tokens=3))]
    assert pieces[-1].finish_reason is FinishReason.LENGTH
    assert not runner.is_done.is_set()


async def test_a_paused_engine_prepares_nothing(engine: TorchEngine) -> None:
    await engine.pause()
    runner = await prepare_with(engine, 5)
    await engine._loop.call(lambda: None)
    assert runner.left == 5
    await engine.resume()
    assert await asyncio.to_thread(runner.is_done.wait, 60)
