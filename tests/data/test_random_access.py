"""Single rows of a dataset by the value of a column."""

from __future__ import annotations

from typing import Any

import pytest

import skate

pytestmark = [pytest.mark.ray_more, pytest.mark.starts_session, pytest.mark.usefixtures("where")]


def squares(n: int = 50, workers: int = 2) -> Any:
    ds = skate.data.range(n, override_num_blocks=5).map(
        lambda row: {"key": 2 * row["id"], "square": row["id"] ** 2}
    )
    return ds.random_shuffle(seed=1).to_random_access_dataset("key", num_workers=workers)


def test_a_row_is_found_by_its_key() -> None:
    rows = squares()
    assert skate.get([rows.get_async(key) for key in (0, 48, 98)]) == [
        {"key": 0, "square": 0},
        {"key": 48, "square": 576},
        {"key": 98, "square": 2401},
    ]


@pytest.mark.parametrize("key", [-1, 7, 100])
def test_a_key_that_is_not_there_gives_none(key: int) -> None:
    assert skate.get(squares().get_async(key)) is None


def test_many_keys_at_once_come_back_in_their_order() -> None:
    found = squares().multiget([98, -1, 0, 3, 98])
    assert found == [
        {"key": 98, "square": 2401},
        None,
        {"key": 0, "square": 0},
        None,
        {"key": 98, "square": 2401},
    ]


def test_a_dataset_without_rows_has_none_to_find() -> None:
    rows = squares(workers=1)
    empty = skate.data.range(5).filter(lambda row: False).to_random_access_dataset("id", num_workers=1)
    assert empty.multiget([0, 1]) == [None, None]
    assert rows.multiget([]) == []


def test_calls_are_counted() -> None:
    rows = squares(workers=1)
    assert "Accesses per worker: 0 min, 0 max, 0 mean" in rows.stats()
    skate.get(rows.get_async(0))
    assert "Accesses per worker: 1 min, 1 max, 1 mean" in rows.stats()


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="'number'"):
        skate.data.range(5).to_random_access_dataset("number")
