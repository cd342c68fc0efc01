"""Further calls of user-defined functions, which the settings ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.data import DataContext
from skate.data._exec import retries as retries_module
from skate.data._exec.retries import Retries
from skate.exceptions import RayActorError
from tests.data.conftest import HERE, THREADS

pytestmark = pytest.mark.usefixtures("where")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries_module, "_MAX_PAUSE_S", 0.0)


class Flaky:
    """Fails on its first calls."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self, value: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return value


class FlakyAsync(Flaky):
    async def __call__(self, value: Any) -> Any:
        return Flaky.__call__(self, value)


class FlakyGenerator(Flaky):
    def __call__(self, value: Any) -> Iterator[Any]:
        yield value
        yield Flaky.__call__(self, value)


BUSY = (ValueError("busy (1)"), RuntimeError("busy (2)"))


@pytest.mark.parametrize("patterns", [True, ["busy"], [r"busy \(\d\)"], ["other", "Error: busy ("]])
def test_a_batch_is_passed_again_after_errors_that_match(settings: DataContext, patterns: Any) -> None:
    settings.retried_map_errors, settings.max_map_retries = patterns, 2
    ds = skate.data.range(3).map_batches(Flaky, fn_constructor_args=BUSY)
    assert [row["id"] for row in ds.take_all()] == [0, 1, 2]


def test_a_generator_that_fails_late_yields_no_batch_twice(settings: DataContext) -> None:
    settings.retried_map_errors, settings.max_map_retries = ["busy"], -1
    ds = skate.data.range(2).map_batches(FlakyGenerator, fn_constructor_args=BUSY)
    assert [row["id"] for row in ds.take_all()] == [0, 1, 0, 1]


def test_a_row_is_passed_again_as_it_was(settings: DataContext) -> None:
    class Changes(Flaky):
        def __call__(self, row: Any) -> Any:
            row["id"] += 10
            return super().__call__(row)

    settings.retried_map_errors, settings.max_map_retries = ["busy"], 2
    ds = skate.data.range(2).map(Changes, fn_constructor_args=BUSY)
    assert [row["id"] for row in ds.take_all()] == [10, 11]


@pytest.mark.parametrize("method", ["map", "map_batches"])
def test_asynchronous_functions_are_called_again_too(settings: DataContext, method: str) -> None:
    settings.retried_map_errors, settings.max_map_retries = ["busy"], 2
    ds = getattr(skate.data.range(2), method)(FlakyAsync, fn_constructor_args=BUSY)
    assert [row["id"] for row in ds.take_all()] == [0, 1]


def test_a_row_of_flat_map_is_passed_again_if_its_iterator_fails(settings: DataContext) -> None:
    settings.retried_map_errors, settings.max_map_retries = True, 2
    ds = skate.data.range(1).flat_map(FlakyGenerator, fn_constructor_args=BUSY)
    assert [row["id"] for row in ds.take_all()] == [0, 0]


@pytest.mark.parametrize(
    ("patterns", "limit"), [(["busy"], 1), (["busy"], 0), (["idle"], 5), ([], 5), (False, 5)]
)
def test_other_errors_and_too_many_end_the_job(settings: DataContext, patterns: Any, limit: int) -> None:
    settings.retried_map_errors, settings.max_map_retries = patterns, limit
    with pytest.raises((ValueError, RuntimeError), match="busy"):
        skate.data.range(3).map_batches(Flaky, fn_constructor_args=BUSY).take_all()


@pytest.mark.parametrize("types", [True, [ValueError, RuntimeError]])
def test_classes_are_called_again_after_errors_of_given_types(settings: DataContext, types: Any) -> None:
    settings.actor_task_retry_on_errors = types
    ds = skate.data.range(3).map_batches(Flaky, fn_constructor_args=BUSY)
    assert ds.count() == 3
    settings.actor_task_retry_on_errors = [KeyError]
    with pytest.raises(ValueError, match="busy"):
        skate.data.range(3).map_batches(Flaky, fn_constructor_args=BUSY).take_all()


def test_functions_are_not_called_again_because_of_the_setting_for_classes(settings: DataContext) -> None:
    settings.actor_task_retry_on_errors = True
    assert Retries.current(of_class=False) is None
    assert Retries.current(of_class=True) == Retries(types=(Exception,), patterns=False)


def test_rows_are_dropped_only_after_the_last_call(settings: DataContext) -> None:
    settings.retried_map_errors, settings.max_map_retries = ["busy"], 1
    errors = [ValueError("busy")] * 2
    ds = skate.data.range(3).map(Flaky, fn_constructor_args=errors, on_error="drop")
    assert [row["id"] for row in ds.take_all()] == [1, 2]


class FailsToStart:
    """Its constructor fails the first times; a file counts them, over all processes."""

    def __init__(self, attempts: Path, failures: int) -> None:
        with attempts.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(attempts.read_text().splitlines()) <= failures:
            raise ValueError("not yet")

    def __call__(self, batch: Any) -> Any:
        return batch


def constructed(attempts: Path, failures: int, **options: Any) -> list[int]:
    """Run a dataset with that class, and return its rows."""
    attempts.unlink(missing_ok=True)
    constructor = {"fn_constructor_args": (attempts, failures), **options}
    return [row["id"] for row in skate.data.range(3).map_batches(FailsToStart, **constructor).take_all()]


def test_a_class_is_constructed_again_in_the_same_process(settings: DataContext, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    settings.actor_init_max_retries = 2
    with pytest.raises(Exception, match="not yet"):
        constructed(attempts, 1)
    settings.actor_init_retry_on_errors = True
    assert constructed(attempts, 2) == [0, 1, 2]
    assert len(set(attempts.read_text().splitlines())) == 1
    with pytest.raises(Exception, match="not yet"):
        constructed(attempts, 3)
    settings.actor_init_max_retries = -1
    assert constructed(attempts, 5) == [0, 1, 2]


def test_an_actor_that_fails_to_start_is_replaced(settings: DataContext, where: str, tmp_path: Path) -> None:
    if where in (HERE, THREADS):
        pytest.skip("there are no actors")
    attempts = tmp_path / "attempts"
    settings.max_consecutive_actor_init_deaths = 2
    assert constructed(attempts, 2, concurrency=1) == [0, 1, 2]
    assert len(attempts.read_text().splitlines()) == 3
    with pytest.raises(RayActorError, match="not yet"):
        constructed(attempts, 3, concurrency=1)
    settings.max_consecutive_actor_init_deaths = -1
    settings.actor_init_retry_on_errors, settings.actor_init_max_retries = True, 1
    assert constructed(attempts, 5, concurrency=1) == [0, 1, 2]


def test_constructors_see_the_settings_of_the_dataset(settings: DataContext) -> None:
    class Seen:
        def __init__(self) -> None:
            self.limit = DataContext.get_current().max_map_retries

        def __call__(self, batch: Any) -> Any:
            return {"limit": [self.limit]}

    settings.max_map_retries = 7
    ds = skate.data.range(1).map_batches(Seen, concurrency=1)
    settings.max_map_retries = 0
    assert ds.take_all() == [{"limit": 7}]
