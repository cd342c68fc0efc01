"""The security page names every module that unpickles data, executes text or imports a module by name."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "skate"
PAGE = ROOT / "docs" / "security.md"

_LIBRARIES = {
    "pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "joblib",
    "shelve",
    "torch",
    "np",
    "numpy",
    "pandas",
    "pd",
}
_FUNCTIONS = {"load", "loads", "Unpickler", "read_pickle", "unsafe_load", "full_load"}
_OWN = "skate._base.serialization"


def unpickling(tree: ast.Module) -> Iterator[int]:
    """Yield the lines at which a module can run code that is in data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner in _LIBRARIES | {"yaml", "serialization"} and not (
                owner == "yaml" and node.attr == "safe_load"
            ):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module in _LIBRARIES | {_OWN} and names & _FUNCTIONS:
                yield node.lineno
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("eval", "exec")
        ):
            yield node.lineno


def importing(tree: ast.Module) -> Iterator[int]:
    """Yield the lines at which a module imports another whose whole name is not in the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = (
                ast.unparse(node.func).rpartition(".")[2]
                if isinstance(node.func, ast.Name | ast.Attribute)
                else ""
            )
            if name in ("import_module", "__import__") and isinstance(
                node.args[0], ast.Name | ast.Attribute | ast.Call | ast.Subscript
            ):
                yield node.lineno


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each module of the package."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): ast.parse(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }


def modules_with(search: Callable[[ast.Module], Iterator[int]]) -> set[str]:
    return {name for name, tree in trees().items() if any(True for _ in search(tree))}


def listed_under(title: str) -> set[str]:
    """Return the modules in the first column of the tables of a section."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


@pytest.mark.parametrize(
    ("search", "title"), [(unpickling, "Places that unpickle"), (importing, "Places that import by name")]
)
def test_the_page_lists_every_module(search: Callable[[ast.Module], Iterator[int]], title: str) -> None:
    found, listed = modules_with(search), listed_under(title)
    assert found - listed == set(), (
        f"say in {PAGE.name} who can write the input of these, and why it is trusted"
    )
    assert listed - found == set(), f"{PAGE.name} lists modules that do this no more"


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(data)",
        "loader = pickle.loads",
        "class Reader(pickle.Unpickler): ...",
        "skate.cloudpickle.load(file)",
        "from pickle import loads",
        "from skate._base.serialization import loads",
        "torch.load(file, weights_only=True)",
        "np.load(file)",
        "pd.read_pickle(path)",
        "yaml.unsafe_load(text)",
        "eval(text)",
    ],
)
def test_the_search_finds(line: str) -> None:
    assert list(unpickling(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["json.loads(text)", "yaml.safe_load(text)", "config.load()", "pickle.dumps(value)"]
)
def test_the_search_leaves_alone(line: str) -> None:
    assert not list(unpickling(ast.parse(line)))
