"""How this Serve is watched: what `serve.start` was told about logs and traces, for every process of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skate._api import variables
from skate.serve._config import validation

__all__ = ["WatchOptions", "set_options", "watch_options"]

_EXPORTER = "SERVE_TRACING_EXPORTER_IMPORT_PATH"
_RATIO = "SERVE_TRACING_SAMPLING_RATIO"


@dataclass(frozen=True)
class WatchOptions:
    """Fields of `LoggingConfig` and `TracingConfig`, checked; None where nothing was said."""

    logging: dict[str, Any] | None = None
    tracing: dict[str, Any] | None = None

    @classmethod
    def of(
        cls, logging_config: Any, tracing_config: Any, environ: Mapping[str, str] = os.environ
    ) -> WatchOptions:
        """Check what a user gave; where that is nothing about traces, the environment may say something.

        Raises:
            ValueError: A field is wrong.
            ImportError: Traces are wanted, and OpenTelemetry is not installed.
        """
        if tracing_config is None:
            tracing_config = _from_environment(environ)
        if logging_config is None and tracing_config is None:
            return cls()
        from skate.serve.schema import LoggingConfig, TracingConfig

        logs = validation.validate_model("logging_config", LoggingConfig, _fields(logging_config))
        traces = validation.validate_model("tracing_config", TracingConfig, _fields(tracing_config))
        if traces is not None and traces.enabled:
            from skate.serve._watch.tracing import need_opentelemetry

            need_opentelemetry()
        return cls(
            logging=None if logs is None else logs.model_dump(),
            tracing=None if traces is None or not traces.enabled else traces.model_dump(),
        )


def _fields(given: Any) -> Any:
    return given.model_dump() if hasattr(given, "model_dump") else given


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any] | None:
    found = {name: value for name in (_EXPORTER, _RATIO) if (value := variables.text(name, environ))}
    if _EXPORTER not in found:
        return None
    ratio = {"sampling_ratio": float(found[_RATIO])} if _RATIO in found else {}
    return {"enabled": True, "exporter_import_path": found[_EXPORTER], **ratio}


_current = WatchOptions()


def set_options(options: WatchOptions) -> None:
    """Note the options in this process: the controller gives them to all that it starts."""
    global _current
    _current = options


def watch_options() -> WatchOptions:
    """Return the options of this process."""
    return _current
