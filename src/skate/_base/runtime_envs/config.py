"""The setup of a runtime environment: time limit, eagerness, log files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from skate._base.runtime_envs.fields import field_hint

DEFAULT_SETUP_TIMEOUT_SECONDS = 600


class RuntimeEnvConfig(dict[str, Any]):
    """Say how a runtime environment is set up.

    Args:
        setup_timeout_seconds: How long setting it up may take; -1 for no limit.
        eager_install: Whether a job's environment is set up at its start, before the first task asks.
        log_files: Names of log files; carried along, without effect here.

    Example:
        >>> RuntimeEnvConfig(setup_timeout_seconds=30)["setup_timeout_seconds"]
        30
    """

    # Where users find it.
    __module__ = "skate.runtime_env"

    known_fields: ClassVar[frozenset[str]] = frozenset(
        {"setup_timeout_seconds", "eager_install", "log_files"}
    )

    def __init__(
        self,
        setup_timeout_seconds: int = DEFAULT_SETUP_TIMEOUT_SECONDS,
        eager_install: bool = True,
        log_files: list[str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(setup_timeout_seconds, int) or isinstance(setup_timeout_seconds, bool):
            raise TypeError(f"setup_timeout_seconds must be an integer, not {setup_timeout_seconds!r}.")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(
                f"setup_timeout_seconds must be positive, or -1 to wait without a limit; it is {setup_timeout_seconds}."
            )
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be True or False, not {eager_install!r}.")
        if log_files is not None and not (
            isinstance(log_files, list) and all(isinstance(name, str) for name in log_files)
        ):
            raise TypeError(
                f"log_files must be a list of strings, the names of files, or None. Got {log_files!r}."
            )
        self.update(
            setup_timeout_seconds=setup_timeout_seconds,
            eager_install=eager_install,
            log_files=list(log_files or ()),
        )

    @classmethod
    def default_config(cls) -> RuntimeEnvConfig:
        """Return the default settings."""
        return cls()

    @classmethod
    def parse_and_validate_runtime_env_config(
        cls, config: Mapping[str, Any] | RuntimeEnvConfig
    ) -> RuntimeEnvConfig:
        """Return the settings from a dict or a config.

        Raises:
            TypeError: It is neither, or a field has the wrong type.
            ValueError: A field is unknown, or its value is invalid.
        """
        if isinstance(config, RuntimeEnvConfig):
            return config
        if not isinstance(config, Mapping):
            raise TypeError(
                f"runtime_env['config'] must be a dict or a RuntimeEnvConfig, not {config!r} ({type(config).__name__})."
            )
        for name in config:
            if name not in cls.known_fields:
                raise ValueError(
                    f"runtime_env['config'] has no field {name!r}. {field_hint(name, cls.known_fields)}"
                )
        return cls(**config)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a plain dict."""
        return dict(self)

    def __reduce__(self) -> Any:
        return type(self), (self["setup_timeout_seconds"], self["eager_install"], self["log_files"])
