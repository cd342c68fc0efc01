"""Run a request on the engine: its samples, tokens, time and errors, and the events of its stream."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from skate.llm import (
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    RequestTiming,
    SamplingParams,
    TextGenerator,
)
from skate.serve.llm._protocol.base import (
    CompletionTokensDetails,
    ErrorResponse,
    PromptTokensDetails,
    RawRequestInfo,
    RequestError,
    ResponseModel,
    Timing,
    UsageInfo,
    new_id,
)
from skate.serve.llm._protocol.sampling import SamplingFields
from skate.serve.llm._server.prompts import check_tokens

__all__ = [
    "DONE",
    "Account",
    "ChunkTemplate",
    "Closing",
    "EventTemplate",
    "Run",
    "as_error_response",
    "chunk_event",
    "event",
    "finish_reason",
    "last_events",
    "run_samples",
    "samples_of",
    "sampling_params",
]

logger = logging.getLogger("skate.serve")

DONE: Final = "data: [DONE]\n\n"
_SEEDS: Final = 2**63
_numbers: Final = itertools.count()
_encode_json: Final = msgspec.json.Encoder().encode

S = TypeVar("S", bound=SamplingFields)


def sampling_params(engine: TextGenerator, request: SamplingFields, **fields: Any) -> SamplingParams:
    """Return the sampling parameters of a request.

    Args:
        engine: The engine, which has defaults, and whose vocabulary limits the tokens that a request may name.
        request: The request.
        **fields: Additional parameters, which depend on the endpoint.

    Raises:
        RequestError: If a value is outside its range.
    """
    bias = {int(token): value for token, value in (request.logit_bias or {}).items()}
    check_tokens(engine.tokenizer, list(bias), "logit_bias")
    stop_tokens = check_tokens(engine.tokenizer, request.stop_token_ids or [], "stop_token_ids")
    limits = [
        each for each in (request.limit, engine.sampling_defaults.get("max_tokens")) if each is not None
    ]
    given: dict[str, Any] = {
        "max_tokens": min(limits, default=None),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": max(request.top_k, 0) if request.top_k is not None else None,
        "min_p": request.min_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "repetition_penalty": request.repetition_penalty,
    }
    try:
        return SamplingParams(
            min_tokens=request.min_tokens,
            seed=request.seed,
            stop=request.stops,
            stop_token_ids=tuple(stop_tokens),
            ignore_eos=request.ignore_eos,
            logit_bias=bias,
            **(
                engine.sampling_defaults | {name: value for name, value in given.items() if value is not None}
            ),
            **{"skip_special_tokens": request.skip_special_tokens, **fields},
        )
    except ValueError as error:
        raise RequestError(f"{error}.", param=str(error).partition(" ")[0]) from error


def samples_of(
    request: SamplingFields,
    request_id: str,
    prompt: Sequence[int],
    params: SamplingParams,
    adapter: str | None,
) -> Iterator[GenerationRequest]:
    """Yield one engine request for each sample. If the request has a seed, each sample gets a different one."""
    for number in range(request.samples):
        if params.seed is not None:
            params = replace(params, seed=(params.seed + bool(number)) % _SEEDS)
        yield GenerationRequest(
            # Two clients may choose the same id, but ids must be unique in the engine.
            request_id=f"{request_id}-{next(_numbers)}",
            prompt=prompt,
            params=params,
            adapter=adapter,
            priority=request.priority,
            cache_salt=request.cache_salt or "",
        )


async def run_samples(
    engine: TextGenerator, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[tuple[int, GenerationOutput]]:
    """Yield the pieces of all samples, with their numbers, as the engine generates them.

    Closing the iterator aborts the samples that are still running, as does an error in one of them.
    """
    if len(requests) == 1:
        async with Closing(engine.generate(requests[0])) as outputs:
            async for output in outputs:
                yield 0, output
        return
    queue: asyncio.Queue[tuple[int, GenerationOutput] | BaseException | None] = asyncio.Queue()

    async def pump(number: int) -> None:
        try:
            async with Closing(engine.generate(requests[number])) as outputs:
                async for output in outputs:
                    queue.put_nowait((number, output))
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    tasks = [asyncio.ensure_future(pump(number)) for number in range(len(requests))]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Closing:
    """Close an engine's iterator when the context exits, which aborts its request immediately."""

    __slots__ = ("_outputs",)

    def __init__(self, outputs: AsyncIterator[GenerationOutput]) -> None:
        self._outputs = outputs

    async def __aenter__(self) -> AsyncIterator[GenerationOutput]:
        return self._outputs

    async def __aexit__(self, *_: object) -> None:
        # The protocol requires only an iterator; most are generators.
        close = getattr(self._outputs, "aclose", None)
        if close is not None:
            await close()


def finish_reason(output: GenerationOutput) -> str | None:
    """Return the finish reason as OpenAI's API spells it.

    Raises:
        RequestError: If the engine aborted the request.
    """
    if output.finish_reason is FinishReason.ABORT:
        raise RequestError("The engine aborted the request.", 503, code="aborted")
    return None if output.finish_reason is None else str(output.finish_reason)


