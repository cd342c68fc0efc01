"""A pytest plugin: tests that need a platform layer of the local engine, or a system.

The suite runs on the layer that `SKATE_PLATFORM` names. A test marked `linux_layer("…")` is about something that only
the layer of Linux does, for the reason given; on another one it is skipped. A test marked `linux_machine("…")` runs on
both layers, and itself uses something of Linux to look at what they do.
"""

from __future__ import annotations

import sys

import pytest

from skate._engine.common.platform import system


def pytest_report_header() -> str:
    """Name the platform layer."""
    return f"platform layer: {system.NAME}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of another layer or system."""
    if system.NAME != "linux":
        _skip(items, "linux_layer", "only the platform layer of Linux")
    if sys.platform != "linux":
        _skip(items, "linux_machine", "needs Linux")


def _skip(items: list[pytest.Item], name: str, why: str) -> None:
    for item in items:
        for mark in item.iter_markers(name):
            (reason,) = mark.args
            item.add_marker(pytest.mark.skip(reason=f"{why}: {reason}"))
