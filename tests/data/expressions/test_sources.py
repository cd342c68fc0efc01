"""Row numbers, random numbers and UUIDs: what they depend on."""

from __future__ import annotations

import uuid as uuids
from typing import Any

import pyarrow as pa
import pytest

from skate.data._expressions.context import EvaluationContext
from skate.data._expressions.evaluate import evaluate, project
from skate.data.expressions import Expr, monotonically_increasing_id, random, uuid

BLOCK = pa.table({"a": range(10)})


def values(expr: Expr, rows: int = 10, **where: Any) -> list[Any]:
    found: list[Any] = evaluate(expr, BLOCK.slice(0, rows), EvaluationContext(**where)).to_pylist()
    return found


def test_row_numbers_count_within_a_task_and_are_far_apart_between_tasks() -> None:
    expr = monotonically_increasing_id()
    assert values(expr, 3) == [0, 1, 2]
    assert values(expr, 3, task_index=2, row_offset=5) == [2 * 2**33 + 5, 2 * 2**33 + 6, 2 * 2**33 + 7]


def test_random_numbers_are_in_range() -> None:
    expr = random()
    block = pa.table({"a": range(10_000)})
    found = evaluate(expr, block).to_pylist()
    assert all(0 <= number < 1 for number in found)
    assert 0.45 < sum(found) / len(found) < 0.55


@pytest.mark.parametrize("seed", [0, 42, -7, 2**100])
def test_a_seed_gives_the_same_numbers_again(seed: int) -> None:
    assert values(random(seed=seed)) == values(random(seed=seed))
    assert values(random(seed=seed)) != values(random(seed=seed + 1))


def test_a_seed_and_its_negative_differ() -> None:
    assert values(random(seed=7)) != values(random(seed=-7))


def test_a_seed_gives_other_numbers_in_another_task_and_in_another_execution() -> None:
    found = [
        values(random(seed=1)),
        values(random(seed=1), task_index=1),
        values(random(seed=1), execution_index=1),
    ]
    assert len({tuple(numbers) for numbers in found}) == 3


def test_a_seed_can_hold_for_every_execution() -> None:
    expr = random(seed=1, reseed_after_execution=False)
    assert values(expr) == values(expr, execution_index=5)


@pytest.mark.parametrize("expr", [random(seed=3), random(), uuid()])
def test_how_a_task_cuts_its_rows_into_blocks_does_not_change_the_values(expr: Expr) -> None:
    whole = values(expr, 10, seed=9)
    assert values(expr, 3, seed=9) + values(expr, 7, seed=9, row_offset=3) == whole


@pytest.mark.parametrize("expr", [random(), uuid()])
def test_a_task_that_is_done_again_gets_the_same_values(expr: Expr) -> None:
    assert values(expr, seed=9) == values(expr, seed=9)
    assert values(expr, seed=9) != values(expr, seed=10)
    assert values(expr, seed=9) != values(expr, seed=9, task_index=1)


@pytest.mark.parametrize("make", [random, uuid])
def test_without_any_seed_values_differ_each_time(make: Any) -> None:
    expr = make()
    assert values(expr) != values(expr)
    context = EvaluationContext(seed=9)
    columns = project(BLOCK, [expr.alias("x"), expr.alias("y"), make().alias("z")], context)
    assert len({tuple(column.to_pylist()) for column in columns.columns}) == 3


def test_uuids_are_of_version_4_and_all_different() -> None:
    found = [uuids.UUID(text) for text in values(uuid())]
    assert len(set(found)) == 10
    assert {(number.version, number.variant) for number in found} == {(4, uuids.RFC_4122)}


@pytest.mark.parametrize("expr", [random(), uuid(), monotonically_increasing_id()])
def test_there_are_no_values_for_no_rows(expr: Expr) -> None:
    assert values(expr, 0) == []


def test_arguments_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        random(1)  # type: ignore[call-arg]  # the mistake
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        uuid(seed=1)  # type: ignore[call-arg]  # the mistake
