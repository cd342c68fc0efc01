"""Sorting, grouping, joining, and other operations that need all rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import skate
from skate.data import DataContext, RandomSeedConfig
from skate.data._plan import barriers
from skate.data.aggregate import AggregateFn, Count, Max, Mean, Std, Sum

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("where")]

MORE_PLACES = ("threads",)

SHUFFLED = random.Random(7).sample(range(300), 300)


def shuffled(blocks: int = 6) -> Any:
    rows = [{"a": number, "k": number % 7, "s": f"w{number % 13}"} for number in SHUFFLED]
    return skate.data.from_items(rows, override_num_blocks=blocks)


@pytest.fixture(params=[512 * 2**20, 2000], ids=["whole", "parts"])
def sizes(request: pytest.FixtureRequest, settings: DataContext, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows that one task works on: all of them, or a small part, and then no side of a join counts as small."""
    settings.partition_bytes = request.param
    if request.param < 10_000:
        monkeypatch.setattr(barriers, "_SMALL_SIDE", 0)
    return int(request.param)


@pytest.mark.usefixtures("sizes")
class TestSorting:
    def test_by_one_column(self) -> None:
        assert [row["a"] for row in shuffled().sort("a").take_all()] == sorted(SHUFFLED)

    def test_descending(self) -> None:
        found = [row["a"] for row in shuffled().sort("a", descending=True).take_all()]
        assert found == sorted(SHUFFLED, reverse=True)

    def test_by_two_columns_in_different_directions(self) -> None:
        found = shuffled().sort(["k", "a"], descending=[True, False]).take_all()
        expected = sorted(SHUFFLED, key=lambda number: (-(number % 7), number))
        assert [row["a"] for row in found] == expected

    def test_equal_keys_keep_their_order(self) -> None:
        found = shuffled().sort("k").take_all()
        assert [row["a"] for row in found] == sorted(SHUFFLED, key=lambda number: number % 7)

    @pytest.mark.starts_session
    def test_an_empty_dataset(self) -> None:
        assert shuffled().filter(lambda row: False).sort("a").take_all() == []

    @pytest.mark.starts_session
    def test_tensors_are_carried_along(self) -> None:
        ds = skate.data.from_numpy([np.arange(60).reshape(30, 2), np.arange(60, 120).reshape(30, 2)])
        keyed = ds.map_batches(lambda batch: {"key": -batch["data"][:, 0], "data": batch["data"]})
        first = keyed.sort("key").take(1)[0]
        assert first["data"].tolist() == [118, 119]


@pytest.mark.usefixtures("sizes")
class TestShuffling:
    def test_all_rows_are_there_in_another_order(self) -> None:
        found = [row["a"] for row in shuffled().sort("a").random_shuffle(seed=3).take_all()]
        assert found != sorted(SHUFFLED)
        assert sorted(found) == sorted(SHUFFLED)

    def test_a_seed_gives_the_same_order_again(self) -> None:
        first, second = (shuffled().random_shuffle(seed=5).take_all() for _ in range(2))
        assert first == second

    def test_another_seed_gives_another_order(self) -> None:
        assert shuffled().random_shuffle(seed=5).take_all() != shuffled().random_shuffle(seed=6).take_all()


@pytest.mark.usefixtures("sizes")
class TestGrouping:
    def test_aggregates_of_each_group_sorted_by_key(self) -> None:
        found = shuffled().groupby("k").aggregate(Count(), Sum("a"), Max("a"), Mean("a")).take_all()
        for key, row in enumerate(found):
            members = [number for number in SHUFFLED if number % 7 == key]
            assert row == {
                "k": key,
                "count()": len(members),
                "sum(a)": sum(members),
                "max(a)": max(members),
                "mean(a)": pytest.approx(sum(members) / len(members)),
            }
        assert len(found) == 7

    def test_by_two_columns(self) -> None:
        found = shuffled().groupby(["k", "s"]).count().take_all()
        assert sum(row["count()"] for row in found) == 300
        assert len(found) == len({(number % 7, number % 13) for number in SHUFFLED})

    @pytest.mark.starts_session
    def test_standard_deviation_over_blocks(self) -> None:
        [row] = shuffled().filter(lambda row: row["k"] == 2).groupby("k").std("a").take_all()
        members = [number for number in SHUFFLED if number % 7 == 2]
        assert row["std(a)"] == pytest.approx(np.std(members, ddof=1))

    @pytest.mark.starts_session
    def test_an_aggregate_of_the_users(self) -> None:
        longest = AggregateFn(
            init=lambda key: 0,
            accumulate_row=lambda most, row: max(most, len(row["s"])),
            merge=max,
            name="longest",
        )
        assert {row["longest"] for row in shuffled().groupby("k").aggregate(longest).take_all()} == {3}

    @pytest.mark.starts_session
    def test_map_groups_gets_all_rows_of_a_group(self) -> None:
        found = shuffled().groupby("k").map_groups(lambda g: {"k": g["k"][:1], "n": [len(g["a"])]}).take_all()
        assert [row["k"] for row in found] == list(range(7))
        assert [row["n"] for row in found] == [sum(n % 7 == k for n in SHUFFLED) for k in range(7)]

    def test_aggregates_over_everything(self) -> None:
        ds = shuffled()
        assert ds.sum("a") == sum(SHUFFLED)
        assert ds.min("a") == 0
        assert ds.max(["a", "k"]) == {"max(a)": 299, "max(k)": 6}
        assert ds.mean("a") == pytest.approx(149.5)
        assert ds.std("a") == pytest.approx(np.std(range(300), ddof=1))
        assert ds.aggregate(Count(), Std("k"))["count()"] == 300
        assert sorted(ds.unique("k")) == list(range(7))


