"""What all models of Serve's configuration share."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from skate.serve._config.problems import in_plain_words
from skate.serve._config.wording import closest

# Two words this alike are one word and a slip of the finger.
_ALIKE = 0.75


class ServeModel(BaseModel):
    """A model that refuses misspelt names, and names that mean nothing any more.

    Other unknown names are ignored, as in Ray: a file may be written for a newer version. `removed` says, for each
    name that had a meaning once, what to write instead.
    """

    model_config = ConfigDict(defer_build=True)  # most programs need few of them

    removed: ClassVar[dict[str, str]] = {}

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise in_plain_words(error, fields) from None

    # Pydantic would call it for models inside of others, too, whose errors the outermost one puts into words.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Return a model made of a dictionary.

        Raises:
            ValidationError: A field is wrong; says what it must be. It is a ValueError.
        """
        return cls._validated(obj, None, **options)

    @classmethod
    def _validated(cls, given: Any, title: str | None, **options: Any) -> Self:
        """Return a model made of a dictionary; `title` is what the error calls it."""
        try:
            return super().model_validate(given, **options)
        except ValidationError as error:
            raise in_plain_words(error, given, title) from None

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
            if cls.model_config.get("extra") == "forbid":
                raise ValueError(f"{cls.__name__} has no field {name!r}. {closest(name, known)}")
            if close := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
                raise ValueError(f"{cls.__name__} has no field {name!r}. Did you mean {close[0]!r}?")
        return given
