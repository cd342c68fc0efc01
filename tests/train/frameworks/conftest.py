"""Run the examples in this process, where their frameworks are loaded, and in the session that the tests have."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "train"


@pytest.fixture
def run_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run an example as a program, and return what it printed."""
    monkeypatch.syspath_prepend(EXAMPLES)
    by_value: set[ModuleType] = set()

    def go(name: str, *arguments: str) -> str:
        if "tiny_lm" in (EXAMPLES / name).read_text(encoding="utf-8"):
            # Workers may have been started before, and do not look for modules there.
            by_value.add(importlib.import_module("tiny_lm"))
            for module in by_value:
                cloudpickle.register_pickle_by_value(module)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield go
    for module in by_value:
        cloudpickle.unregister_pickle_by_value(module)
