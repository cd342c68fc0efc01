from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from skate.air import _filesystems as filesystems
from tests import leaks
from tests.conftest import LeakWatch


@pytest.fixture
def client_libraries(leak_watch: LeakWatch) -> Iterator[None]:
    """Allow what libraries for stores and tables keep as long as a process lives: event loops and threads."""
    yield
    filesystems._arrow_root.cache_clear()
    filesystems._from_fsspec.cache_clear()
    gc.collect()
    leak_watch.before = leaks.Snapshot.take()
