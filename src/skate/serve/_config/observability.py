"""Options of logging and tracing."""

from __future__ import annotations

import logging
from enum import StrEnum
from zlib import crc32

from pydantic import ConfigDict, Field, field_validator

from skate.air._arguments import hint_for_unknown
from skate.serve._config import defaults
from skate.serve._config.model import ServeModel

_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
# Formatting a record adds `asctime` and `message`.
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}


class EncodingType(StrEnum):
    """The format of log lines."""

    TEXT = "TEXT"
    JSON = "JSON"


class LoggingConfig(ServeModel):
    """Options of logging.

    >>> from skate.serve.schema import LoggingConfig
    >>> LoggingConfig(log_level=10, encoding="JSON").log_level
    'DEBUG'
    """

    model_config = ConfigDict(extra="forbid")

    encoding: str | EncodingType = Field(default="TEXT", description="TEXT or JSON.")
    log_level: int | str = Field(default="INFO", description="The lowest level to write.")
    logs_dir: str | None = Field(
        default=None, description="The folder of the logs; a folder of the session if not given."
    )
    enable_access_log: bool = Field(default=True, description="Whether to log each request.")
    additional_log_standard_attrs: list[str] = Field(
        default_factory=list,
        description="Further attributes of Python's log records to include in JSON lines.",
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        if value not in list(EncodingType):
            raise ValueError(f"Got {value!r} for encoding. Encoding must be one of TEXT, JSON.")
        return EncodingType(value).value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: int | str) -> str:
        if isinstance(value, int):
            name = logging.getLevelName(value)
            if name not in _LEVELS:
                raise ValueError(
                    f"log_level {value} is not a level of `logging`: use 50, 40, 30, 20, 10 or 0."
                )
            return str(name)
        if value not in _LEVELS:
            raise ValueError(
                f"log_level {value!r} is not a level of `logging`: use one of {', '.join(_LEVELS)}."
            )
        return value

    @field_validator("additional_log_standard_attrs")
    @classmethod
    def _known_attributes(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in _RECORD_ATTRIBUTES:
                raise ValueError(
                    f"Unknown attribute {name!r} in additional_log_standard_attrs. "
                    f"{hint_for_unknown(name, _RECORD_ATTRIBUTES)}"
                )
        return list(dict.fromkeys(value))

    def _compute_hash(self) -> int:
        """Return a checksum of the configuration, which is the same in every process."""
        return crc32(self.model_dump_json().encode())


class TracingConfig(ServeModel):
    """Options of OpenTelemetry tracing."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = Field(default=False, description="Whether to create spans.")
    exporter_import_path: str = Field(
        default="",
        description="Import path of a function that returns span processors; empty for OpenTelemetry's default.",
    )
    sampling_ratio: float = Field(
        default=defaults.TRACING_SAMPLING_RATIO,
        description="The fraction of requests to trace, from 0.0 to 1.0.",
    )

    @field_validator("sampling_ratio")
    @classmethod
    def _is_a_part(cls, value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"sampling_ratio must be between 0.0 and 1.0, got {value}.")
        return value
