"""The base class of configuration models, and plain error messages for validation errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from skate._base.suggestions import did_you_mean
from skate.air import _arguments as arguments
from skate.air._arguments import hint_for_unknown

# The similarity above which an unknown name counts as a typing error.
_SIMILARITY_CUTOFF = 0.75


class ServeModel(BaseModel):
    """A model that rejects misspelt and removed field names.

    Other unknown names are ignored, as in Ray, since a file may be written for a newer version. `removed` maps the
    names of former fields to advice on replacing them.
    """

    model_config = ConfigDict(defer_build=True)  # most programs use few of the models

    removed: ClassVar[dict[str, str]] = {}

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise simplify_error(error, fields) from None

    # Otherwise pydantic would call it for nested models too, whose errors the outermost model simplifies.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Return a model from a dictionary.

        Raises:
            ValidationError: If a field is invalid. It is a ValueError.
        """
        return cls._validated(obj, None, **options)

    @classmethod
    def _validated(cls, given: Any, title: str | None, **options: Any) -> Self:
        """Return a model from a dictionary; `title` names it in errors."""
        try:
            return super().model_validate(given, **options)
        except ValidationError as error:
            raise simplify_error(error, given, title) from None

    @model_validator(mode="before")
    @classmethod
    def _reject_misspelt_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        for name in given:
            if name in known or not isinstance(name, str):
                continue
            if name in cls.removed:
                raise ValueError(f"`{name}` in {cls.__name__} has been removed. {cls.removed[name]}")
            if cls.model_config.get("extra") == "forbid":
                raise ValueError(f"{cls.__name__} has no field {name!r}. {hint_for_unknown(name, known)}")
            if hint := did_you_mean(name, known, alike=_SIMILARITY_CUTOFF):
                raise ValueError(f"{cls.__name__} has no field {name!r}.{hint}")
        return given


_TYPES = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "tuple": "a list",
    "dict": "a dictionary",
    "mapping": "a dictionary",
    "callable": "a function or a class",
    "none": "None",
    "finite": "a finite number",
}
_Path = tuple[str | int, ...]


def simplify_error(error: ValidationError, given: Any, title: str | None = None) -> ValidationError:
    """Return an error that names each field, what it must be, and its value.

    Args:
        error: The error of pydantic.
        given: The validated input.
        title: The title of the error; pydantic's if not given.
    """
    expected: dict[_Path, list[str]] = {}
    lines: list[InitErrorDetails] = []
    for each in error.errors(include_url=False):
        path = _path(each, given)
        if (must := _expected(each)) is None:
            lines.append(_line(each["type"], path, each["input"], _message(each, path)))
        elif path in expected:
            expected[path].append(must)  # another type of a union
        else:
            expected[path] = [must]
            lines.append(_line(each["type"], path, each["input"], ""))
    for at, line in enumerate(lines):
        if (musts := expected.get(line["loc"])) and line["type"].message_template == "":  # type: ignore[union-attr]
            must = " or ".join(dict.fromkeys(musts))
            message = f"`{_shown(line['loc']) or error.title}` must be {must}, got {arguments.shown(line['input'])}."
            lines[at] = _line(line["type"].type, line["loc"], line["input"], message)  # type: ignore[union-attr]
    return ValidationError.from_exception_data(title or error.title, lines, hide_input=True)


def _line(kind: str, path: _Path, value: Any, message: str) -> InitErrorDetails:
    problem = PydanticCustomError(kind, message)
    return InitErrorDetails(type=problem, loc=path, input=value)


def _path(error: ErrorDetails, given: Any) -> _Path:
    """Return the path of a value, without pydantic's names for the members of a union."""
    path: list[str | int] = []
    for part in error["loc"]:
        if _has(given, part):
            given = given[part]
        elif error["type"] != "missing" or part != error["loc"][-1]:
            continue
        path.append(part)
    return tuple(path)


def _has(given: Any, part: str | int) -> bool:
    if isinstance(given, Mapping):
        return part in given
    return isinstance(given, Sequence) and isinstance(part, int) and part < len(given)


def _shown(path: _Path) -> str:
    """Return a path as Python code would write it.

    >>> _shown(("applications", 0, "name"))
    'applications[0].name'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _expected(error: ErrorDetails) -> str | None:
    """Return what a value must be, if its type or range determines it, else None."""
    kind, context = error["type"], error.get("ctx", {})
    if error["msg"].startswith("`"):
        return None  # a nested model has already simplified it
    if kind in ("is_type", "is_subclass_of"):
        return "a class"
    if kind in ("literal_error", "enum"):
        return str(context["expected"])
    if kind in ("model_type", "model_attributes_type", "dataclass_type"):
        return f"{_article(context['class_name'])} or a dictionary of its fields"
    if kind == "is_instance_of":
        return f"an instance of {context['class']}"
    if kind == "string_too_short":
        return "a string that is not empty"
    for limit, words in (
        ("gt", "greater than"),
        ("ge", "at least"),
        ("lt", "less than"),
        ("le", "at most"),
    ):
        if limit in context:
            return f"{words} {context[limit]:g}"
    word = kind.partition("_")[0]
    return _TYPES.get(word) if kind != "string_pattern_mismatch" else None


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUH' else 'a'} {name}"


def _message(error: ErrorDetails, path: _Path) -> str:
    if error["type"] == "missing":
        return f"`{_shown(path)}` is missing."
    if error["type"] == "extra_forbidden":
        return f"There is no field `{_shown(path)}`."
    return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
