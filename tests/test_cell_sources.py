"""Functions of a notebook's cells keep their source lines in tasks and actors."""

from __future__ import annotations

import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

import skate

CELL = """\
def helper(x):
    return 1 / x  # in another function of the cell


def work(x):
    return helper(x)


class Actor:
    def method(self):
        return helper(0)
"""
NAME = "/tmp/kernel_1/2374192.py"


@pytest.fixture
def cell() -> Iterator[types.ModuleType]:
    """Code that was run as a notebook runs a cell: its file does not exist, and `linecache` has its lines."""
    module = types.ModuleType("__cell__")
    linecache.cache[NAME] = (len(CELL), None, CELL.splitlines(keepends=True), NAME)
    exec(compile(CELL, NAME, "exec"), vars(module))  # not in sys.modules: its functions are pickled by value
    yield module
    linecache.cache.pop(NAME)


@pytest.fixture(params=["inline", "local"])
def session(request: pytest.FixtureRequest) -> Iterator[None]:
    with skate.init(engine=request.param, num_cpus=1):
        yield


def test_an_error_shows_the_source_lines_of_the_cell(session: None, cell: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        skate.get(skate.remote(cell.work).remote(0))
    assert "return helper(x)" in str(caught.value)
    assert "return 1 / x  # in another function of the cell" in str(caught.value)
    with pytest.raises(ZeroDivisionError) as caught:
        skate.get(skate.remote(cell.Actor).remote().method.remote())
    assert "return helper(0)" in str(caught.value)


def test_a_task_can_read_its_source(session: None, cell: Any) -> None:
    read = skate.remote(lambda function: inspect.getsource(function))
    assert skate.get(read.remote(cell.work)) == "def work(x):\n    return helper(x)\n"


def test_code_of_a_file_is_pickled_without_its_source() -> None:
    linecache.getlines(__file__)
    from skate._base.cell_sources import reduce_code

    def function() -> None: ...

    assert reduce_code(function.__code__)[0] is types.CodeType
    assert sys.modules[__name__].__file__ in linecache.cache
