"""Modules that wrap a framework export what they name."""

from __future__ import annotations

import pytest

from tests.test_architecture import EXPORTING, NEED_FRAMEWORK, check_exports, needs_framework


def test_the_list_names_modules_that_exist() -> None:
    assert [module for module in NEED_FRAMEWORK if not any(map(module.__eq__, EXPORTING))] == [
        "skate.train.v2.lightgbm",
        "skate.train.v2.xgboost",
    ]


@pytest.mark.parametrize("name", [name for name in EXPORTING if needs_framework(name)])
def test_what_is_exported_exists_once_and_is_public(name: str) -> None:
    check_exports(name)
