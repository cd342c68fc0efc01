"""Validation of the fields of a runtime environment; each function returns the normalized value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from skate._base.runtime_envs.fields import (
    ARCHIVE_SUFFIXES,
    URI_SCHEMES,
    WHEEL_SUFFIX,
    field_hint,
    uri_scheme,
)


def check_env_vars(value: Any) -> dict[str, str] | None:
    """Return the variables, or None if there are none."""
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['env_vars'] must be a Dict[str, str], not {type(value).__name__}.")
    for name, text in value.items():
        for what, item in (("key", name), ("value", text)):
            if not isinstance(item, str):
                raise TypeError(
                    f"runtime_env['env_vars'] must be a Dict[str, str], but its {what} {item!r} is of type "
                    f"{type(item).__name__}."
                )
        if not name or "=" in name or "\0" in name + text:
            raise ValueError(
                f"runtime_env['env_vars'] has {name!r}: {text!r}, which is not valid in an environment"
            )
    return dict(value) or None


def check_working_dir(value: Any) -> str:
    """Return the directory, archive or URI as a string."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"`working_dir` must be a string or a path, not {value!r} ({type(value).__name__}).")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise TypeError(f"`working_dir` must be a string, got the bytes path {text!r}.")
    if uri_scheme(text) is not None:
        return _check_uri("working_dir", text, ARCHIVE_SUFFIXES)
    return _check_path("working_dir", text, ARCHIVE_SUFFIXES)


def check_py_modules(value: Any) -> list[str]:
    """Return the list of packages, modules, wheels, archives or URIs as strings."""
    if isinstance(value, (str, os.PathLike)) or not isinstance(value, (list, tuple)):
        raise TypeError(
            f"`py_modules` must be a list of strings or modules, not {value!r} ({type(value).__name__})."
        )
    return [_check_py_module(item) for item in value]


def _check_py_module(item: Any) -> str:
    if hasattr(item, "__path__") and hasattr(item, "__name__"):
        # An imported package stands for its own folder.
        item = next(iter(item.__path__))
    if not isinstance(item, (str, os.PathLike)):
        raise TypeError(
            f"`py_modules` must be a list of strings or modules, but {item!r} is of type {type(item).__name__}."
        )
    text = str(os.fspath(item))
    suffixes = (*ARCHIVE_SUFFIXES, WHEEL_SUFFIX)
    if uri_scheme(text) is not None:
        return _check_uri("py_modules", text, suffixes)
    return _check_path("py_modules", text, (*suffixes, ".py"))


def _check_uri(field: str, text: str, suffixes: tuple[str, ...]) -> str:
    if uri_scheme(text) not in URI_SCHEMES:
        raise ValueError(f"{text} is not a valid URI for `{field}`. Schemes: {', '.join(URI_SCHEMES)}.")
    if not text.endswith(suffixes):
        raise ValueError(
            f"Only {', '.join(suffixes)} files are supported for {field} URIs; got {text}. "
            "Pack the files into one of these."
        )
    return text


def _check_path(field: str, text: str, suffixes: tuple[str, ...]) -> str:
    path = os.path.expanduser(text)
    if not text or not os.path.exists(path):
        raise ValueError(f"{text!r} is not a valid path for `{field}`: it does not exist.")
    if not os.path.isdir(path) and not path.endswith(suffixes):
        raise ValueError(
            f"{text!r} is not a valid path for `{field}`: give a directory or a {' or '.join(suffixes)} file."
        )
    return path


def check_excludes(value: Any) -> list[str] | None:
    """Return the patterns, or None if there are none."""
    return _strings("excludes", value) or None


def check_preload(value: Any) -> list[str] | None:
    """Return the names of modules, or None if there are none."""
    names = _strings("preload", value)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"runtime_env['preload'] has {name!r}, which is not a module name")
    return names or None


def check_pip(value: Any) -> dict[str, Any] | None:
    """Return ``{"packages": [...], "pip_check": ..., ...}``, or None without packages."""
    return _check_installer(
        "pip", value, flags=("pip_check",), texts=("pip_version",), lists=("pip_install_options",)
    )


def check_uv(value: Any) -> dict[str, Any] | None:
    """Return ``{"packages": [...], "uv_check": ..., ...}``, or None without packages."""
    return _check_installer(
        "uv", value, flags=("uv_check",), texts=("uv_version",), lists=("uv_pip_install_options",)
    )


