"""Make mistakes from signatures, and compare the errors they give with a table.

A table is a text file in `tables`, for people to read: each mistake with the error it gives. `python -m tests.misuse`
writes the tables again; read the difference before you commit it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from skate.exceptions import RayTaskError

TABLES: Final = Path(__file__).parent / "tables"

# Values that are wrong for a parameter whose annotation names one of these types, and none of the others.
WRONG: Final[dict[str, list[Any]]] = {
    "bool": [],  # any object has a truth value
    "int": ["three", -7, 1.5],
    "float": ["three", -7],
    "str": [3],
    "Path": [3],
    "Callable": [3, "name"],
    "Literal": ["misspelt"],
    "dict": [3, ["key"]],
    "Mapping": [3, ["key"]],
    "list": [3],
    "Sequence": [3],
    "Iterable": [3],
    "type": [3],
}

# What Python says when a wrong value reaches code that does not expect it.
RAW: Final = re.compile(
    r"object has no attribute '\w+'$|unsupported operand|not supported between instances|indices must be int"
    r"|object is not (callable|iterable|subscriptable|an iterator)|cannot be interpreted as an integer"
    r"|'NoneType' object|must be real number|internal error|invalid literal for int|could not convert string"
    r"|object does not support|argument of type"
)

_SCRUBBED: Final = (
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "<id>"),
    (re.compile(r"/tmp/[\w./-]+"), "<folder>"),
    (re.compile(r"\bpid=\d+"), "pid=…"),
    (re.compile(r"<unlocked _th\S+>"), "<a lock>"),
)


@dataclass(frozen=True)
class Mistake:
    """A wrong call.

    Attributes:
        function: The name of the function, as users write it.
        mistake: The wrong argument, such as "timeout='three'".
        make: Makes the mistake.
        named: Words of which the error must contain one: the parameter, and the value.
    """

    function: str
    mistake: str
    make: Callable[[], object]
    named: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.function}({self.mistake})"


def mistakes(
    name: str,
    function: Callable[..., Any] | Mapping[str, str],
    bound: Callable[[], Callable[..., Any]] | None = None,
    correct: Callable[[], Mapping[str, Any]] = dict,
    *,
    finish: Callable[[Any], object] = lambda result: result,
    wrong: Mapping[str, list[Any]] | None = None,
    valid: Mapping[str, Collection[Any]] | None = None,
    options: str | None = None,
) -> Iterator[Mistake]:
    """Yield a mistake for each parameter and each value that is wrong for it.

    Args:
        name: The name of the function, as users write it.
        function: The function, whose signature says what is wrong; or the annotation of each parameter.
        bound: Returns what to call, in a session; by default, the function itself.
        correct: Returns the arguments of a correct call, in a session.
        finish: Uses the result of the call, for functions whose mistakes show later.
        wrong: More values that are wrong, by parameter.
        valid: Values that are correct although the annotation does not say so, by parameter; all if it is empty.
        options: An option of the function, misspelt, for functions that take any keyword argument.
    """

    def make(argument: str, value: Any) -> Callable[[], object]:
        def call() -> object:
            arguments = {**correct(), argument: value}
            target: Any = bound() if bound is not None else function
            return finish(target(**arguments))

        return call

    wrong, valid = wrong or {}, valid or {}
    annotations = function if isinstance(function, Mapping) else annotations_of(function)
    values = {parameter: values_wrong_for(annotation) for parameter, annotation in annotations.items()}
    for parameter, more in wrong.items():
        values[parameter] = [*values.get(parameter, []), *more]
    for parameter, each in values.items():
        for value in [value for at, value in enumerate(each) if repr(value) not in map(repr, each[:at])]:
            if parameter in valid and (not valid[parameter] or value in valid[parameter]):
                continue
            named = (
                parameter,
                *(word for leaf in _leaves(value) for word in (repr(leaf), type(leaf).__name__)),
            )
            yield Mistake(name, f"{parameter}={value!r}", make(parameter, value), named)
    if options is not None:
        yield Mistake(name, f"{options}=1", make(options, 1), (options,))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values inside of a value."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _leaves(each)
    elif isinstance(value, list) and value:
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def annotations_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the annotation of each public parameter of a function."""
    return {
        parameter.name: str(parameter.annotation)
        for parameter in inspect.signature(function).parameters.values()
        if not parameter.name.startswith("_")
        and parameter.name not in ("self", "cls")
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def values_wrong_for(annotation: str) -> list[Any]:
    """Return values that an annotation excludes, and numbers that are out of range."""
    kinds = kinds_of(annotation)
    if not kinds or not kinds <= {*WRONG, "None"}:
        return []  # any object may be correct
    found = [value for kind in sorted(kinds - {"None"}) for value in WRONG[kind]]
    fitting = {
        "int": int,
        "float": (int, float),
        "str": str,
        "list": list,
        "Sequence": (list, str),
        "bool": bool,
    }
    fitting |= {"Iterable": (list, str), "Literal": (), "dict": dict, "Mapping": dict, "Path": ()}

    def fits(value: Any) -> bool:
        if isinstance(value, int) and value < 0:
            return False  # of the right type, and out of range
        return any(isinstance(value, fitting.get(kind, ())) for kind in kinds)

    return [value for at, value in enumerate(found) if not fits(value) and value not in found[:at]]


def kinds_of(annotation: str) -> set[str]:
    """Return the names of the types that an annotation allows, without their parameters."""
    try:
        tree = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        return set()
    return set(_names(tree))


def _names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.BinOp):
        yield from _names(node.left)
        yield from _names(node.right)
    elif isinstance(node, ast.Subscript):
        yield from _names(node.value)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant):
        yield str(node.value)


