"""Settings of a job: one driver and the work that it starts."""

from __future__ import annotations

from typing import Any, Self

from skate._base.logging_config import LoggingConfig

__all__ = ["JobConfig", "LoggingConfig"]

_LIFETIMES = ("detached", "non_detached")


class JobConfig:
    """Settings of a job, for `skate.init(job_config=...)`.

    Args:
        jvm_options: Accepted as in Ray; Skate runs no Java.
        code_search_path: Folders that workers import code from.
        runtime_env: The environment of all workers of the job.
        metadata: Strings that the state API shows with the job.
        ray_namespace: The namespace of named actors.
        default_actor_lifetime: "non_detached", or "detached" for actors that outlive the job.

    Raises:
        TypeError: `code_search_path` is not a list.
        ValueError: `default_actor_lifetime` is neither of these.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | tuple[str, ...] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        if code_search_path is not None and not isinstance(code_search_path, (list, tuple)):
            raise TypeError(
                f"The type of code search path is incorrect: {type(code_search_path)}. It must be a list."
            )
        self.jvm_options = list(jvm_options or [])
        self.code_search_path = list(code_search_path or [])
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.runtime_env: dict[str, Any] = {}
        self.py_logging_config: LoggingConfig | None = None
        self._client_job = _client_job
        self._disable_job_level_lineage_reconstruction = _disable_job_level_lineage_reconstruction
        self._py_driver_sys_path = list(_py_driver_sys_path or [])
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    @classmethod
    def from_json(cls, job_config_json: dict[str, Any]) -> Self:
        """Return the settings in a dictionary, such as one from a JSON file."""
        known = {
            name: job_config_json[name]
            for name in ("jvm_options", "code_search_path", "runtime_env", "metadata", "ray_namespace")
            if name in job_config_json
        }
        return cls(
            **known,
            _client_job=job_config_json.get("client_job", False),
            _py_driver_sys_path=job_config_json.get("py_driver_sys_path"),
        )

    @property
    def default_actor_lifetime(self) -> str:
        """The lifetime of actors created without one."""
        return self._default_actor_lifetime

    def set_metadata(self, key: str, value: str) -> None:
        """Add a string that the state API shows with the job."""
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Set the environment of all workers of the job.

        Args:
            runtime_env: The environment; None is the driver's own.
            validate: Whether to check it now instead of in `init`.
        """
        self.runtime_env = {} if runtime_env is None else runtime_env
        if validate:
            from skate.runtime_env import RuntimeEnv

            self.runtime_env = dict(RuntimeEnv(**self.runtime_env))

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Set the namespace of named actors."""
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Set the lifetime of actors created without one: "detached" or "non_detached"."""
        if default_actor_lifetime not in _LIFETIMES:
            raise ValueError(
                f"The default lifetime of actors is 'detached' or 'non_detached', not {default_actor_lifetime!r}."
            )
        self._default_actor_lifetime = default_actor_lifetime

    def set_py_logging_config(self, logging_config: LoggingConfig | None = None) -> None:
        """Set the logging config of the job."""
        self.py_logging_config = logging_config

    def ensure_logging_config(self, logging_config: dict[str, Any] | LoggingConfig | None = None) -> None:
        """Set the logging config, unless the job has one, to the given one or that of the environment."""
        if self.py_logging_config is not None:
            return
        if isinstance(logging_config, dict):
            logging_config = LoggingConfig.from_dict(logging_config)
        self.py_logging_config = logging_config or LoggingConfig.from_environment()

    def __repr__(self) -> str:
        return f"JobConfig(ray_namespace={self.ray_namespace!r}, metadata={self.metadata!r})"