@pytest.mark.usefixtures("sizes")
class TestJoining:
    def left(self) -> Any:
        return skate.data.from_items(
            [{"id": i, "l": f"l{i}"} for i in range(0, 60, 2)], override_num_blocks=3
        )

    def right(self) -> Any:
        return skate.data.from_items(
            [{"id": i, "r": f"r{i}"} for i in range(0, 60, 3)], override_num_blocks=2
        )

    @pytest.mark.parametrize(
        ("how", "ids"),
        [
            ("inner", range(0, 60, 6)),
            ("left_outer", range(0, 60, 2)),
            ("right_outer", range(0, 60, 3)),
            ("full_outer", sorted({*range(0, 60, 2), *range(0, 60, 3)})),
            ("left_semi", range(0, 60, 6)),
            ("left_anti", [i for i in range(0, 60, 2) if i % 6]),
            ("right_semi", range(0, 60, 6)),
            ("right_anti", [i for i in range(0, 60, 3) if i % 6]),
        ],
    )
    def test_every_kind(self, how: str, ids: Any) -> None:
        found = self.left().join(self.right(), how, on="id").take_all()
        assert sorted(row["id"] for row in found) == list(ids)
        for row in found:
            assert row.get("l") in (None, f"l{row['id']}")
            assert row.get("r") in (None, f"r{row['id']}")

    @pytest.mark.starts_session
    def test_names_of_keys_may_differ(self) -> None:
        right = self.right().rename_columns({"id": "number"})
        found = self.left().join(right, "inner", on="id", right_on="number").take_all()
        assert sorted(row["id"] for row in found) == list(range(0, 60, 6))


@pytest.mark.starts_session
def test_a_small_side_of_a_join_meets_a_large_one_in_order() -> None:
    large = skate.data.range(200, override_num_blocks=8).map(
        lambda row: {"id": row["id"] % 10, "n": row["id"]}
    )
    small = skate.data.from_items([{"id": i, "word": f"w{i}"} for i in range(0, 10, 3)])
    found = large.join(small, "inner", on="id").take_all()
    assert [row["n"] for row in found] == [n for n in range(200) if n % 10 in (0, 3, 6, 9)]
    assert all(row["word"] == f"w{row['id']}" for row in found)


@pytest.mark.starts_session
def test_union_puts_datasets_one_after_the_other() -> None:
    first, second = skate.data.range(5, override_num_blocks=2), skate.data.range(3)
    assert [row["id"] for row in first.union(second, first).take_all()] == [
        0,
        1,
        2,
        3,
        4,
        0,
        1,
        2,
        0,
        1,
        2,
        3,
        4,
    ]


