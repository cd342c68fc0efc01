from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from tests.s3 import bucket, client_libraries, server, store  # noqa: F401  # fixtures: they are used by their names


@pytest.fixture
def session() -> Iterator[None]:
    """Run tasks in this process, where stand-ins for libraries are."""
    skate.init(engine="inline")
    yield
    skate.shutdown()
