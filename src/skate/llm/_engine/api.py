"""The interface of an engine: requests go in, pieces of generated text come out.

The servers in `skate.serve.llm` and the processors in `skate.data.llm` use an engine through these types alone.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from skate.llm._engine.blocks import CachedPrefixes

if TYPE_CHECKING:
    import numpy as np


class FinishReason(enum.StrEnum):
    """Why a request ended."""

    STOP = "stop"  # the end-of-sequence token, a stop token or a stop string
    LENGTH = "length"  # `max_tokens` or the context length
    ABORT = "abort"  # the caller aborted it


@dataclass(frozen=True, kw_only=True, slots=True)
class Grammar:
    """A constraint on the generated text, which the engine enforces token by token.

    `kind` says what `text` is: a JSON schema, a regular expression, or a grammar in Lark's syntax. `"json"` allows any
    JSON object and needs no text.
    """

    kind: Literal["json", "json_schema", "regex", "lark"]
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How to choose the next token, and when to stop.

    Args:
        max_tokens: The maximum number of tokens to generate; None generates up to the context length.
        min_tokens: The number of tokens before which the request does not end at an end-of-sequence or stop token.
        temperature: The divisor of the logits; 0 always chooses the most probable token.
        top_p: Sample from the most probable tokens whose probabilities sum to this.
        top_k: Sample from this many of the most probable tokens; 0 considers all tokens.
        min_p: Exclude tokens that are less probable than this fraction of the most probable token.
        presence_penalty: Subtracted from the logit of every token that was generated.
        frequency_penalty: Subtracted from the logit of a token once for each time that it was generated.
        repetition_penalty: Divides positive logits, and multiplies negative ones, of tokens in the prompt and output.
        seed: The same seed and prompt give the same text, on a CPU regardless of other requests. None draws a random
            seed.
        stop: The text ends before the first of these strings.
        stop_token_ids: The request ends at the first of these tokens, which is not part of the text.
        ignore_eos: Whether to continue after an end-of-sequence token.
        logit_bias: Numbers to add to the logits of some tokens.
        logprobs: Return the log-probabilities of each chosen token and of this many most probable tokens. None
            returns no log-probabilities.
        grammar: A constraint on the text.
        skip_special_tokens: Whether to leave special tokens out of the text.

    Raises:
        ValueError: If a value is outside its range.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    grammar: Grammar | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check("max_tokens", self.max_tokens, 1, math.inf)
        _check("min_tokens", self.min_tokens, 0, self.max_tokens or math.inf)
        _check("temperature", self.temperature, 0, 100)
        _check("top_p", self.top_p, 0, 1)
        _check("top_k", self.top_k, 0, math.inf)
        _check("min_p", self.min_p, 0, 1)
        _check("presence_penalty", self.presence_penalty, -2, 2)
        _check("frequency_penalty", self.frequency_penalty, -2, 2)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100)
        if self.logprobs is not None:
            _check("logprobs", self.logprobs, 0, 20)
        if any(not each for each in self.stop):
            raise ValueError("a stop string is empty, so the text would end before it starts; leave it out")
        for token, bias in self.logit_bias.items():
            _check(f"logit_bias[{token}]", bias, -100, 100)


def _check(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:  # NaN compares false
        upper = "" if highest == math.inf else f" and at most {highest:g}"
        raise ValueError(f"{name} must be at least {lowest:g}{upper}, got {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One prompt to continue.

    Args:
        request_id: Identifies the request, for `Engine.abort` and in messages. Ids of running requests are unique.
        prompt: The tokens of the prompt.
        params: How to choose tokens, and when to stop.
        adapter: The name of a LoRA adapter that was added to the engine; None uses the base model.
        priority: Requests with a lower number start first.
        cache_salt: Prompts share cached prefixes only with prompts that have the same salt.
        prefilled: The keys and values of the prompt and its first token, which another engine has computed for the
            same request.
    """

    request_id: str
    prompt: Sequence[int]
    params: SamplingParams = SamplingParams()
    adapter: str | None = None
    priority: int = 0
    cache_salt: str = ""
    prefilled: PrefilledPrompt | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probabilities of a chosen token and of the most probable tokens, in descending order."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTiming:
    """Where the time of a request went, in seconds.

    Args:
        queue: Waiting for its turn.
        prefill: Computing the prompt.
        decode: Generating tokens after the first one.
        transfer: From the end of prefill in one engine to the arrival in another, if two engines ran the request.
    """

    queue: float
    prefill: float
    decode: float
    transfer: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class KVLayout:
    """What the keys and values of a prompt depend on besides its tokens.

    One engine can continue what another has prefilled if their layouts are equal. The sizes of their blocks may differ.

    Args:
        model_type: The family of the model.
        layers: The number of layers.
        heads: The number of key heads of a layer.
        head_dim: The size of a key.
        dtype: The type of the numbers in the cache.
        matrix_type: The type of the numbers in matrix products, such as "int4".
        weights: A digest of the configuration and of a sample of the numbers of each weight.
    """

    model_type: str
    layers: int
    heads: int
    head_dim: int
    dtype: str
    matrix_type: str
    weights: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefilledPrompt:
    """A prompt that an engine has computed, for another engine to continue.

    Args:
        prompt: The tokens of the prompt.
        token: The first token of the output.
        logprob: Its log-probabilities, if they were requested.
        seed: The seed that chose the token, and chooses the next ones.
        layout: What the keys and values depend on.
        adapter: A digest of the LoRA adapter; None if there is none.
        keys_values: The keys and values, of shape `(layers, 2, tokens, heads, head_dim)`. NumPy has no bfloat16, so
            those numbers are stored as integers of 16 bits.
        cached_tokens: The number of tokens of the prompt that were in the prefix cache.
        timing: Where the time went until the first token.
        finished: When the first token was known, by `time.time()`.
    """

    prompt: tuple[int, ...]
    token: int
    logprob: TokenLogprob | None
    seed: int
    layout: KVLayout
    adapter: str | None
    keys_values: np.ndarray[Any, Any]
    cached_tokens: int
    timing: RequestTiming
    finished: float


