"""Write the reference: every public name with its signature and the first sentence of its docstring.

`make docs` runs it; a test fails when the pages are not what it would write.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent

# Page, title, and the modules on it, with everything below them; the first page that names a module has it.
PAGES = (
    ("exceptions.md", "Errors", ("skate.exceptions",)),
    ("util.md", "Utilities", ("skate.util",)),
    ("data.md", "Data", ("skate.data",)),
    ("train.md", "Training", ("skate.train",)),
    ("tune.md", "Tuning", ("skate.tune",)),
    ("serve.md", "Serving", ("skate.serve",)),
    ("llm.md", "Language models", ("skate.llm",)),
    ("core.md", "The core API", ("skate",)),
)
COMMANDS = "cli.md"


def public_modules() -> list[str]:
    """Return the names of all public modules, except those of the command line."""
    skate = importlib.import_module("skate")
    found = ["skate"]
    for module in pkgutil.walk_packages(skate.__path__, "skate."):
        parts = module.name.split(".")
        if not any(part.startswith("_") for part in parts) and parts[1] != "cli":
            found.append(module.name)
    return sorted(found)


def page_of(name: str) -> str:
    """Return the page on which a module stands."""
    return next(
        page for page, _, tops in PAGES if any(name == top or name.startswith(f"{top}.") for top in tops)
    )


def sentence(thing: object) -> str:
    """Return the first paragraph of a docstring on one line, fit for a table."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def default(value: object) -> str:
    """Return how a default looks, if it looks the same everywhere."""
    return repr(value) if isinstance(value, str | int | float | bool | tuple | None) else "..."


def signature(thing: Any, skip: int = 0) -> str:
    """Return the public parameters of a callable, without types, or nothing if they are not known."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())[skip:]
    except (TypeError, ValueError):
        return ""
    bare = [
        parameter.replace(annotation=parameter.empty, default=Literal.of(parameter.default))
        for parameter in parameters
        if not parameter.name.startswith("_")
    ]
    return str(inspect.Signature(bare)).replace("|", "\\|")


class Literal:
    """A default that prints as it would be written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, value: object) -> Any:
        """Return the default to show in place of a value."""
        return value if value is inspect.Parameter.empty else cls(default(value))


def is_seen(owner: type) -> bool:
    """Return whether a class has a row of its own somewhere."""
    module = importlib.import_module(owner.__module__)
    private = any(part.startswith("_") for part in owner.__module__.split("."))
    return not private and owner.__name__ in getattr(module, "__all__", ())


def members(owner: type) -> dict[str, Any]:
    """Return what a class defines itself, and what it has from classes that users do not see."""
    ours = [base for base in owner.__mro__[1:] if base.__module__.startswith("skate.")]
    elsewhere = {base for seen in ours if is_seen(seen) for base in seen.__mro__}
    found: dict[str, Any] = {}
    for each in (*reversed([base for base in ours if base not in elsewhere]), owner):
        found.update(vars(each))
    return found


def methods(owner: type) -> Iterator[str]:
    """Yield a row for each public method and property that a class defines itself, or in private parts of it."""
    for name, member in members(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(member, staticmethod):
            arguments = signature(member.__func__)
        elif isinstance(member, classmethod):
            arguments = signature(member.__func__, skip=1)
        elif inspect.isfunction(member):
            arguments = signature(member, skip=1)
        elif isinstance(member, property):
            arguments = ""
        else:
            continue
        yield f"| `{owner.__name__}.{name}{arguments}` | {sentence(member)} |"


def rows(module: ModuleType, seen: dict[int, str]) -> Iterator[str]:
    """Yield a row for each name that a module exports; one that was seen elsewhere only says where."""
    exports = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    for name, thing in exports.items():
        own = getattr(thing, "__name__", name)
        if inspect.ismodule(thing):
            continue
        if not callable(thing):
            yield f"| `{name}` | |"
            continue
        if own != name and exports.get(own) is thing:  # the row of its own name describes it
            yield f"| `{name}` | `{module.__name__}.{own}` |"
            continue
        if id(thing) in seen:
            yield f"| `{name}` | `{seen[id(thing)]}` |"
        elif inspect.isclass(thing):
            yield f"| `{name}` | {sentence(thing)} |"
            if not issubclass(thing, BaseException):
                yield from methods(thing)
        else:
            yield f"| `{name}{signature(thing)}` | {sentence(thing)} |"
        seen.setdefault(id(thing), f"{module.__name__}.{name}")


def page(title: str, modules: list[str]) -> str:
    """Return one page."""
    parts = [f"# {title}\n\n<!-- written by generate.py: run `make docs` -->\n"]
    seen: dict[int, str] = {}
    for name in modules:
        module = importlib.import_module(name)
        table = "\n".join(rows(module, seen)) if hasattr(module, "__all__") else ""
        if table:
            parts.append(f"## `{name}`\n\n{sentence(module)}\n\n| name | |\n|---|---|\n{table}\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    from skate.cli.reference import page as commands

    names = public_modules()
    found = {name: page(title, [m for m in names if page_of(m) == name]) for name, title, _ in PAGES}
    return {**found, COMMANDS: commands()}


if __name__ == "__main__":
    for file, text in pages().items():
        (HERE / file).write_text(text, encoding="utf-8")
