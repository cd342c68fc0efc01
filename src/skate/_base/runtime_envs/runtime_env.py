"""The typed form of ``runtime_env={...}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from skate._base.runtime_envs.config import RuntimeEnvConfig
from skate._base.runtime_envs.fields import CARRIED, INSTALLERS, KNOWN, RENAMED, check_known, uri_scheme
from skate._base.runtime_envs.validation import CHECKS


class RuntimeEnv(dict[str, Any]):
    """Describe what a job, a task or an actor needs around its code.

    It is a dict that checks its fields; a plain dict with the same keys means the same.

    Args:
        py_modules: Packages, modules, wheels or archives (paths or URIs) to make importable.
        py_executable: Command that starts Python, in place of the driver's own.
        working_dir: Directory or archive (path or URI) to run in; its files are copied at that time.
        pip: Packages to install, a requirements file, or a dict with ``packages``, ``pip_check``,
            ``pip_version`` and ``pip_install_options``.
        conda: Name or prefix of a conda environment, an environment file, or its contents.
        container: Container to run in; only on a Ray cluster.
        env_vars: Environment variables. ``"${PATH}:/more"`` extends one.
        worker_process_setup_hook: Function, or its dotted name, that each worker calls when it starts.
        nsight: Settings of NVIDIA's profiler; only on a Ray cluster.
        rocprof_sys: Settings of AMD's profiler; only on a Ray cluster.
        config: How the environment is set up, see ``RuntimeEnvConfig``.
        image_uri: Image to run in; only on a Ray cluster.
        uv: Like ``pip``, installed with uv: ``packages``, ``uv_check``, ``uv_version`` and
            ``uv_pip_install_options``.
        preload: Modules that are imported once, in the process that the workers are forked from: they start without
            importing them again. A module must not start threads or use a GPU when it is imported.
        excludes: Patterns, as in ``.gitignore``, of files to leave out of ``working_dir`` and ``py_modules``.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: There is no such field, fields exclude each other, or a path is not there.

    Example:
        >>> env = RuntimeEnv(env_vars={"OMP_NUM_THREADS": "1"})
        >>> env["env_vars"]
        {'OMP_NUM_THREADS': '1'}
        >>> RuntimeEnv(env_var={"A": "1"})
        Traceback (most recent call last):
        ...
        ValueError: runtime_env has no field 'env_var'. Did you mean 'env_vars'?
    """

    # Where users find it.
    __module__ = "skate.runtime_env"

    known_fields: ClassVar[frozenset[str]] = KNOWN
    extensions_fields: ClassVar[frozenset[str]] = CARRIED

    def __init__(
        self,
        *,
        py_modules: list[str] | None = None,
        py_executable: str | None = None,
        working_dir: str | None = None,
        pip: list[str] | str | dict[str, Any] | None = None,
        conda: dict[str, Any] | str | None = None,
        container: dict[str, Any] | None = None,
        env_vars: dict[str, str] | None = None,
        worker_process_setup_hook: Callable[[], Any] | str | None = None,
        nsight: str | dict[str, str] | None = None,
        rocprof_sys: str | dict[str, dict[str, str]] | None = None,
        config: dict[str, Any] | RuntimeEnvConfig | None = None,
        _validate: bool = True,
        image_uri: str | None = None,
        uv: list[str] | str | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        fields = {
            "py_modules": py_modules,
            "py_executable": py_executable,
            "working_dir": working_dir,
            "pip": pip,
            "conda": conda,
            "container": container,
            "env_vars": env_vars,
            "worker_process_setup_hook": worker_process_setup_hook,
            "nsight": nsight,
            "rocprof_sys": rocprof_sys,
            "config": config,
            "image_uri": image_uri,
            "uv": uv,
            **kwargs,
        }
        fields = {RENAMED.get(name, name): value for name, value in fields.items() if value is not None}
        if not _validate:
            self.update(fields)
            return
        for name in fields:
            check_known(name)
        for name, value in fields.items():
            self[name] = value
        self._check_combinations()
        if self.has_pip() or self.has_conda():
            # Ray marks environments that it installs itself into; programs and tests look for the mark.
            self.setdefault("_ray_commit", "skate")

    def _check_combinations(self) -> None:
        given = [name for name in INSTALLERS if name in self]
        if len(given) > 1:
            raise ValueError(
                f"runtime_env has {' and '.join(given)}, but only one of pip, uv and conda can install its packages. "
                "Keep one; a conda file can list pip packages."
            )
        if "container" in self:
            others = set(self) - {"container", "config", "env_vars"}
            if others:
                raise ValueError(
                    "runtime_env has a 'container' field, and a container takes no other settings. Build "
                    f"{', '.join(sorted(others))} into the image."
                )

    def __setitem__(self, key: str, value: Any) -> None:
        key = RENAMED.get(key, key)
        if hasattr(value, "__dataclass_fields__"):
            # Imported late: few environments hold dataclasses, and importing their module is slow.
            from skate._base.runtime_envs.conversion import to_plain

            value = to_plain(value)
        if key == "config":
            value = RuntimeEnvConfig.parse_and_validate_runtime_env_config(value)
        elif key in CHECKS:
            value = CHECKS[key](value)
        if value is None:
            self.pop(key, None)
        else:
            super().__setitem__(key, value)

    def set(self, name: str, value: Any) -> None:
        """Set a field, known or not, to a plain value or a dataclass instance.

        Args:
            name: The field. A field that Skate does not know is kept, and refused when it is used.
            value: The value.
        """
        self[name] = value

    def get(self, name: str, default: Any = None, data_class: Any = None) -> Any:
        """Return a field, optionally as an instance of a dataclass.

        Args:
            name: The field.
            default: The value to return if it is not set.
            data_class: Class to build from the value.
        """
        if name not in self:
            return default
        value = self[name]
        if data_class is None:
            return value
        from skate._base.runtime_envs.conversion import to_dataclass

        return to_dataclass(data_class, value)

    def has(self, name: str) -> bool:
        """Return whether a field is set."""
        return name in self

    def to_dict(self) -> dict[str, Any]:
        """Return the environment as plain dicts and lists, as a deep copy."""
        import copy

        plain = {
            name: dict(value) if isinstance(value, RuntimeEnvConfig) else value
            for name, value in self.items()
        }
        return copy.deepcopy(plain)

    def serialize(self) -> str:
        """Return the environment as JSON; equal environments have equal texts.

        Raises:
            TypeError: A field has no form in JSON, such as a function.
        """
        try:
            return json.dumps(self.to_dict(), sort_keys=True)
        except TypeError as error:
            bad = [name for name, value in self.items() if not _has_json_form(value)]
            raise TypeError(
                f"runtime_env cannot be written as JSON because of {', '.join(bad)}: {error}. "
                "A setup hook can be given by its name, 'module.function'."
            ) from error

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        """Return the environment from the text of ``serialize``."""
        fields: dict[str, Any] = json.loads(serialized_runtime_env)
        return cls.restore(fields)

    @classmethod
    def restore(cls, fields: Mapping[str, Any]) -> RuntimeEnv:
        """Create an environment from validated fields, possibly of another machine."""
        env = cls()
        # Not through __setitem__: a validated path may not exist here.
        dict.update(env, fields)
        if "config" in env and not isinstance(env["config"], RuntimeEnvConfig):
            dict.__setitem__(env, "config", RuntimeEnvConfig(**env["config"]))
        return env

    def __reduce__(self) -> Any:
        return type(self).restore, (dict(self),)

    # The rest are Ray's accessors, one for each field.

    def has_working_dir(self) -> bool:
        """Return whether a working directory is set."""
        return self.has("working_dir")

    def working_dir(self) -> str:
        """Return the working directory, or an empty string."""
        return str(self.get("working_dir", ""))

    def working_dir_uri(self) -> str | None:
        """Return the working directory if it is set, as a path or URI."""
        return None if "working_dir" not in self else str(self["working_dir"])

    def py_modules(self) -> list[str]:
        """Return the modules to make importable."""
        return list(self.get("py_modules", ()))

    def py_modules_uris(self) -> list[str]:
        """Return the modules that are given as URIs."""
        return [item for item in self.py_modules() if uri_scheme(item) is not None]

    def py_executable(self) -> str | None:
        """Return the command that starts Python, if one is set."""
        value: str | None = self.get("py_executable")
        return value

    def env_vars(self) -> dict[str, str]:
        """Return the environment variables."""
        return dict(self.get("env_vars", {}))

    def has_pip(self) -> bool:
        """Return whether packages are to be installed with pip."""
        return self.has("pip")

    def pip_config(self) -> dict[str, Any]:
        """Return the settings of the installation with pip."""
        return dict(self.get("pip", {}))

    def has_uv(self) -> bool:
        """Return whether packages are to be installed with uv."""
        return self.has("uv")

    def uv_config(self) -> dict[str, Any]:
        """Return the settings of the installation with uv."""
        return dict(self.get("uv", {}))

    def has_conda(self) -> bool:
        """Return whether a conda environment is used."""
        return self.has("conda")

    def conda_env_name(self) -> str | None:
        """Return the name of an existing conda environment, if it is used."""
        value = self.get("conda")
        return value if isinstance(value, str) else None

    def conda_config(self) -> str | None:
        """Return, as JSON, the contents of the conda environment to create, if any."""
        value = self.get("conda")
        return json.dumps(value, sort_keys=True) if isinstance(value, dict) else None

    def has_py_container(self) -> bool:
        """Return whether a container is requested."""
        return self.has("container")

    def image_uri(self) -> str | None:
        """Return the image to run in, if one is set."""
        value: str | None = self.get("image_uri")
        return value

    def nsight(self) -> str | dict[str, str] | None:
        """Return the settings of NVIDIA's profiler, if any."""
        value: str | dict[str, str] | None = self.get("_nsight")
        return value

    def rocprof_sys(self) -> str | dict[str, dict[str, str]] | None:
        """Return the settings of AMD's profiler, if any."""
        value: str | dict[str, dict[str, str]] | None = self.get("_rocprof_sys")
        return value

    def java_jars(self) -> list[str]:
        """Return the Java archives to load."""
        return list(self.get("java_jars", ()))

    def get_extension(self, key: str) -> str | None:
        """Return a field about the installation of Ray itself.

        Raises:
            ValueError: The field is another one.
        """
        if key not in CARRIED:
            raise ValueError(f"get_extension() takes one of {', '.join(sorted(CARRIED))}, not {key!r}.")
        value: str | None = self.get(key)
        return value

    def plugins(self) -> list[tuple[str, Any]]:
        """Return the fields that Skate does not know."""
        return [(name, value) for name, value in self.items() if name not in KNOWN]


def _has_json_form(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