@dataclass(kw_only=True, slots=True)  # not frozen: one is made for each token, and freezing doubles the cost
class GenerationOutput:
    """The next piece of a request's output.

    Args:
        text: The text since the previous piece. It may be empty, while tokens do not form a complete character.
        tokens: The tokens since the previous piece.
        logprobs: The log-probabilities of each token, if they were requested.
        finish_reason: Set on the last piece.
        stop_reason: The stop string or stop token that ended the request, if one did.
        prompt_tokens: The number of tokens in the prompt.
        cached_tokens: The number of tokens of the prompt that were in the prefix cache.
        timing: Set on the last piece.
    """

    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    timing: RequestTiming | None = None


class Tokenizer(Protocol):
    """Converts text to tokens and back."""

    vocab_size: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    has_chat_template: bool

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens."""
        ...

    def token_text(self, token: int) -> str:
        """Return the text of one token, as it is shown with log-probabilities."""
        ...

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """Render messages to the text of a prompt. Tokenize it with `encode(text, add_special_tokens=False)`.

        Args:
            messages: The conversation, as dicts with the keys `role` and `content`.
            tools: JSON descriptions of functions that the model may call.
            add_generation_prompt: Whether to end with the start of an answer.
            continue_final_message: Whether to end within the last message, so that the model continues it.
            chat_template: A template to use instead of the model's.
            **variables: Additional variables of the template, such as `enable_thinking`.

        Raises:
            ValueError: If there is no chat template, or it is invalid, or it rejects the messages.
        """
        ...


class TextGenerator(Protocol):
    """Continues prompts: an engine, or several engines that share the work."""

    tokenizer: Tokenizer
    max_model_len: int  # the maximum number of tokens of a prompt and its output together
    sampling_defaults: dict[
        str, float
    ]  # parameters that the model recommends; max_tokens limits all requests

    def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationOutput]:
        """Continue a prompt. Closing the iterator aborts the request.

        Raises:
            ValueError: If the request can never run. The engine and its other requests are not affected.
            EngineDeadError: If the engine has failed.
        """
        ...


class Engine(TextGenerator, Protocol):
    """Generates text for many requests concurrently."""

    def describe(self) -> str:
        """Describe the engine, its model and its limits in one line."""
        ...

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return one vector of length 1 for each prompt."""
        ...

    async def check_health(self) -> None:
        """Raise `EngineDeadError` if the engine has failed or makes no progress."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Clear the prefix cache."""
        ...

    async def add_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter from a folder."""
        ...

    async def remove_adapter(self, name: str) -> None:
        """Unload a LoRA adapter."""
        ...

    async def pause(self) -> None:
        """Stop running steps until `resume` is called. Requests are kept."""
        ...

    async def resume(self) -> None:
        """Continue after `pause`."""
        ...

    async def sleep(self, *, weights: bool = True, kv_cache: bool = True) -> None:
        """Free the memory of the weights, the KV cache, or both.

        Raises:
            ValueError: If requests are running.
        """
        ...

    async def wake_up(self) -> None:
        """Undo `sleep`."""
        ...

    async def close(self) -> None:
        """Abort every request and free the engine's memory."""
        ...


@runtime_checkable
class PrefillEngine(Engine, Protocol):
    """An engine that can compute a prompt for another engine, and continue what another engine has computed."""

    async def prefill(self, request: GenerationRequest) -> PrefilledPrompt:
        """Compute a prompt and the first token. Cancelling the call aborts the request.

        To continue, give the same request with the result as `prefilled` to `generate` of an engine with the same
        model.

        Raises:
            ValueError: If the request can never run. The engine and its other requests are not affected.
            KVTransferError: If the weights were replaced meanwhile, or the request was aborted.
            EngineDeadError: If the engine has failed.
        """
        ...


@runtime_checkable
class PrefixCacheEngine(Engine, Protocol):
    """An engine that reports which prefixes it has cached."""

    async def cached_prefixes(self) -> CachedPrefixes:
        """Return the prefixes of prompts without an adapter that are cached."""
        ...


@runtime_checkable
class WorkerEngine(Engine, Protocol):
    """An engine whose workers can be called and profiled."""

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every worker, and return the results.

        Raises:
            ValueError: If there is no such method.
            TimeoutError: If the workers do not answer in time.
        """
        ...

    async def start_profile(self) -> None:
        """Start to record what the workers compute.

        Raises:
            ValueError: If the engine was loaded without `profiler_config`, or records already.
        """
        ...

    async def stop_profile(self) -> None:
        """Stop recording, and write a trace to the folder that `profiler_config` names.

        Raises:
            ValueError: If nothing is recorded.
        """
        ...


class KVTransferError(ValueError):
    """An engine cannot use the keys and values that another engine has computed."""


class EngineDeadError(RuntimeError):
    """The engine has failed and accepts no more requests."""
