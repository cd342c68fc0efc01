"""Modules that wrap a framework export what they name."""

from __future__ import annotations

import pytest

from tests.test_architecture import NEED_FRAMEWORK, exporting, needs_framework, wrong_exports
from tests.train.test_names import SAME, resolved


@pytest.mark.parametrize("module", NEED_FRAMEWORK)
def test_the_list_names_modules_that_exist(module: str) -> None:
    assert any(name == module or name.startswith(f"{module}.") for name in exporting())


@pytest.mark.parametrize("name", [name for name in exporting() if needs_framework(name)])
def test_what_is_exported_exists_once_and_is_public(name: str) -> None:
    assert wrong_exports(name) == []


@pytest.mark.parametrize(
    ("other", "name"), [pair for pair in SAME.items() if needs_framework(f"skate.{pair[1]}")]
)
def test_two_paths_lead_to_one_object(other: str, name: str) -> None:
    assert resolved(other) is resolved(name)