def outcome(mistake: Mistake) -> str:
    """Make a mistake, and return the error as a line of text, or "accepted"."""
    try:
        mistake.make()
    except Exception as error:
        return text_of(error)
    return "accepted"


def text_of(error: Exception) -> str:
    """Return an error as it stands in a table: the same in each run."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    name = f"{type(cause).__name__}, from a task" if cause is not error else type(error).__name__
    message = str(cause)
    for pattern, replacement in _SCRUBBED:
        message = pattern.sub(replacement, message)
    return f"{name}: {message}".rstrip()


def fault_of(mistake: Mistake, text: str) -> str | None:
    """Return why an outcome is not good enough, or None."""
    if text == "accepted":
        return "the mistake is accepted"
    if RAW.search(text):
        return "Python's own words do not say which argument is wrong"
    if mistake.named and not any(word.lower() in text.lower() for word in mistake.named):
        return f"the error names neither of {', '.join(mistake.named)}"
    if len(text) > 1500:
        return "the error is too long to read"
    return None


def read_table(name: str) -> dict[str, str]:
    """Return the outcomes of a table, by the id of the mistake."""
    path = TABLES / f"{name}.txt"
    if not path.exists():
        return {}
    table: dict[str, str] = {}
    for entry in path.read_text().split("\n\n"):
        head, *lines = entry.strip("\n").split("\n")
        table[head] = "\n".join(line[4:] for line in lines)
    return table


def write_table(name: str, table: Mapping[str, str]) -> None:
    """Write a table: the id of each mistake, and the error it gives, indented."""
    entries = []
    for head, text in sorted(table.items()):
        lines = [line for line in text.split("\n") if line.strip()]
        entries.append("\n".join([head, *(f"    {line}" for line in lines)]))
    TABLES.mkdir(exist_ok=True)
    (TABLES / f"{name}.txt").write_text("\n\n".join(entries) + "\n")


def comparable(text: str) -> str:
    """Return an outcome as a table keeps it: without blank lines."""
    return "\n".join(line for line in text.split("\n") if line.strip())


def check(mistake: Mistake, table: Mapping[str, str]) -> None:
    """Fail unless a mistake gives the error that the table has, and the error is clear."""
    found = comparable(outcome(mistake))
    fault = fault_of(mistake, found)
    assert fault is None, f"{mistake.id}: {fault}:\n{found}"
    expected = table.get(mistake.id)
    assert found == expected, (
        f"{mistake.id} gives\n{found}\nand the table has\n{expected}\nWrite the tables: python -m tests.misuse"
    )
