from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from skate.util import debugpy


def test_a_breakpoint_without_debugpy_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "debugpy", None)
    with caplog.at_level(logging.ERROR):
        debugpy.set_trace()
    assert "pip install debugpy" in caplog.text


def test_a_breakpoint_waits_for_an_editor_and_stops_in_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def listen(address: tuple[str, int]) -> tuple[str, int]:
        seen.append(address)
        return "127.0.0.1", 4321

    package = SimpleNamespace(listen=listen, wait_for_client=lambda: seen.append("waited"))
    stops = SimpleNamespace(settrace=lambda stop_at_frame: seen.append(stop_at_frame.f_code.co_name))
    monkeypatch.setitem(sys.modules, "debugpy", package)
    monkeypatch.setitem(sys.modules, "pydevd", stops)
    monkeypatch.setattr(debugpy, "_address", None)

    def stopping() -> None:
        debugpy.set_trace()
        debugpy.set_trace()

    stopping()
    assert seen == [("127.0.0.1", 0), "waited", "stopping", "waited", "stopping"]
    assert "127.0.0.1:4321" in caplog.text
