"""A pytest plugin: tests of facts that only one platform layer of the local engine has.

The suite runs on the layer that `SKATE_PLATFORM` names. A test marked `linux_layer("…")` is about something that only
the layer of Linux does, for the reason given; on another one it is skipped.
"""

from __future__ import annotations

import pytest

from skate._engine.common.platform import system


def pytest_report_header() -> str:
    """Name the platform layer."""
    return f"platform layer: {system.NAME}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of another layer."""
    if system.NAME == "linux":
        return
    for item in items:
        for mark in item.iter_markers("linux_layer"):
            (reason,) = mark.args
            item.add_marker(pytest.mark.skip(reason=f"only the platform layer of Linux: {reason}"))
