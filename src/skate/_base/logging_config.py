"""The logging configuration of a job: encoding, level, and additional fields."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from skate._base import variables
from skate._base.log_format import FORMATTERS, STANDARD_ATTRIBUTES


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler that `LoggingConfig.apply` created, and may replace."""


@dataclass
class LoggingConfig:
    """Structured logging of the driver and of all workers of a job, for `skate.init(logging_config=...)`.

    Args:
        encoding: "TEXT" or "JSON".
        log_level: The lowest level that is logged.
        additional_log_standard_attrs: Attributes of Python's log records to add, such as "name".

    Raises:
        ValueError: The encoding, the level or an attribute does not exist.

    >>> LoggingConfig(encoding="JSON", additional_log_standard_attrs=["name"]).log_level
    'INFO'
    """

    encoding: str = "TEXT"
    log_level: str | int = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in FORMATTERS:
            raise ValueError(f"Invalid encoding type: {self.encoding!r}. Use one of {', '.join(FORMATTERS)}.")
        level = self.log_level.upper() if isinstance(self.log_level, str) else self.log_level
        if level not in logging.getLevelNamesMapping() and not isinstance(level, int):
            raise ValueError(
                f"Invalid log level: {self.log_level}. "
                f"Valid levels are: {list(logging.getLevelNamesMapping())}"
            )
        for name in self.additional_log_standard_attrs:
            if name not in STANDARD_ATTRIBUTES:
                raise ValueError(
                    f"additional_log_standard_attrs has {name!r}, which is not an attribute of log records. "
                    f"Choose from {', '.join(sorted(STANDARD_ATTRIBUTES))}."
                )

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> Self:
        """Return the config from the dictionary of `to_dict`."""
        return cls(**config)

    def to_dict(self) -> dict[str, Any]:
        """Return the config as a dictionary that can be sent anywhere."""
        return asdict(self)

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the config from SKATE_LOGGING_CONFIG_ENCODING, or None."""
        encoding = variables.text("LOGGING_CONFIG_ENCODING")
        return cls(encoding=encoding) if encoding else None

    def apply(self) -> None:
        """Configure logging in this process: the root logger and Skate's logger."""
        level = self.log_level.upper() if isinstance(self.log_level, str) else self.log_level
        handler = _Handler()
        handler.setLevel(level)
        handler.setFormatter(FORMATTERS[self.encoding](self.additional_log_standard_attrs))
        for logger in (logging.getLogger(), logging.getLogger("skate")):
            # Other handlers, such as those of files and test tools, belong to the program.
            logger.handlers = [old for old in logger.handlers if type(old) not in _REPLACED]
            logger.addHandler(handler)
            logger.setLevel(level)
        logging.getLogger("skate").propagate = False


_REPLACED = (_Handler, logging.StreamHandler)
