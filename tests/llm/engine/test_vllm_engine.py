"""The mapping between our interface and vLLM's. `make compat-vllm` tests the engine with vLLM itself."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skate.llm import (
    EngineDeadError,
    FinishReason,
    GenerationRequest,
    Grammar,
    KVTransferError,
    RequestTiming,
    SamplingParams,
    WorkerEngine,
)
from skate.llm._engine import loading
from skate.llm._engine.loading import choose_engine, is_vllm_installed, load_engine
from skate.llm._engine.vllm_engine import VLLMEngine
from tests.llm.engine import fake_vllm
from tests.llm.engine.fake_vllm import AsyncLLM, RequestOutputKind, VLLMClientError, output
from tests.llm.engine.models import write_adapter, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")  # restored afterwards
    fake_vllm.install(monkeypatch)


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[VLLMEngine]:
    engine = VLLMEngine.load(folder, {"enable_lora": True, "enable_sleep_mode": True})
    yield engine
    await engine.close()
    assert AsyncLLM.made[-1].is_shut_down


async def run(engine: VLLMEngine, *outputs: Any, **more: Any) -> Any:
    """Run a request to which vLLM answers with outputs, and return the pieces and what vLLM was called with."""
    fake = AsyncLLM.made[-1]
    fake.outputs = list(outputs) or [output("", [1], "length")]
    params = SamplingParams(**more.pop("params", {}))
    request = GenerationRequest(request_id="r", prompt=(5, 6), params=params, **more)
    pieces = [piece async for piece in engine.generate(request)]
    return pieces, fake.calls[-1]


async def test_every_sampling_parameter_reaches_vllm(engine: VLLMEngine) -> None:
    given: dict[str, Any] = {
        "max_tokens": 7,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 11,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "seed": 9,
        "stop": ("a", "b"),
        "stop_token_ids": (3,),
        "ignore_eos": False,
        "logit_bias": {4: 1.5},
        "logprobs": 2,
        "grammar": Grammar(kind="regex", text="x+"),
        "skip_special_tokens": False,
    }
    assert given.keys() == {each.name for each in fields(SamplingParams)}
    _, (_, prompt, params, name, adapter, priority) = await run(
        engine, params=given, priority=3, cache_salt="salt"
    )
    assert prompt == {"type": "token", "prompt_token_ids": [5, 6], "cache_salt": "salt"}
    assert (name, adapter, priority) == ("r", None, 3)
    grammar, ends = vars(params).pop("structured_outputs"), list(engine.tokenizer.eos_token_ids)
    assert vars(grammar) == {"regex": "x+"}
    assert ends
    expected = {**given, "stop": ["a", "b"], "stop_token_ids": [3, *ends]}
    del expected["grammar"]
    assert vars(params) == {
        **expected,
        "spaces_between_special_tokens": False,
        "output_kind": RequestOutputKind.DELTA,
    }


async def test_values_that_vllm_understands_differently_are_changed(engine: VLLMEngine) -> None:
    _, (_, prompt, params, *_) = await run(engine, params={"seed": -1, "top_p": 0.0, "ignore_eos": True})
    assert prompt == {"type": "token", "prompt_token_ids": [5, 6]}
    assert params.seed == 2**63 - 1  # to vLLM, -1 is no seed
    assert 0 < params.top_p < 1e-6
    assert (params.stop_token_ids, params.logit_bias, params.structured_outputs) == ([], None, None)
    assert params.max_tokens is None


async def test_the_model_s_sampling_parameters_have_the_names_of_requests(engine: VLLMEngine) -> None:
    assert engine.sampling_defaults == {"temperature": 0.6, "top_k": 0, "max_tokens": 64}


@pytest.mark.parametrize(
    ("grammar", "name", "value"),
    [
        (Grammar(kind="json"), "json_object", True),
        (Grammar(kind="json_schema", text='{"type": "null"}'), "json", '{"type": "null"}'),
        (Grammar(kind="regex", text="x+"), "regex", "x+"),
        (Grammar(kind="lark", text="start: A"), "grammar", "start: A"),
    ],
)
async def test_grammars_are_given_by_kind(
    engine: VLLMEngine, grammar: Grammar, name: str, value: Any
) -> None:
    _, (_, _, params, *_) = await run(engine, params={"grammar": grammar})
    assert vars(params.structured_outputs) == {name: value}


async def test_a_stream_becomes_pieces_and_the_last_has_the_account(engine: VLLMEngine) -> None:
    metrics = SimpleNamespace(queued_ts=10.0, scheduled_ts=11.0, first_token_ts=13.0, last_token_ts=17.0)
    pieces, _ = await run(
        engine, output("ab", [1, 2]), output("c", [3], "stop", stop_reason="d", cached=1, metrics=metrics)
    )
    assert [(piece.text, piece.tokens, piece.finish_reason) for piece in pieces] == [
        ("ab", (1, 2), None),
        ("c", (3,), FinishReason.STOP),
    ]
    last = pieces[-1]
    assert (last.prompt_tokens, last.cached_tokens, last.stop_reason) == (2, 1, "d")
    assert last.timing == RequestTiming(queue=1.0, prefill=2.0, decode=4.0)


async def test_without_times_of_vllm_they_are_measured(engine: VLLMEngine) -> None:
    never_scheduled = SimpleNamespace(queued_ts=10.0, scheduled_ts=0.0, first_token_ts=0.0, last_token_ts=0.0)
    for metrics in (None, never_scheduled):
        (piece,), _ = await run(engine, output("", [], "abort", metrics=metrics))
        assert piece.finish_reason is FinishReason.ABORT
        assert piece.timing.queue == piece.timing.decode == 0
        assert piece.timing.prefill > 0


async def test_only_tokens_of_the_request_are_a_stop_reason(engine: VLLMEngine) -> None:
    (eos,) = engine.tokenizer.eos_token_ids
    for token, asked, expected in ((eos, (), None), (eos, (eos,), eos), (3, (3,), 3)):
        for stop_reason in (None, token):  # vLLM gives none for its own end-of-sequence token
            made = output("", [1, token], "stop", stop_reason=stop_reason)
            (piece,), _ = await run(engine, made, params={"stop_token_ids": asked})
            assert piece.stop_reason == expected


async def test_log_probabilities_are_in_the_order_of_their_ranks(engine: VLLMEngine) -> None:
    def found(**ranks: Any) -> Any:
        return {
            int(name[1:]): SimpleNamespace(logprob=value, rank=rank) for name, (value, rank) in ranks.items()
        }

    logprobs = [found(t9=(-3.0, 7), t4=(-0.1, 1), t5=(-0.2, 2)), found(t5=(-0.2, 2), t4=(-0.1, 1))]
    (piece,), _ = await run(engine, output("", [9, 5], "length", logprobs=logprobs), params={"logprobs": 2})
    first, second = piece.logprobs
    assert (first.token, first.logprob, first.top) == (9, -3.0, ((4, -0.1), (5, -0.2)))
    assert (second.token, second.logprob, second.top) == (5, -0.2, ((4, -0.1), (5, -0.2)))


async def test_errors_of_bad_requests_are_value_errors(engine: VLLMEngine) -> None:
    for error in (VLLMClientError("too long"), ValueError("too long")):
        with pytest.raises(ValueError, match="too long"):
            await run(engine, error)
    with pytest.raises(ValueError, match=r"temperature must be in \[0, 2\]"):
        await run(engine, params={"temperature": 50.0})
    assert await run(engine)


async def test_other_errors_of_a_request_do_not_end_the_engine(engine: VLLMEngine) -> None:
    with pytest.raises(RuntimeError, match=r"KeyError\('x'\)"):
        await run(engine, KeyError("x"))
    with pytest.raises(RuntimeError, match="vLLM has ended the request with 'error'"):
        await run(engine, output("", [], "error"))
    await engine.check_health()


async def test_an_engine_that_has_failed_says_so(engine: VLLMEngine) -> None:
    fake = AsyncLLM.made[-1]

    class Failure(Exception):
        def __init__(self) -> None:
            super().__init__("the core is gone")
            fake.errored = True

    async def fail(*_: Any) -> None:
        raise Failure

    fake.abort = fail
    with pytest.raises(EngineDeadError, match="vLLM has failed: the core is gone"):
        await engine.abort("r")
    for call in (run(engine), engine.check_health(), engine.pause(), engine.add_adapter("a", "b")):
        with pytest.raises((EngineDeadError, FileNotFoundError)):
            await call


async def test_workers_are_called_and_profiled(engine: VLLMEngine) -> None:
    fake = AsyncLLM.made[-1]

    async def collective_rpc(method: str, **given: Any) -> list[Any]:
        return [(method, given)]

    fake.collective_rpc = collective_rpc
    given = {"timeout": 3, "args": (1,), "kwargs": {"a": 2}}
    assert await engine.collective_rpc("load", 3, (1,), {"a": 2}) == [("load", given)]
    await engine.start_profile()
    await engine.stop_profile()
    assert fake.calls[-2:] == [("start_profile",), ("stop_profile",)]
    assert isinstance(engine, WorkerEngine)


async def test_a_prefilled_prompt_is_refused(engine: VLLMEngine) -> None:
    prefilled: Any = object()
    asked = GenerationRequest(request_id="1", prompt=[1, 2], prefilled=prefilled)
    with pytest.raises(KVTransferError, match="vLLM cannot continue a prompt"):
        await anext(engine.generate(asked))


async def test_calls_reach_vllm(engine: VLLMEngine) -> None:
    fake = AsyncLLM.made[-1]
    await engine.pause()
    await engine.resume()
    await engine.abort("r")
    await engine.reset_prefix_cache()
    await engine.sleep()
    await engine.sleep(weights=False)
    await engine.wake_up()
    assert fake.calls == [
        ("pause_generation", {"mode": "keep", "clear_cache": False}),
        ("resume_generation",),
        ("abort", "r"),
        ("reset_prefix_cache", False),
        ("reset_prefix_cache", True),  # running requests held blocks
        ("sleep", {"level": 1}),
        ("pause_generation", {"mode": "keep", "clear_cache": False}),
        ("release_kv_cache_memory",),
        ("wake_up",),
    ]
    with pytest.raises(NotImplementedError, match="only together with the KV cache"):
        await engine.sleep(kv_cache=False)


async def test_an_adapter_has_a_new_name_for_each_load(engine: VLLMEngine, tmp_path: Path) -> None:
    fake = AsyncLLM.made[-1]
    path = str(write_adapter(tmp_path, seed=0))
    await engine.add_adapter("poet", path)
    await engine.add_adapter("poet", path)
    (_, first), (_, second), removed = fake.calls
    assert (first.lora_name, second.lora_name) == ("poet#1", "poet#2")
    assert second.lora_path == path
    assert removed == ("remove_lora", 1)
    _, call = await run(engine, adapter="poet")
    assert call[4] is second
    await engine.remove_adapter("poet")
    assert fake.calls[-1] == ("remove_lora", 2)
    with pytest.raises(ValueError, match="there is no adapter 'poet'"):
        await run(engine, adapter="poet")


async def test_what_an_engine_was_not_loaded_for_is_refused(folder: Path) -> None:
    engine = VLLMEngine.load(folder)
    with pytest.raises(ValueError, match="enable_lora=True"):
        await engine.add_adapter("a", "b")
    with pytest.raises(ValueError, match="enable_sleep_mode=True"):
        await engine.sleep()
    with pytest.raises(ValueError, match="runner='pooling'"):
        await engine.embed([[1]])
    await engine.close()


async def test_arguments_reach_vllm_beside_those_that_the_interface_needs(folder: Path) -> None:
    engine = VLLMEngine.load(folder, {"max_model_len": 100}, tokenizer=folder)
    arguments = AsyncLLM.made[-1].arguments
    assert (arguments.model, arguments.tokenizer) == (str(folder), str(folder))
    assert (arguments.scheduling_policy, arguments.logprobs_mode) == ("priority", "processed_logprobs")
    assert arguments.structured_outputs_config.backend == "guidance"
    assert engine.max_model_len == 100
    assert engine.describe() == ("vLLM 0.0 on cuda; LlamaForCausalLM in float32, context of 100 tokens")
    await engine.close()
    chosen = SimpleNamespace(backend="xgrammar")
    engine = VLLMEngine.load(folder, {"scheduling_policy": "fcfs", "structured_outputs_config": chosen})
    arguments = AsyncLLM.made[-1].arguments
    assert (arguments.scheduling_policy, arguments.structured_outputs_config) == ("fcfs", chosen)
    await engine.close()


def test_processes_of_vllm_are_not_forked_unless_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="has no engine argument"):
        VLLMEngine.load(folder, {"wrong": 1})
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "fork"
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD")
    with pytest.raises(ValueError, match="has no engine argument"):
        VLLMEngine.load(folder, {"wrong": 1})
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


def test_wrong_arguments_and_models_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no engine argument 'max_model_length'\. Did you mean 'max_model_len'"
    ):
        VLLMEngine.load(folder, {"max_model_length": 5})
    with pytest.raises(ValueError, match="does not read GGUF files"):
        VLLMEngine.load(tmp_path / "model.gguf")
    with pytest.raises(FileNotFoundError, match="there is no model"):
        VLLMEngine.load(tmp_path / "missing")
    write_model(tmp_path / "broken")
    with pytest.raises(ValueError, match="no such model"):
        VLLMEngine.load(tmp_path / "broken")


def test_the_engine_is_chosen_and_the_reason_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "small.gguf").touch()
    monkeypatch.setattr(loading, "is_vllm_installed", lambda: True)
    monkeypatch.setattr(loading, "_has_gpu", lambda: True)
    assert choose_engine(folder, "auto", {}) == ("vllm", "vLLM is installed and there is a GPU")
    for model in (tmp_path, tmp_path / "small.gguf"):
        assert choose_engine(model, "auto", {}) == ("torch", "vLLM does not read GGUF files")
    assert choose_engine(folder, "auto", {"num_threads": 1})[0] == "torch"
    assert choose_engine(folder, "auto", {"quantization": "int4"})[0] == "torch"
    assert choose_engine(folder, "torch", {}) == ("torch", "it was asked for")
    monkeypatch.setattr(loading, "_has_gpu", lambda: False)
    assert choose_engine(folder, "auto", {}) == ("torch", "there is no GPU")
    assert choose_engine(folder, "vLLM", {}) == ("vllm", "it was asked for")
    monkeypatch.setattr(loading, "is_vllm_installed", lambda: False)
    assert choose_engine(folder, "auto", {}) == ("torch", "vLLM is not installed")
    with pytest.raises(ValueError, match=r"'vlm' is not an engine\. Did you mean 'vllm'"):
        choose_engine(folder, "vlm", {})


async def test_one_line_says_which_engine_runs_and_why(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="skate.llm"):
        engine = load_engine(folder, engine="vllm")
    (line,) = caplog.messages
    assert line == f"{folder}: {engine.describe()}; chosen because it was asked for"
    await engine.close()


def test_without_vllm_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if is_vllm_installed():
        pytest.skip("vLLM is installed")
    with pytest.raises(ImportError, match="pip install vllm"):
        load_engine(folder, engine="vllm")


def test_the_configuration_of_a_tokenizer_is_read_without_weights(folder: Path, tmp_path: Path) -> None:
    from skate.llm._engine.model_files import open_tokenizer

    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": [5, 7]}}))
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    assert open_tokenizer(tmp_path).eos_token_ids == (5, 7)
    assert set(open_tokenizer(tmp_path, folder).eos_token_ids) > {5, 7}
