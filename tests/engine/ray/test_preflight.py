"""The report, before a program runs on a cluster, of everything that would make it fail there."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.exceptions import PreflightError

ANOTHER_PYTHON = "3.99.0"


def connect(cluster: Any, **options: Any) -> Any:
    return skate.init(cluster.address, engine="ray", **options)


def test_a_program_that_fits_connects_without_a_word(one_node: Any) -> None:
    @skate.remote
    def plain() -> int:
        return 1

    connect(one_node)
    assert skate.get(plain.remote()) == 1


def test_all_problems_are_named_at_once(
    one_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def helper(): return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    @skate.remote
    def uses_a_module() -> Any:
        return only_here.helper()

    lock = threading.Lock()

    @skate.remote
    def holds_a_lock() -> bool:
        return lock.locked()

    @skate.remote(num_gpus=4)
    def wants_gpus() -> None: ...

    monkeypatch.setattr("platform.python_version", lambda: ANOTHER_PYTHON)
    with pytest.raises(PreflightError) as raised:
        connect(one_node)
    text = str(raised.value)
    assert len(raised.value.problems) == 4
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in text
    assert ANOTHER_PYTHON in text
    assert "'only_here'" in text
    assert "working_dir" in text
    assert "holds_a_lock" in text
    assert "wants_gpus asks for {CPU: 1, GPU: 4}" in text
    assert not skate.is_initialized()


def test_a_module_that_the_job_brings_along_is_no_problem(
    one_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought_along.py").write_text("def helper(): return 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import brought_along  # type: ignore[import-not-found]

    @skate.remote
    def uses_a_module() -> Any:
        return brought_along.helper()

    connect(one_node, runtime_env={"working_dir": str(tmp_path)})
    assert skate.get(uses_a_module.remote()) == 7


def test_resources_that_no_node_has_are_a_warning(one_node: Any) -> None:
    @skate.remote(resources={"telescope": 1})
    class Observer:
        pass

    with pytest.warns(RuntimeWarning, match=r"Observer asks for .*telescope.*waits until a node"):
        connect(one_node)
    assert skate.is_initialized()
    del Observer


def test_problems_are_warnings_when_asked(one_node: Any) -> None:
    lock = threading.Lock()

    @skate.remote
    def holds_a_lock() -> bool:
        return lock.locked()

    with pytest.warns(RuntimeWarning, match="holds_a_lock"):
        connect(one_node, preflight="warn")
    assert skate.is_initialized()


def test_nothing_is_looked_at_when_it_is_off(one_node: Any) -> None:
    lock = threading.Lock()

    @skate.remote
    def holds_a_lock() -> bool:
        return lock.locked()

    connect(one_node, preflight="off")
    assert skate.is_initialized()


def test_a_function_that_only_a_cycle_holds_is_not_part_of_the_program(one_node: Any) -> None:
    lock = threading.Lock()

    def in_a_cycle() -> None:
        @skate.remote
        def holds_a_lock() -> bool:
            return lock.locked()

        holds_a_lock.itself = holds_a_lock

    in_a_cycle()
    connect(one_node)
    assert skate.is_initialized()


def test_another_word_than_those_is_an_error(one_node: Any) -> None:
    with pytest.raises(ValueError, match="raise, warn, off"):
        connect(one_node, preflight="maybe")
    assert not skate.is_initialized()


def test_the_error_keeps_its_problems_over_a_pickle() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(PreflightError(["one", "two"])))
    assert error.problems == ["one", "two"]
