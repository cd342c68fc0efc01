"""Options of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Return the settings of a repeatable option, whose values are YAML.

    Raises:
        click.BadParameter: If one is not of the form KEY=VALUE, or its value is not YAML.
    """
    from skate.air import _optional

    settings: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not of the form KEY=VALUE.", param_hint=option)
        yaml = _optional.load("yaml", option, "pyyaml")
        try:
            settings[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise click.BadParameter(
                f"the value of {key} is not valid YAML: {error}", param_hint=option
            ) from error
    return settings
