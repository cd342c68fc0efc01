from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate


@pytest.fixture
def session() -> Iterator[None]:
    """Run tasks in this process, where stand-ins for libraries are."""
    skate.init(engine="inline")
    yield
    skate.shutdown()
