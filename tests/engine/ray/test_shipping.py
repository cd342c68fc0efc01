"""Pickling on the ray engine gives the same results as on the other engines."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import skate
from skate._base.alias import real_ray
from skate._engine.ray.shipping import follow_modules


def test_ray_follows_what_is_registered_to_travel_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = real_ray("ray.cloudpickle")
    modules = [ModuleType(name) for name in ("loaded", "unloaded")]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
        skate.cloudpickle.register_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "unloaded")
    follow_modules()
    assert theirs.list_registry_pickle_by_value() & {"loaded", "unloaded"} == {"loaded"}
    for module in modules:
        skate.cloudpickle.unregister_pickle_by_value(module)
    follow_modules()
    assert not theirs.list_registry_pickle_by_value() & {"loaded", "unloaded"}
