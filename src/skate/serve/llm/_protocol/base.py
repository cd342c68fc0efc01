"""Base classes of requests and responses, errors, usage and timing."""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from skate._api.payloads import declare_importable
from skate.air import _arguments as arguments

__all__ = [
    "ErrorInfo",
    "ErrorResponse",
    "RawRequestInfo",
    "RequestError",
    "RequestModel",
    "ResponseModel",
    "Timing",
    "UsageInfo",
    "as_list",
    "new_id",
    "parse_body",
    "unix_time",
]

# Numbers are not converted from strings or booleans, so that a client that sends "1" learns of its mistake.
Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Positive = Annotated[int, Field(strict=True, ge=1, lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]

Texts = Text | list[Count] | list[Text] | list[list[Count]]
"""One text or several. A text may be given as a list of tokens."""

_MAX_BODY_DEPTH = 128
_CONTAINERS = frozenset((dict, list))


class _Ids:
    """Generates random ids. Asking the system for random bytes would release the interpreter's lock to the engine."""

    def __init__(self) -> None:
        self._random = random.Random()
        os.register_at_fork(after_in_child=self._random.seed)

    def __call__(self, prefix: str) -> str:
        """Return a new id, such as "chatcmpl-…"."""
        return f"{prefix}{self._random.getrandbits(128):032x}"


new_id = _Ids()


def unix_time() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def as_list(texts: Texts) -> list[str | list[int]]:
    """Return the texts of a request, each a string or a list of tokens.

    >>> as_list([1, 2]), as_list(["a", "b"])
    ([[1, 2]], ['a', 'b'])
    """
    if isinstance(texts, str) or (texts and isinstance(texts[0], int)):
        return [texts]
    return list(texts)  # type: ignore[arg-type]  # a list of texts


class ResponseModel(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(protected_namespaces=(), defer_build=True)

    always_sent: ClassVar[tuple[str, ...]] = ()
    """Fields that are sent as null when they are None. Other fields are omitted."""

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in self.always_sent:
            fields.setdefault(name, None)
        return fields

    def to_json(self) -> str:
        """Return the JSON text that clients receive."""
        return self.model_dump_json(exclude_none=True)


class ErrorInfo(ResponseModel):
    """An error in OpenAI's format.

    Args:
        message: What happened, and what to do.
        type: The kind of error, such as "invalid_request_error".
        param: The field of the request that caused it.
        code: A code for programs, such as "model_not_found".
    """

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None

    always_sent = ("param", "code")


class ErrorResponse(ResponseModel):
    """The body of a response that is an error.

    Args:
        error: The error.
        status: The HTTP status.
        retry_after: Seconds after which the client may try again.
    """

    error: ErrorInfo
    status: int = Field(default=500, exclude=True)
    retry_after: int | None = Field(default=None, exclude=True)


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        message: What happened, and what to do.
        status: The HTTP status.
        param: The field of the request that caused it.
        code: A code for programs.
        type: The kind of error. By default, the status determines it.
        retry_after: Seconds after which the client may try again.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.type = (
            type or _ERROR_TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")
        )
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (
            self.message,
            self.status,
            self.param,
            self.code,
            self.type,
            self.retry_after,
        )

    @property
    def response(self) -> ErrorResponse:
        """The error as a response."""
        info = ErrorInfo(message=self.message, type=self.type, param=self.param, code=self.code)
        return ErrorResponse(error=info, status=self.status, retry_after=self.retry_after)


_ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


def _rebuild_error(
    message: str, status: int, param: str | None, code: str | None, type: str, retry_after: int | None
) -> RequestError:
    return RequestError(message, status, param=param, code=code, type=type, retry_after=retry_after)


class RequestModel(BaseModel):
    """A request, or a part of one, that rejects unknown fields and names the nearest known one."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if cls.__module__.startswith("skate."):
            declare_importable(cls)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_fields(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            known = _known_fields(cls)
            for name in given:
                if name not in known:
                    hint = arguments.hint_for_unknown(str(name)[:64], list(known))
                    raise PydanticCustomError(
                        "unknown_field",
                        "There is no field {name}. {hint}",
                        {"name": repr(str(name)[:64]), "hint": hint, "field": str(name)[:64]},
                    )
        return given

    @classmethod
    def parse(cls, given: Any) -> Self:
        """Return the request that a dictionary describes.

        Raises:
            RequestError: If it is invalid.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise _describe(error) from None


@functools.cache
def _known_fields(kind: type[RequestModel]) -> dict[str, None]:
    """Return the names of a request's fields, as clients write them, in order."""
    return dict.fromkeys(field.alias or name for name, field in kind.model_fields.items())


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        RequestError: If the body is not a JSON object.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(given, dict):
        raise RequestError(f"The body must be a JSON object, got {_json_type(given)}.")
    if body.count(b"[") + body.count(b"{") > _MAX_BODY_DEPTH:  # otherwise, it cannot be too deep
        _check_depth(given)
    return given


def _check_depth(value: Any) -> None:
    """Reject a body that is nested so deeply that recursive code might fail on it."""
    level = [value]
    for _ in range(_MAX_BODY_DEPTH):
        level = [
            child
            for each in level
            for child in (each.values() if type(each) is dict else each)
            if type(child) in _CONTAINERS
        ]
        if not level:
            return
    raise RequestError(f"The body is nested more than {_MAX_BODY_DEPTH} levels deep.")


def _json_type(value: Any) -> str:
    names = {str: "a string", list: "an array", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _describe(error: ValidationError) -> RequestError:
    """Return an error that describes the first problem of a request, with the path of its field."""
    details = error.errors(include_url=False)
    # For a union, an error about a field of one member explains more than an error about the type of another.
    specific = [each for kind in ("unknown_field", "value_error") for each in details if each["type"] == kind]
    first = (specific or details)[0]
    path = _path(first)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return RequestError(f"The field `{path}` is missing.", param=path)
    if first["type"] == "unknown_field":
        where = f" in `{path}`" if path else ""
        name = first["ctx"]["field"]
        return RequestError(
            message.replace(". ", f"{where}. ", 1),
            param=f"{path}.{name}" if path else name,
            code="unknown_parameter",
        )
    if first["type"] == "value_error" and not path:
        return RequestError(message)
    return RequestError(
        f"`{path}`: {message}, got {arguments.shown(first['input'])[:200]}.", param=path or None
    )


def _path(error: ErrorDetails) -> str:
    """Return the path of a field as JavaScript writes it, without pydantic's names for members of unions."""
    written = ""
    for part in error["loc"]:
        if isinstance(part, int):
            written += f"[{part}]"
        elif part.isidentifier() and not part[0].isupper() and part not in ("str", "int", "float", "bool"):
            written += f".{part}"
    return written.removeprefix(".")


@dataclass(frozen=True, slots=True)
class RawRequestInfo:
    """The HTTP request that a call comes from.

    Args:
        headers: Its headers, with names in lower case.
        received: When it arrived, by `time.time()`; 0 if it did not come over HTTP.
    """

    headers: dict[str, str] = field(default_factory=dict)
    received: float = 0.0

    def __reduce__(self) -> tuple[Any, ...]:  # faster than the method of frozen dataclasses
        return RawRequestInfo, (self.headers, self.received)


declare_importable(RawRequestInfo)


class PromptTokensDetails(ResponseModel):
    """How many tokens of the prompt were cached."""

    cached_tokens: int = 0


class CompletionTokensDetails(ResponseModel):
    """How many generated tokens were reasoning."""

    reasoning_tokens: int = 0


class UsageInfo(ResponseModel):
    """The number of tokens that a request used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class Timing(ResponseModel):
    """Where the time of a request went, in seconds.

    Args:
        queue: Waiting for a replica and in its engine's queue.
        prefill: Processing the prompt.
        transfer: Handing over its keys and values, if another engine has processed it.
        decode: Generating tokens after the first one.
        server: Everything else: parsing, tokenizing, and writing the answer.
    """

    queue: float
    prefill: float
    transfer: float | None = None
    decode: float
    server: float

    @field_validator("*")
    @classmethod
    def _round(cls, value: float | None) -> float | None:
        return None if value is None else round(max(0.0, value), 6)

    @property
    def header(self) -> str:
        """The value of the header `Server-Timing`, in milliseconds."""
        return ", ".join(
            f"{name};dur={1000 * value:.3f}" for name, value in self.model_dump(exclude_none=True).items()
        )
