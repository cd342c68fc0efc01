"""Splitting datasets, before and during reading."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import skate
from skate.data import DataContext

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("where")]


def numbers(n: int = 20, blocks: int = 4) -> Any:
    return skate.data.range(n, override_num_blocks=blocks)


def ids(dataset: Any) -> list[int]:
    return [row["id"] for row in dataset.iter_rows()]


def test_split_gives_all_rows_to_somebody_in_order() -> None:
    parts = numbers(10, blocks=3).split(3)
    assert [ids(part) for part in parts] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_equal_parts_leave_out_what_does_not_divide() -> None:
    assert [part.count() for part in numbers(11, blocks=3).split(3, equal=True)] == [3, 3, 3]


def test_more_parts_than_rows_leaves_some_empty() -> None:
    assert [part.count() for part in numbers(2, blocks=1).split(4)] == [1, 1, 0, 0]


def test_split_at_places() -> None:
    assert [part.count() for part in numbers(10, blocks=3).split_at_indices([2, 7])] == [2, 5, 3]
    assert [part.count() for part in numbers(10, blocks=3).split_at_indices([0, 50])] == [0, 10, 0]


def test_split_by_shares() -> None:
    assert [part.count() for part in numbers(10).split_proportionately([0.2, 0.5])] == [2, 5, 3]


def test_train_and_test() -> None:
    train, test = numbers(10).train_test_split(0.3)
    assert (ids(train), ids(test)) == (list(range(7)), [7, 8, 9])
    train, test = numbers(10).train_test_split(2)
    assert ids(test) == [8, 9]
    train, test = numbers(50).train_test_split(0.2, shuffle=True, seed=1)
    assert sorted(ids(train) + ids(test)) == list(range(50))
    assert ids(test) != list(range(40, 50))


def test_train_and_test_with_the_same_shares_of_a_column() -> None:
    ds = skate.data.from_items([{"id": i, "kind": i % 4 == 0} for i in range(40)])
    train, test = ds.train_test_split(0.25, stratify="kind")
    assert sorted(ids(train) + ids(test)) == list(range(40))
    assert [row["kind"] for row in test.take_all()].count(True) == 2
    assert test.count() == 9


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds: ds.split(0), "n must be positive"),
        (lambda ds: ds.split_at_indices([]), "length 1"),
        (lambda ds: ds.split_at_indices([3, 1]), "sorted"),
        (lambda ds: ds.split_proportionately([0.5, 0.6]), "less than 1"),
        (lambda ds: ds.train_test_split(1.5), "a float must lie between 0 and 1"),
        (lambda ds: ds.train_test_split(20), "smaller than the number of rows"),
        (lambda ds: ds.streaming_split(0), "positive"),
        (lambda ds: ds.streaming_split(2, locality_hints=["node"]), "needs 2 locality_hints, got 1"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(numbers())


class TestStreaming:
    """Several processes read one dataset together."""

    @pytest.fixture(autouse=True)
    def in_processes(self, where: str) -> None:
        if where in ("here", "inline"):
            pytest.skip("needs readers that run at the same time")

    def consumed(self, parts: list[Any], passes: int = 1) -> list[list[list[int]]]:
        @skate.remote(num_cpus=0)
        class Reader:
            def read(self, part: Any, passes: int) -> list[list[int]]:
                return [[row["id"] for row in part.iter_rows()] for _ in range(passes)]

        readers = [Reader.remote() for _ in parts]
        return skate.get(
            [reader.read.remote(part, passes) for reader, part in zip(readers, parts, strict=True)]
        )

    def test_every_row_reaches_exactly_one_reader_in_each_pass(self) -> None:
        found = self.consumed(numbers(100, blocks=10).streaming_split(2), passes=2)
        for number in range(2):
            assert sorted(found[0][number] + found[1][number]) == list(range(100))

    def test_equal_parts_have_the_same_number_of_rows(self) -> None:
        found = self.consumed(numbers(101, blocks=7).streaming_split(3, equal=True))
        assert [len(each[0]) for each in found] == [33, 33, 33]
        assert len({number for each in found for number in each[0]}) == 99

    def test_an_error_reaches_every_reader(self) -> None:
        def fails(row: dict[str, Any]) -> dict[str, Any]:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            self.consumed(numbers(100).map(fails).streaming_split(2, equal=True))

    def test_a_reader_without_rows_materializes_the_columns(self) -> None:
        none = numbers(4).filter(lambda row: row["id"] > 4)
        [part] = none.streaming_split(1)
        assert part.materialize().to_pandas()["id"].tolist() == []
        assert none.iterator().materialize().schema().names == ["id"]

    def test_readers_see_the_settings_and_the_columns(self, settings: DataContext) -> None:
        settings.set_config("word", "here")
        part, _ = numbers(4).streaming_split(2)
        assert part.get_context().get_config("word") == "here"
        assert part.schema().names == ["id"]


class TestStreamingTrainTestSplit:
    def test_every_row_is_on_one_side_and_on_the_same_each_time(self) -> None:
        train, test = numbers(1000, blocks=8).streaming_train_test_split(0.25, seed=3)
        assert sorted(ids(train) + ids(test)) == list(range(1000))
        assert 180 < test.count() < 320
        assert ids(test) == ids(test)

    def test_another_seed_gives_other_sides(self) -> None:
        (_, first), (_, second) = (numbers(200).streaming_train_test_split(0.5, seed=seed) for seed in (1, 2))
        assert ids(first) != ids(second)

    def test_rows_with_the_same_value_stay_together(self) -> None:
        ds = numbers(300, blocks=6).map(lambda row: {"id": row["id"], "name": f"n{row['id'] % 10}"})
        train, test = ds.streaming_train_test_split(0.4, split_type="hash", hash_column="name")
        assert not set(train.unique("name")) & set(test.unique("name"))
        assert train.count() + test.count() == 300

    def test_numbers_are_divided_evenly_and_alike_in_every_block(self) -> None:
        ds = numbers(10_000, blocks=4)
        train, test = (
            ids(side) for side in ds.streaming_train_test_split(0.2, split_type="hash", hash_column="id")
        )
        assert sorted(train + test) == list(range(10_000))
        assert 1_800 < len(test) < 2_200
        table = pa.table({"id": pa.array([None, *range(-5, 10_000)], pa.int32())})
        _, again = skate.data.from_arrow(table).streaming_train_test_split(
            0.2, split_type="hash", hash_column="id"
        )
        assert [number for number in ids(again) if number is not None and number >= 0] == sorted(test)

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            ({"test_size": 1.0}, "between 0 and 1"),
            ({"test_size": 0.5, "split_type": "odd"}, "'odd'"),
            ({"test_size": 0.5, "split_type": "hash"}, "hash_column"),
            (
                {"test_size": 0.5, "split_type": "hash", "hash_column": "id", "seed": 1},
                "seed is not supported",
            ),
            ({"test_size": 0.5, "hash_column": "id"}, "hash_column is not supported"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, options: dict[str, Any], word: str) -> None:
        with pytest.raises(ValueError, match=word):
            numbers().streaming_train_test_split(**options)
