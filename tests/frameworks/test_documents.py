"""Documents that need every module: the reference, and the docstrings of modules that wrap a framework."""

from __future__ import annotations

import runpy

import pytest

from tests.test_architecture import ROOT, needs_framework
from tests.test_docstrings import MODULES, run_examples


def test_the_reference_is_what_the_code_says() -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "reference" / "generate.py"))
    pages = generate["pages"]()
    written = {name: (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") for name in pages}
    assert written == pages, "run `make docs`"


@pytest.mark.parametrize("name", [name for name in MODULES if needs_framework(name)])
def test_the_examples_of_a_module_run_and_print_what_they_say(name: str) -> None:
    run_examples(name)
