"""Values of options: objects in JSON, and files in YAML."""

from __future__ import annotations

import json
from typing import Any

import click


def json_object(option: str, text: str | None) -> dict[str, Any]:
    """Return the value of an option that is an object in JSON; empty if it is not given."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{text!r} is not JSON: {error}", param_hint=option) from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{text!r} is JSON, but not an object", param_hint=option)
    return found


def yaml_mapping(option: str, path: str | None) -> dict[str, Any]:
    """Return the mapping in the YAML file that an option names; empty if it is not given."""
    if path is None:
        return {}
    try:
        import yaml  # type: ignore[import-untyped]  # no stubs
    except ImportError:
        raise click.ClickException(
            f"{option} needs pyyaml: pip install pyyaml, or use an option that takes the values themselves."
        ) from None
    with open(path, encoding="utf-8") as file:
        try:
            found = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise click.BadParameter(f"{path} is not YAML: {error}", param_hint=option) from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{path} is YAML, but not a mapping", param_hint=option)
    return found