def as_error_response(error: Exception, method: str) -> ErrorResponse:
    """Return the response for an error.

    Args:
        error: The error.
        method: The method that was called, for the log.
    """
    if isinstance(error, RequestError):
        return error.response
    if isinstance(error, ValueError):  # the engine rejects a request that can never run
        return RequestError(str(error)).response
    if isinstance(error, EngineDeadError):
        return RequestError(
            f"The engine has failed: {error}", 503, code="engine_dead", retry_after=5
        ).response
    logger.error("A request to %s failed.", method, exc_info=error)
    return RequestError("The server failed. See its log for the cause.", 500).response


class Account:
    """The tokens and the time of a request.

    Args:
        info: The HTTP request.
    """

    def __init__(self, info: RawRequestInfo | None) -> None:
        self.started = time.time()
        self._received = info.received if info is not None and info.received else self.started
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.first_token_s: float | None = None
        self._timings: list[RequestTiming] = []

    def add_prompt(self, tokens: int) -> None:
        """Count the tokens of a prompt."""
        self.prompt_tokens += tokens

    def add(self, number: int, output: GenerationOutput, *, is_reasoning: bool = False) -> None:
        """Count a piece of a sample."""
        self.completion_tokens += len(output.tokens)
        if is_reasoning:
            self.reasoning_tokens += len(output.tokens)
        if self.first_token_s is None:
            self.first_token_s = time.time() - self._received
        if output.finish_reason is not None:
            if number == 0:
                self.cached_tokens = output.cached_tokens
            if output.timing is not None:
                self._timings.append(output.timing)

    @property
    def usage(self) -> UsageInfo:
        """The number of tokens so far."""
        return UsageInfo(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self.cached_tokens),
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=self.reasoning_tokens),
        )

    @property
    def timing(self) -> Timing:
        """Where the time since the arrival of the request went.

        Samples run at the same time, so the sample that took longest counts.
        """
        total = time.time() - self._received
        longest = max(
            self._timings,
            key=lambda timing: timing.queue + timing.prefill + timing.transfer + timing.decode,
            default=RequestTiming(queue=0.0, prefill=0.0, decode=0.0),
        )
        queue = max(0.0, self.started - self._received) + longest.queue
        return Timing(
            queue=queue,
            prefill=longest.prefill,
            transfer=longest.transfer or None,
            decode=longest.decode,
            server=total - queue - longest.prefill - longest.transfer - longest.decode,
        )


class Run(Generic[S]):
    """A request that runs on an engine.

    Args:
        engine: The engine.
        request: The request.
        adapter: The engine's name for the adapter, or None.
        info: The HTTP request.
    """

    ID_PREFIX: ClassVar[str]

    def __init__(
        self, engine: TextGenerator, request: S, adapter: str | None, info: RawRequestInfo | None
    ) -> None:
        self.account = Account(info)
        self.engine = engine
        self.request = request
        self.adapter = adapter
        self.id = request.request_id or new_id(self.ID_PREFIX)


def event(data: str) -> str:
    r"""Return a server-sent event.

    >>> event("{}")
    'data: {}\n\n'
    """
    return f"data: {data}\n\n"


class EventTemplate:
    """The event of a chunk in which only a text changes, as in most events of a stream.

    Args:
        before: The event up to the text.
        after: The event after the text.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, before: str, after: str) -> None:
        self._before = before
        self._after = after

    def fill(self, text: str) -> str:
        """Return the event with a text."""
        return f"{self._before}{_encode_json(text).decode()}{self._after}"


class ChunkTemplate:
    """The event of a chunk in which only the id, the time and a text differ between the streams of a model.

    Args:
        chunk: The chunk, with `ID`, `CREATED` and `TEXT` in their places. The id and the time precede everything that
            clients choose, and the text follows it.
    """

    ID: ClassVar[str] = "\x01"
    CREATED: ClassVar[int] = -1
    TEXT: ClassVar[str] = "\x00"

    def __init__(self, chunk: ResponseModel) -> None:
        self._before, _, rest = event(chunk.to_json()).partition('"\\u0001"')
        self._middle, _, rest = rest.partition("-1")
        self._rest, _, self._after = rest.rpartition('"\\u0000"')

    def bind(self, id: str, created: int) -> EventTemplate:
        """Return the template of the events of one stream."""
        before = f"{self._before}{_encode_json(id).decode()}{self._middle}{created}{self._rest}"
        return EventTemplate(before, self._after)


def chunk_event(chunk: Any, run: Run[Any], *, is_last: bool) -> str:
    """Return the event of a chunk, with the usage and the timing if it should have them."""
    if run.request.includes_usage_so_far:
        chunk.usage = run.account.usage
    if is_last and not run.request.includes_usage:
        chunk.timing = run.account.timing
    return event(chunk.to_json())


def last_events(chunk: Any, run: Run[Any]) -> Iterator[str]:
    """Yield the events that end a stream: a chunk with the usage but no choices, if requested, and `[DONE]`."""
    if run.request.includes_usage:
        chunk.usage, chunk.timing = run.account.usage, run.account.timing
        yield event(chunk.to_json())
    yield DONE
