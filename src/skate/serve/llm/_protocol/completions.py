"""Requests and responses of completions, which continue plain prompts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from skate.serve.llm._protocol.base import (
    Flag,
    Integer,
    Positive,
    ResponseModel,
    Text,
    Texts,
    Timing,
    UsageInfo,
    as_list,
    unix_time,
)
from skate.serve.llm._protocol.chat import ResponseFormat
from skate.serve.llm._protocol.sampling import MAX_LOGPROBS, MAX_SAMPLES, SamplingFields

__all__ = ["CompletionRequest", "CompletionResponse", "CompletionStreamResponse"]

DEFAULT_MAX_TOKENS = 16  # as in OpenAI's API


class CompletionRequest(SamplingFields):
    """A completion request. A prompt is a string or a list of tokens.

    `user`, `metadata`, `prompt_cache_key`, `service_tier` and `store` are accepted and ignored; `ignored_fields` in the
    response lists them.
    """

    prompt: Texts
    max_tokens: Positive | None = DEFAULT_MAX_TOKENS
    echo: Flag = False
    logprobs: Integer | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    best_of: Positive | None = None
    suffix: Text | None = None
    add_special_tokens: Flag = True
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not self.prompts:
            raise ValueError("`prompt` is empty.")
        if len(self.prompts) * self.samples > MAX_SAMPLES:
            raise ValueError(
                f"{len(self.prompts)} prompts with n={self.samples} exceed the limit of {MAX_SAMPLES} completions. "
                "Send several requests."
            )
        if self.best_of is not None and self.best_of != self.samples:
            raise ValueError("`best_of` must be equal to `n`: all completions are returned.")
        if self.suffix:
            raise ValueError("`suffix` is not supported: the model can only continue a prompt.")
        if self.echo and self.logprobs is not None:
            raise ValueError(
                "`echo` cannot be combined with `logprobs`: log-probabilities of the prompt are not computed."
            )
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a string or a list of tokens."""
        return as_list(self.prompt)


class CompletionLogprobs(ResponseModel):
    """The log-probabilities of a completion's tokens."""

    text_offset: list[int] = Field(default_factory=list)
    token_logprobs: list[float | None] = Field(default_factory=list)
    tokens: list[str] = Field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = Field(default_factory=list)


class CompletionChoice(ResponseModel):
    """One of the completions, or its next part."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None

    always_sent = ("logprobs", "finish_reason")


class CompletionResponse(ResponseModel):
    """A completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[CompletionChoice]
    usage: UsageInfo | None = None
    timing: Timing | None = None
    ignored_fields: list[str] | None = None


class CompletionStreamResponse(CompletionResponse):
    """The next part of a completion."""
