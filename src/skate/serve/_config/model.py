"""What all models of Serve's configuration share."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

# Two words this alike are one word and a slip of the finger.
_ALIKE = 0.85


class ServeModel(BaseModel):
    """A model that refuses misspelt names, and names that mean nothing any more.

    Other unknown names are ignored, as in Ray: a file may be written for a newer version. `removed` says, for each
    name that had a meaning once, what to write instead.
    """

    model_config = ConfigDict(defer_build=True)  # most programs need few of them

    removed: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_slips(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        for name in given:
            if name in known or not isinstance(name, str):
                continue
            if name in cls.removed:
                raise ValueError(f"`{name}` in {cls.__name__} has been removed. {cls.removed[name]}")
            if close := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
                raise ValueError(f"{cls.__name__} has no field {name!r}. Did you mean {close[0]!r}?")
        return given
