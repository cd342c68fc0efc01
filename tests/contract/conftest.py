"""Run every test of this folder on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ENGINES
from tests.contract.gaps import GAPS
from tests.plugins.sessions import declare_gap, gap_for

HERE = Path(__file__).parent

# No test waits this long for anything; one that does is hung.
HANG_SECONDS = 60
GAP_SECONDS = 10
RAY_SECONDS = 90  # it starts a process in a second, where the others need milliseconds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        names = metafunc.config.getoption("--engine") or ENGINES
        metafunc.parametrize("engine_name", names, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit = config.getoption("timeout", None) or HANG_SECONDS
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        reason = gap_for(item, GAPS, HERE)
        if reason:
            declare_gap(item, reason)
        if not item.get_closest_marker("timeout"):
            on_ray = "ray" in (config.getoption("--engine") or ())
            seconds = RAY_SECONDS if on_ray else GAP_SECONDS if reason else limit
            # A gap's short limit must not strike while pytest writes down how the test failed: that ends the run.
            item.add_marker(pytest.mark.timeout(seconds, func_only=bool(reason)))
