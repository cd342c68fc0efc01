"""The text of errors about arguments: the parameter, the valid values, and the given value."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["message", "shown"]

_LONGEST: Final = 80  # characters of a string, or of an object of an unknown class
_MOST: Final = 8  # elements of a list, a tuple or a dict


def message(name: str, right: str, value: Any) -> str:
    """Return the text of an error about an argument.

    >>> message("num_replicas", "a positive integer", "many")
    "`num_replicas` must be a positive integer, got 'many' (str)."
    """
    return f"`{name}` must be {right}, got {shown(value)}."


def shown(value: Any) -> str:
    """Return a value for an error message: its representation, shortened if it is long, and its type.

    A representation of several lines, such as a table, is left out.

    >>> shown("many"), shown(None), shown(True), shown(int)
    ("'many' (str)", 'None', 'True', 'the class int')
    """
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    import reprlib  # used for errors only

    short = reprlib.Repr()
    short.maxstring = short.maxother = _LONGEST
    short.maxlist = short.maxtuple = short.maxdict = _MOST
    text = short.repr(value)
    return f"a value of type {type(value).__name__}" if "\n" in text else f"{text} ({type(value).__name__})"
