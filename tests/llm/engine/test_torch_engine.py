"""The embedded engine, as its callers use it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import torch

from skate.llm import (
    EngineDeadError,
    Grammar,
)
from skate.llm._engine.linear import has_bfloat16
from skate.llm._engine.model import TorchEngineConfig
from skate.llm._engine.model_files import open_model
from skate.llm._engine.torch_engine import TorchEngine
from tests.llm.engine.engine_contract import TEXT, EngineContract, pieces_of, request, text_of
from tests.llm.engine.models import write_adapter, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine.load(folder, {"max_num_seqs": 4, "max_num_batched_tokens": 32, "num_threads": 1})
    yield engine
    await engine.close()


@pytest.fixture(scope="module", autouse=True)
def no_threads_of_engines() -> Iterator[None]:
    yield
    assert not [each for each in threading.enumerate() if each.name == "skate-llm-engine"]


class TestContract(EngineContract):
    """The tests of every engine."""


async def test_leaving_the_loop_aborts_the_request(engine: TorchEngine) -> None:
    async with aclosing(engine.generate(request(engine, max_tokens=200))) as pieces:
        async for _ in pieces:
            break
    assert await engine._loop.call(lambda: engine._loop.request_count) == 0
    assert engine._model.scheduler.running == []


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (Grammar(kind="regex", text="(unclosed"), "regex grammar"),
        (Grammar(kind="json_schema", text="{no json"), "json_schema grammar is not valid"),
        (Grammar(kind="json_schema", text='{"type": "nonsense"}'), "json_schema grammar"),
        (Grammar(kind="lark", text="start: missing_rule"), "lark grammar"),
    ],
)
async def test_a_bad_grammar_is_refused_with_the_reason(
    engine: TorchEngine, grammar: Grammar, message: str
) -> None:
    good = asyncio.create_task(text_of(engine))
    with pytest.raises(ValueError, match=message):
        await text_of(engine, grammar=grammar)
    assert await good


async def test_a_sleeping_engine_frees_its_memory_and_wakes_up_with_its_weights(engine: TorchEngine) -> None:
    expected = await text_of(engine)
    await engine.sleep()
    assert (engine._model._decoder, engine._model._cache) == (None, None)
    waiting = asyncio.create_task(text_of(engine))
    await engine.wake_up()
    assert await waiting == expected


async def test_an_engine_does_not_sleep_while_requests_run(engine: TorchEngine) -> None:
    await engine.pause()
    running = asyncio.create_task(text_of(engine))
    await engine._loop.call(lambda: None)
    while not engine._loop.request_count:
        await engine._loop.call(lambda: None)
    with pytest.raises(ValueError, match="cannot sleep while 1 requests run"):
        await engine.sleep()
    await engine.resume()
    assert await running


async def test_new_weights_change_the_text_and_forget_the_prefixes(
    engine: TorchEngine, tmp_path: Path
) -> None:
    before = await text_of(engine, TEXT * 2)
    other = open_model(write_model(tmp_path, seed=1))
    assert await engine.update_weights(other.tensors()) == 1
    *_, last = pieces = await pieces_of(engine, TEXT * 2)
    assert last.cached_tokens == 0
    assert "".join(piece.text for piece in pieces) != before
    with pytest.raises(ValueError, match="has no tensor"):
        await engine.update_weights([])
    assert await text_of(engine, TEXT * 2) == "".join(piece.text for piece in pieces)


async def test_embeddings_have_length_1_and_do_not_depend_on_the_batch(engine: TorchEngine) -> None:
    prompts = [engine.tokenizer.encode(text) for text in (TEXT, "it's 12345 times better")]
    first, second = await engine.embed(prompts)
    assert sum(value * value for value in first) == pytest.approx(1)
    assert [second] == await engine.embed(prompts[1:])
    assert first != second


async def test_a_failing_step_fails_every_request_and_says_so(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine._model._decoder, "forward", fail)
    results = await asyncio.gather(text_of(engine), text_of(engine), return_exceptions=True)
    assert all(isinstance(each, EngineDeadError) for each in results)
    for call in (engine.check_health(), text_of(engine), engine.embed([[1]])):
        with pytest.raises(EngineDeadError, match=r"the engine has failed: RuntimeError\('out of memory'\)"):
            await call


async def test_a_step_that_does_not_end_is_reported(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_in_step, may_go_on = threading.Event(), threading.Event()
    forward = engine._model._decoder.forward

    def stall(*arguments: Any) -> torch.Tensor:
        is_in_step.set()
        may_go_on.wait()
        return forward(*arguments)

    monkeypatch.setattr(engine._model._decoder, "forward", stall)
    await engine.check_health()
    running = asyncio.create_task(text_of(engine))
    await asyncio.to_thread(is_in_step.wait)
    engine._stall_timeout = 0.0
    with pytest.raises(EngineDeadError, match=r"in one step for .* s; the limit is 0 s"):
        await engine.check_health()
    may_go_on.set()
    assert await running
    await engine._loop.call(lambda: None)  # between two steps
    await engine.check_health()


async def test_a_closed_engine_says_so(folder: Path) -> None:
    engine = TorchEngine.load(folder, {"num_threads": 1})
    asked = engine.generate(request(engine, max_tokens=200))
    await anext(asked)
    await engine.close()
    with pytest.raises(EngineDeadError, match="the engine is closed"):
        async for _ in asked:
            pass
    with pytest.raises(EngineDeadError, match="the engine is closed"):
        await text_of(engine)


@pytest.mark.parametrize(
    ("settings", "inputs", "message"),
    [
        ({"peft_type": "IA3"}, 48, "type 'IA3'; only LORA is supported"),
        ({"use_dora": True}, 48, "uses use_dora, which the torch engine does not support"),
        ({}, 47, r"shapes \(4, 47\) and \((48|64), 4\), but it has 48 inputs"),
    ],
)
async def test_an_adapter_that_does_not_fit_is_refused(
    engine: TorchEngine, tmp_path: Path, settings: dict[str, Any], inputs: int, message: str
) -> None:
    path = write_adapter(tmp_path, seed=0, inputs=inputs, **settings)
    with pytest.raises(ValueError, match=message):
        await engine.add_adapter("bad", str(path))
    assert await text_of(engine)


async def test_a_context_that_does_not_fit_the_memory_is_shortened_and_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = TorchEngine.load(folder, {"kv_cache_memory_bytes": 50_000, "num_threads": 1})
    assert engine.max_model_len == 128
    assert "the context is shortened from 256 to 128 tokens" in caplog.text
    await engine.close()


async def test_the_engine_has_the_sampling_parameters_of_the_model_s_files(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20, "eos_token_id": 2}')
    overrides = {"override_generation_config": {"top_k": 40}, "num_threads": 1}
    engine = TorchEngine.load(folder, overrides)
    await engine.close()
    assert engine.sampling_defaults == {"temperature": 0.6, "top_k": 40}


def test_arguments_of_vllm_without_a_meaning_are_accepted_and_several_gpus_are_not() -> None:
    settings = TorchEngineConfig.from_kwargs({"tensor_parallel_size": 1, "dtype": "auto", "max_num_seqs": 3})
    assert settings == TorchEngineConfig(max_num_seqs=3)
    with pytest.raises(ValueError, match="runs in one process: tensor_parallel_size must be 1, got 2"):
        TorchEngineConfig.from_kwargs({"tensor_parallel_size": 2})


def test_a_misspelt_argument_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no argument 'max_model_length'\. Did you mean 'max_model_len'\?"):
        TorchEngineConfig.from_kwargs({"max_model_length": 5})


async def test_weights_of_four_bits_generate(folder: Path, tmp_path: Path) -> None:
    path = write_model(tmp_path, hidden_size=64, head_dim=16)
    engine = TorchEngine.load(path, {"quantization": "int4", "num_threads": 1})
    alone = await text_of(engine)
    assert (await asyncio.gather(text_of(engine), text_of(engine, "other")))[0] == alone
    await engine.close()
    chunked = TorchEngine.load(path, {"quantization": "int4", "num_threads": 1, "max_num_batched_tokens": 16})
    assert await text_of(chunked) == alone  # its first step samples nothing
    await chunked.close()


@pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no instructions for bfloat16")
async def test_products_in_bfloat16_generate_the_same_text_alone_and_among_others(folder: Path) -> None:
    engine = TorchEngine.load(folder, {"dtype": "bfloat16", "num_threads": 1})
    assert " in bfloat16, " in engine.describe()
    alone = await text_of(engine)
    texts = await asyncio.gather(
        *(text_of(engine, each) for each in ("a", "other", "third")), text_of(engine)
    )
    assert texts[-1] == alone
    await engine.close()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
async def test_a_type_that_the_cpu_cannot_use_is_reported(
    folder: Path, dtype: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("skate.llm._engine.model.has_bfloat16", lambda: False)
    engine = TorchEngine.load(folder, {"dtype": dtype, "device": "cpu"})
    assert " in float32, " in engine.describe()
    assert f"dtype='{dtype}' is not used: the engine computes in float32 on this CPU" in caplog.text
    await engine.close()


async def test_the_worker_of_the_engine_is_the_engine(engine: TorchEngine, tmp_path: Path) -> None:
    before = await text_of(engine)
    other = open_model(write_model(tmp_path, seed=1))
    assert await engine.collective_rpc("update_weights", args=(list(other.tensors()),)) == [1]
    assert await text_of(engine) != before
    assert await engine.collective_rpc("describe") == [engine.describe()]
    assert await engine.collective_rpc("sleep", kwargs={"weights": False}) == [None]
    assert await engine.collective_rpc("wake_up") == [None]
    for method, message in (
        ("updat_weights", "Did you mean 'update_weights'"),
        ("_loop", "has no method '_loop'"),
    ):
        with pytest.raises(ValueError, match=message):
            await engine.collective_rpc(method)
    await engine.pause()
    with pytest.raises(TimeoutError):
        await engine.collective_rpc("prefill", timeout=0.01, args=(request(engine),))
    await engine.resume()


async def test_a_profile_shows_the_operations_of_a_step(folder: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    config = {"profiler": "torch", "torch_profiler_dir": str(traces)}
    engine = TorchEngine.load(folder, {"num_threads": 1, "profiler_config": config})
    with pytest.raises(ValueError, match="start it first"):
        await engine.stop_profile()
    await engine.start_profile()
    with pytest.raises(ValueError, match="recording already"):
        await engine.start_profile()
    await text_of(engine, max_tokens=2)
    await engine.stop_profile()
    (trace,) = traces.iterdir()
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event["name"] == "aten::scaled_dot_product_attention" for event in events)
    await engine.close()


async def test_a_profiler_needs_a_folder(engine: TorchEngine) -> None:
    with pytest.raises(ValueError, match="set profiler_config="):
        await engine.start_profile()
    with pytest.raises(ValueError, match="Did you mean 'torch_profiler_dir'"):
        TorchEngineConfig(profiler_config={"torch_profile_dir": "x"})
    with pytest.raises(ValueError, match="must be like"):
        TorchEngineConfig(profiler_config={"profiler": "cuda"})


async def test_a_request_that_comes_when_the_thread_has_ended_fails(engine: TorchEngine) -> None:
    """Between the check that the engine lives and the request's arrival, it may have failed."""
    active = await engine._prepare(request(engine))
    await engine.close()
    engine._loop.submit(active)
    error = await active.pieces.get()
    assert isinstance(error, EngineDeadError)
    with pytest.raises(EngineDeadError):
        await engine._loop.call(lambda: None)
