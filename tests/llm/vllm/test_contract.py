"""What every engine does, with vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skate.llm import Grammar
from skate.llm._engine.torch_engine import TorchEngine
from skate.llm._engine.vllm_engine import VLLMEngine
from tests.llm.engine.engine_contract import TEXT, EngineContract, logprobs_in, pieces_of, text_of
from tests.llm.engine.models import write_adapter, write_model
from tests.llm.vllm.conftest import MODEL, Load

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), **MODEL)


@pytest.fixture(scope="module")
def engine(load: Load, folder: Path) -> Iterator[VLLMEngine]:
    with load(folder, enable_lora=True, max_loras=2, max_cpu_loras=4) as engine:
        yield engine


class TestContract(EngineContract):
    """The tests of every engine."""

    MODEL = MODEL

    @pytest.mark.xfail(
        strict=True,
        raises=AssertionError,
        reason="vLLM 0.32 on a CPU takes index -1, no adapter, for the last one: vllm-project/vllm#48421",
    )
    async def test_a_request_without_an_adapter_runs_beside_one_with_it(
        self, engine: Any, tmp_path: Path
    ) -> None:
        await super().test_a_request_without_an_adapter_runs_beside_one_with_it(engine, tmp_path)


async def test_log_probabilities_are_those_of_the_torch_engine(engine: VLLMEngine, folder: Path) -> None:
    torch_engine = TorchEngine.load(folder, {"num_threads": 1})
    ours, theirs = [], []
    for params in (
        {"logprobs": 5},
        {"logprobs": 5, "presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"logprobs": 5, "repetition_penalty": 1.3, "min_tokens": 4, "ignore_eos": False},
        {"logprobs": 0, "logit_bias": {7: 3.5}},
    ):
        ours += logprobs_in(await pieces_of(torch_engine, **params))
        theirs += logprobs_in(await pieces_of(engine, **params))
    await torch_engine.close()
    assert [each.token for each in theirs] == [each.token for each in ours]
    assert [each.logprob for each in theirs] == pytest.approx([each.logprob for each in ours], abs=1e-3)
    for one, other in zip(theirs, ours, strict=True):
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


async def test_a_value_that_vllm_refuses_fails_its_request_alone(engine: VLLMEngine) -> None:
    good = asyncio.create_task(text_of(engine))
    with pytest.raises(ValueError, match=r"temperature must be in \[0, 2\]"):
        await text_of(engine, temperature=50.0)
    deep = '{"not": ' * 200 + "{}" + "}" * 200
    with pytest.raises(ValueError, match="nested too deeply"):
        await text_of(engine, grammar=Grammar(kind="json_schema", text=deep))
    assert await good


async def test_requests_of_several_event_loops_run_together(engine: VLLMEngine) -> None:
    expected = await text_of(engine)
    others = [asyncio.to_thread(lambda: asyncio.run(text_of(engine))) for _ in range(3)]
    assert await asyncio.gather(text_of(engine), *others) == [expected] * 4


async def test_embedding_and_sleeping_say_what_they_need(engine: VLLMEngine) -> None:
    with pytest.raises(ValueError, match="load another one with runner='pooling'"):
        await engine.embed([[1, 2]])
    with pytest.raises(ValueError, match="load the model with enable_sleep_mode=True, on a GPU"):
        await engine.sleep()


async def test_prefixes_are_forgotten_while_requests_run(engine: VLLMEngine) -> None:
    expected = await text_of(engine, max_tokens=100)
    running = asyncio.create_task(text_of(engine, max_tokens=100))
    while not engine._running:
        await engine.check_health()
    await engine.reset_prefix_cache()
    assert await running == expected


async def test_an_adapter_of_a_higher_rank_than_the_engine_takes_is_refused(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    path = write_adapter(tmp_path, seed=1, rank=32, hidden=64)
    with pytest.raises(ValueError, match="rank 32"):
        await engine.add_adapter("large", str(path))
    assert await text_of(engine, TEXT)
