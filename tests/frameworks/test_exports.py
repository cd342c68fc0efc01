"""Modules that wrap a framework export what they name."""

from __future__ import annotations

import pytest

from tests.test_architecture import EXPORTING, NEED_FRAMEWORK, check_exports, needs_framework
from tests.train.test_names import SAME, resolved


@pytest.mark.parametrize("module", NEED_FRAMEWORK)
def test_the_list_names_modules_that_exist(module: str) -> None:
    assert any(name == module or name.startswith(f"{module}.") for name in EXPORTING)


@pytest.mark.parametrize("name", [name for name in EXPORTING if needs_framework(name)])
def test_what_is_exported_exists_once_and_is_public(name: str) -> None:
    check_exports(name)


@pytest.mark.parametrize(
    ("other", "name"), [pair for pair in SAME.items() if needs_framework(f"skate.{pair[1]}")]
)
def test_two_paths_lead_to_one_object(other: str, name: str) -> None:
    assert resolved(other) is resolved(name)
