"""The request fields that chat completions and completions share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from skate.serve.llm._protocol.base import Count, Flag, Integer, Number, Positive, RequestModel, Text

__all__ = ["MAX_LOGPROBS", "MAX_SAMPLES", "SamplingFields", "StreamOptions", "StructuredOutputs"]

MAX_SAMPLES = 128
MAX_LOGPROBS = 20
_MAX_STOPS = 16
_MAX_STOP_LENGTH = 1024
_MAX_CHOICES = 4096
_MAX_GRAMMAR = 256 * 1024  # characters

Penalty = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-2, le=2)]
Fraction = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]


class StreamOptions(RequestModel):
    """Options of a stream. `include_obfuscation` is ignored, because no padding is sent.

    Args:
        include_usage: Send a final chunk with the usage and no choices.
        continuous_usage_stats: Send the usage so far with each chunk.
    """

    include_usage: Flag = False
    continuous_usage_stats: Flag = False
    include_obfuscation: Flag | None = None


class StructuredOutputs(RequestModel):
    """A constraint on the text: exactly one of a JSON schema, a regular expression, choices, and a Lark grammar."""

    # pydantic uses the name `json` itself.
    json_: dict[str, Any] | Text | Flag | None = Field(default=None, alias="json")
    regex: Text | None = Field(default=None, max_length=_MAX_GRAMMAR)
    choice: list[Text] | None = Field(default=None, min_length=1, max_length=_MAX_CHOICES)
    grammar: Text | None = Field(default=None, max_length=_MAX_GRAMMAR)
    json_object: Flag | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        values = (self.json_, self.regex, self.choice, self.grammar, self.json_object)
        if sum(value not in (None, False) for value in values) != 1:
            raise ValueError(
                "exactly one of `json`, `regex`, `choice`, `grammar` and `json_object` must be set"
            )
        return self


class SamplingFields(RequestModel):
    """How to choose tokens, when to stop, and what to return.

    `user`, `metadata`, `prompt_cache_key`, `service_tier` and `store` are accepted and ignored.
    """

    model: Text | None = None
    max_tokens: Positive | None = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    top_p: Fraction | None = None
    n: Positive | None = Field(default=None, le=MAX_SAMPLES)
    stop: Text | list[Text] | None = None
    seed: Integer | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    logit_bias: dict[str, Number] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    # Further fields that clients of other servers send.
    top_k: Integer | None = Field(default=None, ge=-1)
    min_p: Fraction | None = None
    repetition_penalty: Number | None = Field(default=None, gt=0, le=100)
    min_tokens: Count = 0
    ignore_eos: Flag = False
    stop_token_ids: list[Count] | None = Field(default=None, max_length=_MAX_CHOICES)
    skip_special_tokens: Flag = True
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: Flag = False
    priority: Integer = 0
    cache_salt: Text | None = Field(default=None, max_length=256)
    request_id: Text | None = Field(default=None, min_length=1, max_length=256)
    # Accepted and ignored.
    user: Text | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: Text | None = None
    service_tier: Text | None = None
    store: Flag | None = None

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        given = [stop] if isinstance(stop, str) else stop or []
        if len(given) > _MAX_STOPS:
            raise ValueError(f"there must be at most {_MAX_STOPS} stop strings, not {len(given)}")
        for each in given:
            if not each:
                raise ValueError(
                    "a stop string is empty, so the text would end before it starts; leave it out"
                )
            if len(each) > _MAX_STOP_LENGTH:
                raise ValueError(
                    f"a stop string must have at most {_MAX_STOP_LENGTH} characters, not {len(each)}"
                )
        return stop

    @field_validator("logit_bias")
    @classmethod
    def _check_bias(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for token, value in (bias or {}).items():
            if not token.isascii() or not token.isdigit() or len(token) > 12:
                raise ValueError(f"the keys must be token ids, but {token[:32]!r} is not one")
            if not -100 <= value <= 100:
                raise ValueError(f"the values must be from -100 to 100, but the value of {token} is {value}")
        return bias

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` needs `stream` to be true.")
        return self

    @property
    def limit(self) -> int | None:
        """The maximum number of tokens to generate."""
        return self.max_tokens

    @property
    def samples(self) -> int:
        """The number of answers to generate."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk that has the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def includes_usage_so_far(self) -> bool:
        """Whether each chunk of a stream has the usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def ignored_fields(self) -> list[str]:
        """The fields of the request that have no effect."""
        return [name for name in _IGNORED if getattr(self, name) is not None]


_IGNORED: tuple[Literal["user", "metadata", "prompt_cache_key", "service_tier", "store"], ...] = (
    "user",
    "metadata",
    "prompt_cache_key",
    "service_tier",
    "store",
)
