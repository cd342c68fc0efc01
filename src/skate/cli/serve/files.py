"""Input and output of `skate serve`: configuration files, arguments and runtime environments."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from skate.air._optional import load

if TYPE_CHECKING:
    from skate.serve.schema import ServeDeploySchema

_COLOURS = re.compile(r"\x1B(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")


def pairs(arguments: tuple[str, ...]) -> dict[str, str]:
    """Return `key=value` arguments as a dict.

    >>> pairs(("size=3", "path=a=b"))
    {'size': '3', 'path': 'a=b'}
    """
    found = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if not key or not value:
            raise click.ClickException(
                f"Invalid application argument '{argument}': write each of them as key=value, without spaces."
            )
        found[key] = value
    return found


def is_file(target: str) -> bool:
    """Return whether a target is a configuration file instead of an import path."""
    if os.path.isfile(target):
        if target.endswith(".py"):
            module = os.path.basename(target).removesuffix(".py")
            raise click.ClickException(
                f"{target!r} is a program: name the application in it, like {module}:app."
            )
        return True
    if target.endswith((".yaml", ".yml")):
        raise click.ClickException(f"The file {target!r} does not exist.")
    return False


def read_config(path: str) -> ServeDeploySchema:
    """Read a configuration file."""
    from pydantic import ValidationError

    from skate.serve.schema import ServeDeploySchema

    found = read_yaml(path)
    if not isinstance(found, dict) or "applications" not in found:
        raise click.ClickException(
            f"{path} is not a configuration file of Serve: it has no `applications:`. `skate serve build` writes one."
        )
    try:
        config = ServeDeploySchema.model_validate(found)
        for app in config.applications:
            if app.runtime_env:
                app.runtime_env = with_absolute_paths(app.runtime_env)
        return config
    except ValidationError as error:
        raise click.ClickException(f"{path} cannot be deployed.\nValidationError: {error}") from None


def read_yaml(path: str) -> Any:
    """Read a YAML file."""
    yaml = load("yaml", "skate serve", "pyyaml")
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path} is not valid YAML: {error}") from None


def environment(path: str | None, text: str | None, working_dir: str | None) -> dict[str, Any]:
    """Return the runtime environment from command-line options."""
    if path is not None and text is not None:
        raise click.UsageError("Only one of them can be given: --runtime-env or --runtime-env-json.")
    found: Any = {}
    if path is not None:
        found = read_yaml(path)
    elif text is not None:
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise click.BadParameter(
                f"{text!r} is not valid JSON: {error}", param_hint="--runtime-env-json"
            ) from error
    if not isinstance(found, dict):
        raise click.UsageError(f"A runtime environment must be a mapping, got {found!r}.")
    if working_dir is not None:
        found = {**found, "working_dir": working_dir}
    return with_absolute_paths(found)


def with_absolute_paths(env: dict[str, Any]) -> dict[str, Any]:
    """Return a runtime environment with absolute paths of folders."""
    whole = dict(env)
    if isinstance(folder := env.get("working_dir"), str):
        whole["working_dir"] = _absolute(folder)
    if isinstance(modules := env.get("py_modules"), list):
        whole["py_modules"] = [_absolute(each) if isinstance(each, str) else each for each in modules]
    return whole


def _absolute(path: str) -> str:
    return os.path.abspath(path) if os.path.exists(path) else path


def as_yaml(value: Any) -> str:
    """Return a value as YAML, with keys in order and multi-line strings as blocks."""
    yaml = load("yaml", "skate serve", "pyyaml")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]  # an optional module has no types here
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def write_text(dumper: Any, text: str) -> Any:
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        style = "|" if "\n" in lines else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", lines if style else text, style=style)

    Dumper.add_representer(str, write_text)
    return str(
        yaml.dump(_plain(value), Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    )


def _plain(value: Any) -> Any:
    """Return a value as types that YAML supports."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(exclude_unset=True))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        return without_colours(value)
    return value if value is None or isinstance(value, int | float) else str(value)


def without_colours(text: str) -> str:
    """Return a text without ANSI escape sequences."""
    return _COLOURS.sub("", text)
