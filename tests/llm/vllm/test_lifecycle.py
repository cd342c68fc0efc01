"""Engines of vLLM that are closed, stuck or killed, and engines for embeddings."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path

import psutil
import pytest

from skate.llm import EngineDeadError
from skate.llm._engine.torch_engine import TorchEngine
from skate.llm._engine.vllm_engine import VLLMEngine
from tests.llm.engine.engine_contract import TEXT, request, text_of
from tests.llm.engine.models import write_model
from tests.llm.vllm.conftest import MODEL, SETTINGS, Load

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), **MODEL)


def engine_processes() -> list[psutil.Process]:
    """Return the processes of vLLM, those that run the steps first."""
    started = {process.pid for process in multiprocessing.active_children()}
    return [each for each in psutil.Process().children() if each.pid in started]


async def test_a_closed_engine_fails_its_requests_and_leaves_no_process(folder: Path) -> None:
    engine = await asyncio.to_thread(VLLMEngine.load, folder, SETTINGS)
    processes = [process for each in engine_processes() for process in (each, *each.children(recursive=True))]
    assert processes
    asked = engine.generate(request(engine, max_tokens=200))
    await anext(asked)
    await engine.close()
    with pytest.raises(EngineDeadError, match="the engine is closed"):
        async for _ in asked:
            pass
    for call in (text_of(engine), engine.check_health(), engine.pause()):
        with pytest.raises(EngineDeadError, match="the engine is closed"):
            await call
    await engine.close()
    assert psutil.wait_procs(processes, timeout=30)[1] == []


async def test_a_stuck_engine_is_reported_and_a_killed_one_fails_its_requests(folder: Path) -> None:
    engine = await asyncio.to_thread(VLLMEngine.load, folder, SETTINGS)
    (process,) = engine_processes()
    await engine.check_health()
    engine._stall_timeout = 0.5
    process.suspend()
    with pytest.raises(EngineDeadError, match=r"vLLM has not answered for 0\.5 s"):
        await engine.check_health()
    process.resume()
    engine._stall_timeout = 60.0
    await engine.check_health()
    await engine.pause()
    running = asyncio.create_task(text_of(engine))
    while not engine._running:
        await engine.check_health()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="vLLM has failed"):
        await running
    for call in (text_of(engine), engine.check_health()):
        with pytest.raises(EngineDeadError, match="vLLM has failed"):
            await call
    await engine.close()


async def test_embeddings_are_those_of_the_torch_engine(load: Load, folder: Path) -> None:
    mean = {"pooling_type": "MEAN"}
    engine = await asyncio.to_thread(
        VLLMEngine.load, folder, {**SETTINGS, "runner": "pooling", "pooler_config": mean}
    )
    torch_engine = TorchEngine.load(folder, {"num_threads": 1})
    prompts = [engine.tokenizer.encode(text) for text in (TEXT, "it's 12345 times better")]
    theirs, ours = await engine.embed(prompts), await torch_engine.embed(prompts)
    for one, other in zip(theirs, ours, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
        assert sum(value * value for value in one) == pytest.approx(1)
    with pytest.raises(ValueError, match="does not support generation"):
        await text_of(engine)
    await torch_engine.close()
    await engine.close()


def test_an_unknown_argument_is_refused_with_the_nearest(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no engine argument 'max_model_length'\. Did you mean 'max_model_len'"
    ):
        VLLMEngine.load(folder, {"max_model_length": 5})


def test_a_model_that_vllm_does_not_know_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("llama", "nobody"))
    with pytest.raises(ValueError, match="nobody"):
        VLLMEngine.load(folder, SETTINGS)
