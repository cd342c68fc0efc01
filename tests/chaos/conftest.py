"""Fixtures of the chaos tests; those marked `chaos` run only when asked for: `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.arena import Arena

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "chaos" in (config.option.markexpr or ""):
        return
    long = [item for item in items if item.path.is_relative_to(HERE) and item.get_closest_marker("chaos")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A folder for sessions of its own; whatever a failed test leaves there is removed."""
    arena = Arena()
    yield arena
    arena.close()
