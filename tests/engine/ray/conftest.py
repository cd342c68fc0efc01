"""These tests start Ray clusters: they run with `--engine ray`, apart from the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate._base.exports import declared
from tests.plugins.ray_clusters import cluster


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return None if "ray" in (config.getoption("--engine") or ()) else True


@pytest.fixture(scope="module")
def one_node() -> Iterator[Any]:
    """A cluster of one node, which the module's tests share."""
    with cluster([{"num_cpus": 2}]) as running:
        yield running


@pytest.fixture(autouse=True)
def no_session_stays() -> Iterator[None]:
    """End the session that a test has opened."""
    yield
    skate.shutdown()


@pytest.fixture(autouse=True)
def only_this_program() -> Iterator[None]:
    """Forget for a while what other tests have declared: the pre-flight looks at the program under test alone."""
    others = list(declared)
    declared.clear()
    yield
    declared.clear()
    declared.update(others)
