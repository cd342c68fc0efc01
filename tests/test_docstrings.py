"""The examples in docstrings run, each in a session of its own."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import skate
from tests.test_architecture import needs_framework

SOURCE = Path(__file__).parents[1] / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SOURCE / "skate").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
    and path.name != "as_ray.py"  # it changes what `import ray` means in its process: tests/test_as_ray.py
]


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """Return the examples of a module, and of what is written there but shown as another module's."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(module)
    written = set(re.findall(r"^(?:class|def) (\w+)", inspect.getsource(module), flags=re.MULTILINE))
    for name in written & vars(module).keys():
        value = vars(module)[name]
        if getattr(value, "__module__", None) != module.__name__:
            found += finder.find(value, name, module=False, globs=dict(vars(module)))
    return found


def run_examples(name: str) -> None:
    """Run the examples of a module; fail if one prints something else, or if there is none."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for example in examples_of(importlib.import_module(name)):
        runner.run(example, out=said.append)
        skate.shutdown()
    assert runner.failures == 0, "".join(said)
    assert runner.tries, f"{name} has examples that nobody finds"


@pytest.mark.usefixtures("polars_is_running")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # an example may show what Ray warns of
@pytest.mark.parametrize("name", [name for name in MODULES if not needs_framework(name)])
def test_the_examples_of_a_module_run_and_print_what_they_say(name: str) -> None:
    run_examples(name)