def _check_installer(
    field: str, value: Any, *, flags: tuple[str, ...], texts: tuple[str, ...], lists: tuple[str, ...]
) -> dict[str, Any] | None:
    if isinstance(value, (str, os.PathLike)):
        return {"packages": _read_requirements(field, os.fspath(value)), **dict.fromkeys(flags, False)}
    if isinstance(value, (list, tuple)):
        value = {"packages": value}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"runtime_env['{field}'] must be a list of packages, the name of a file with them, or a dict, not "
            f"{value!r}."
        )
    allowed = ("packages", *flags, *texts, *lists)
    for key in value:
        if key not in allowed:
            raise ValueError(
                f"runtime_env['{field}'] can only have these fields: {', '.join(allowed)}, but got {key!r}. "
                f"{field_hint(str(key), allowed)}"
            )
    if "packages" not in value:
        raise ValueError(f"runtime_env['{field}'] must include field 'packages', but got {dict(value)}")
    packages = value["packages"]
    if isinstance(packages, (str, os.PathLike)):
        packages = _read_requirements(field, os.fspath(packages))
    # Duplicates count once.
    result: dict[str, Any] = {"packages": list(dict.fromkeys(_strings(f"{field}['packages']", packages)))}
    for key in flags:
        result[key] = value.get(key, False)
        if not isinstance(result[key], bool):
            raise TypeError(f"runtime_env['{field}']['{key}'] must be of type bool, got {type(result[key])}")
    for key in texts:
        if key in value:
            if not isinstance(value[key], str):
                raise TypeError(
                    f"runtime_env['{field}']['{key}'] must be of type str, got {type(value[key])}"
                )
            result[key] = value[key]
    for key in lists:
        if key in value:
            result[key] = _strings(f"{field}']['{key}", value[key])
    return result if result["packages"] else None


def _read_requirements(field: str, path: str) -> list[str]:
    # Read here, because the path is only valid where it was written.
    expanded = os.path.expanduser(path)
    if not os.path.isfile(expanded):
        raise ValueError(
            f"{path!r} is not a valid file: runtime_env['{field}'] names a requirements file that does not exist"
        )
    with open(expanded, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [line for line in lines if line and not line.startswith("#")]


def check_conda(value: Any) -> str | dict[str, Any]:
    """Return the name or prefix of an environment, or the contents of an environment file."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"runtime_env['conda'] must be of type dict or str, got {type(value)}")
    text = os.fspath(value)
    assert isinstance(text, str)
    if not text.endswith((".yml", ".yaml")):
        return text
    path = os.path.expanduser(text)
    if not os.path.isfile(path):
        raise ValueError(f"Can't find conda YAML file {text}.")
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("Reading a conda environment file needs PyYAML: pip install pyyaml") from error
    with open(path, encoding="utf-8") as file:
        try:
            contents = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"Failed to read conda file {text}: {error}.") from error
    if not isinstance(contents, dict):
        raise ValueError(
            f"Failed to read conda file {text}: it holds a {type(contents).__name__}, not a mapping."
        )
    return contents


def check_py_executable(value: Any) -> str:
    """Return the command that starts Python."""
    if not isinstance(value, str):
        raise TypeError(f"runtime_env['py_executable'] must be a string, got {type(value)}")
    if not value.strip():
        raise ValueError("runtime_env['py_executable'] is empty; name the command that starts Python")
    return value


def check_setup_hook(value: Any) -> str | Callable[[], Any]:
    """Return the function, or the dotted name of one, that each worker calls when it starts."""
    if isinstance(value, str) or callable(value):
        return value  # type: ignore[no-any-return]
    raise TypeError(
        f"`worker_process_setup_hook` must be a function or its name, 'module.function', not {value!r}."
    )


def check_container(value: Any) -> dict[str, Any]:
    """Return the description of a container."""
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['container'] must be of type dict, got {type(value)}")
    return dict(value)


def _strings(field: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"runtime_env['{field}'] must be of type list[str], got {value!r}")
    return list(value)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "conda": check_conda,
    "container": check_container,
    "env_vars": check_env_vars,
    "excludes": check_excludes,
    "pip": check_pip,
    "preload": check_preload,
    "py_executable": check_py_executable,
    "py_modules": check_py_modules,
    "uv": check_uv,
    "worker_process_setup_hook": check_setup_hook,
    "working_dir": check_working_dir,
}
