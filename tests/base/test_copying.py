"""Copies are exact at any size and with any number of threads."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from skate._base import copying


@pytest.mark.parametrize("size", [0, 1, 4096, copying.LARGE - 1, copying.LARGE, copying.LARGE + 12_345])
@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_a_copy_is_exact(size: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "cpus", lambda: cores)
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    target = bytearray(size + 8)
    copying.copy(memoryview(target), memoryview(source))
    assert target[:size] == source.tobytes()
    assert target[size:] == bytes(8)


def test_a_copy_needs_no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    source = bytes(range(256)) * (copying.LARGE // 256 + 1)
    target = bytearray(len(source))
    copying.copy(memoryview(target), memoryview(source))
    assert target == source


def test_the_source_may_be_read_only() -> None:
    source = memoryview(bytes(copying.LARGE))
    target = bytearray(b"x") * copying.LARGE
    copying.copy(memoryview(target), source)
    assert not any(target[:: 1 << 12])