def mixed(rows: list[int], **options: Any) -> list[int]:
    """Mix datasets of so many rows, in blocks of ten; return whose rows came when."""
    first, *others = (
        skate.data.from_items([{"of": place}] * count, override_num_blocks=count // 10)
        for place, count in enumerate(rows)
    )
    return [row["of"] for row in first.mix(*others, **options).take_all()]


def test_a_mix_keeps_the_shares_at_any_time() -> None:
    found = mixed([150, 50], weights=[0.75, 0.25])
    assert all(found[start : start + 40].count(0) == 30 for start in range(0, 200, 40))


def test_a_mix_goes_on_without_what_has_ended() -> None:
    found = mixed([100, 20])
    assert found[:40].count(1) == 20
    assert found[40:] == [0] * 80


def test_a_mix_can_end_with_the_shortest() -> None:
    condition = skate.data.MixStoppingCondition.STOP_ON_SHORTEST
    found = mixed([100, 20], stopping_condition=condition)
    assert found.count(1) == 20
    assert abs(found.count(0) - 20) <= 10


@pytest.mark.starts_session
def test_zip_lays_datasets_side_by_side_whatever_their_blocks() -> None:
    left = skate.data.range(10, override_num_blocks=3)
    right = skate.data.range(10, override_num_blocks=4).map(lambda row: {"x": -row["id"]})
    assert left.zip(right).take_all() == [{"id": i, "x": -i} for i in range(10)]


@pytest.mark.starts_session
def test_zip_of_different_lengths_is_an_error() -> None:
    with pytest.raises(ValueError, match="different number of rows"):
        skate.data.range(3).zip(skate.data.range(4)).take_all()


@pytest.mark.starts_session
def test_limit_gives_the_first_rows() -> None:
    ds = skate.data.range(100, override_num_blocks=10)
    assert [row["id"] for row in ds.limit(25).take_all()] == list(range(25))
    assert ds.limit(0).take_all() == []
    assert ds.limit(1000).count() == 100


@pytest.mark.starts_session
@pytest.mark.parametrize("blocks", [1, 3, 20])
def test_repartition_cuts_into_equal_blocks_in_order(blocks: int) -> None:
    kept = skate.data.range(50, override_num_blocks=7).repartition(blocks).materialize()
    assert kept.num_blocks() == blocks
    assert [row["id"] for row in kept.take_all()] == list(range(50))


@pytest.mark.starts_session
@pytest.mark.parametrize("keys", ["k", ["k"]])
def test_repartition_by_keys_brings_equal_ones_together(keys: str | list[str]) -> None:
    kept = shuffled().repartition(3, keys=keys).materialize()
    assert kept.num_blocks() == 3
    seen = [{row["k"] for row in part.take_all()} for part in _blocks(kept)]
    assert sum(map(len, seen)) == 7


@pytest.mark.starts_session
def test_repartition_into_blocks_of_exactly_so_many_rows() -> None:
    ds = skate.data.range(50, override_num_blocks=7)
    kept = ds.repartition(target_num_rows_per_block=20, strict=True).materialize()
    assert [part.count() for part in _blocks(kept)] == [20, 20, 10]
    assert [row["id"] for row in kept.take_all()] == list(range(50))


@pytest.mark.starts_session
def test_repartition_into_blocks_of_at_most_so_many_rows_leaves_smaller_ones_as_they_are() -> None:
    ds = skate.data.range(50, override_num_blocks=2)
    kept = ds.repartition(target_num_rows_per_block=20).materialize()
    assert [part.count() for part in _blocks(kept)] == [20, 5, 20, 5]
    assert [row["id"] for row in kept.take_all()] == list(range(50))


@pytest.mark.starts_session
def test_a_repartition_by_rows_is_over_as_soon_as_nobody_wants_more(where: str) -> None:
    ds = skate.data.range(10_000, override_num_blocks=50).repartition(
        target_num_rows_per_block=30, strict=True
    )
    assert [row["id"] for row in ds.take(45)] == list(range(45))


@pytest.mark.starts_session
def test_a_random_sample_has_about_its_share() -> None:
    ds = skate.data.range(2000, override_num_blocks=4)
    assert 350 < ds.random_sample(0.25, seed=1).count() < 650
    assert ds.random_sample(0.25, seed=1).take_all() == ds.random_sample(0.25, seed=1).take_all()


@pytest.mark.starts_session
def test_blocks_come_in_another_order_each_time_if_the_seed_is_to_be_drawn_from_anew() -> None:
    ds = skate.data.range(100, override_num_blocks=10)
    anew = ds.randomize_block_order(seed=RandomSeedConfig(3, reseed_after_execution=True))
    assert anew.take_all() != anew.take_all()
    same = ds.randomize_block_order(seed=3)
    assert same.take_all() == same.take_all()


@pytest.mark.starts_session
def test_blocks_come_in_a_random_order() -> None:
    ds = skate.data.range(100, override_num_blocks=10).randomize_block_order(seed=2)
    found = [row["id"] for row in ds.take_all()]
    assert found != list(range(100))
    assert sorted(found) == list(range(100))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ds: ds.sort("nothing").take_all(), "nothing"),
        (lambda ds: ds.sort(None), "key"),
        (lambda ds: ds.sort(["a", "k"], descending=[True]), "descending"),
        (lambda ds: ds.groupby("nothing").count().take_all(), "nothing"),
        (lambda ds: ds.join(ds, "sideways", on="a"), "sideways"),
        (lambda ds: ds.limit(-1), "negative"),
        (lambda ds: ds.random_sample(2), "between 0 and 1"),
        (lambda ds: ds.repartition(), "num_blocks"),
        (lambda ds: ds.mix(ds, weights=[1]), "weight"),
        (lambda ds: ds.mix(ds, weights=[1, 0]), "positive"),
        (lambda ds: ds.repartition(0), "positive"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, words: str) -> None:
    with pytest.raises((ValueError, KeyError), match=words):
        call(shuffled())


def _blocks(kept: Any) -> list[Any]:
    from skate.data._plan import nodes
    from skate.data.dataset import MaterializedDataset

    return [MaterializedDataset(nodes.Values((item,))) for item in kept._node.items]
