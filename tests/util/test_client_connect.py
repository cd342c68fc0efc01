from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import skate
import skate.util


def test_connect_starts_a_session_on_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def init(address: str, **settings: Any) -> Any:
        asked.update(settings, address=address)
        return SimpleNamespace(python_version="3", ray_version="2", ray_commit="c")

    monkeypatch.setattr(skate, "init", init)
    with pytest.warns(DeprecationWarning, match=r"skate\.init"):
        found = skate.util.connect("host:1", namespace="n", ray_init_kwargs={"logging_level": 10})
    assert found == {"python_version": "3", "ray_version": "2", "ray_commit": "c"}
    assert asked == {"address": "ray://host:1", "namespace": "n", "job_config": None, "logging_level": 10}


def test_connect_refuses_secure_channels_and_a_second_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.warns(DeprecationWarning, match="init"),
        pytest.raises(NotImplementedError, match="RAY_USE_TLS"),
    ):
        skate.util.connect("host:1", secure=True)
    monkeypatch.setattr(skate, "is_initialized", lambda: True)
    with (
        pytest.warns(DeprecationWarning, match="init"),
        pytest.raises(RuntimeError, match=r"skate\.shutdown"),
    ):
        skate.util.connect("host:1")


def test_disconnect_ends_the_session() -> None:
    skate.init(engine="inline")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=r"skate\.shutdown"):
            skate.util.disconnect()
        assert not skate.is_initialized()
