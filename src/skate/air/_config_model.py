"""The base class of configurations that are pydantic models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from skate.air import _arguments as arguments

__all__ = ["ConfigModel"]


class ConfigModel(BaseModel):
    """A frozen model that rejects unknown fields and names the nearest known one."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        arbitrary_types_allowed=True,
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_fields(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for name in given:
                if name not in cls.model_fields:
                    hint = arguments.hint_for_unknown(str(name), cls.model_fields)
                    raise ValueError(f"{cls.__name__} has no field {name!r}. {hint}")
        return given

    @classmethod
    def parse_yaml(cls, file: str | IO[Any]) -> Self:
        """Return the model that a YAML text or an open YAML file describes.

        Args:
            file: The text or the file.
        """
        import yaml  # type: ignore[import-untyped]  # no stubs

        return cls.model_validate(yaml.safe_load(file))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model that a YAML file describes.

        Args:
            path: The path of the file.
        """
        with open(path, encoding="utf-8") as file:
            return cls.parse_yaml(file)
