"""Shards of a dataset, and resuming with another number of readers: each row is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skate.data._iteration.position import PositionTracker, StartPosition, merge_positions
from skate.data._iteration.row_ranges import UsedRows, UsedRowsTally
from skate.data._iteration.sharding import ShardUsage, StripedSharder, remaining, stripe_for


@dataclass(frozen=True)
class Some:
    """Rows of a sequence, by their numbers."""

    start: int
    rows: int

    def cut(self, start: int, stop: int) -> Some:
        return Some(self.start + start, stop - start)


def numbers(items: list[Some]) -> list[int]:
    return [number for item in items for number in range(item.start, item.start + item.rows)]


def sequence(sizes: list[int]) -> Iterator[Some]:
    start = 0
    for size in sizes:
        yield Some(start, size)
        start += size


def dealt_out(items: Iterator[Some], readers: int, stripe: int) -> list[list[int]]:
    dealer: StripedSharder[Some] = StripedSharder(readers, stripe)
    hands: list[list[int]] = [[] for _ in range(readers)]
    for item in items:
        for reader, cut in dealer.take(item):
            hands[reader] += numbers([cut])
    for reader, cut in dealer.end():
        hands[reader] += numbers([cut])
    return hands


SIZES = st.lists(st.integers(0, 40), max_size=12)
READERS = st.integers(1, 5)
STRIPE = st.integers(1, 20)


@given(SIZES, READERS, STRIPE)
def test_everybody_gets_as_many_rows_and_no_row_goes_to_two(
    sizes: list[int], readers: int, stripe: int
) -> None:
    hands = dealt_out(sequence(sizes), readers, stripe)
    assert len({len(hand) for hand in hands}) == 1
    got = sorted(number for hand in hands for number in hand)
    assert len(set(got)) == len(got)
    assert sum(sizes) - len(got) < readers
    assert all(hand == sorted(hand) for hand in hands)


@given(SIZES, SIZES, READERS, STRIPE)
def test_how_a_sequence_is_cut_into_blocks_does_not_matter(
    sizes: list[int], others: list[int], readers: int, stripe: int
) -> None:
    missing = sum(sizes) - sum(others)
    if missing >= 0:
        others = [*others, missing]
    else:
        sizes = [*sizes, -missing]
    assert dealt_out(sequence(sizes), readers, stripe) == dealt_out(sequence(others), readers, stripe)


@given(SIZES, st.lists(st.tuples(READERS, STRIPE), min_size=1, max_size=4), st.data())
def test_readers_that_go_on_after_others_get_each_row_that_is_left_once(
    sizes: list[int], generations: list[tuple[int, int]], data: Any
) -> None:
    used_by_anybody: list[int] = []
    layers: list[ShardUsage] = []

    def rest() -> Iterator[Some]:
        items = sequence(sizes)
        for layer in layers:
            items = remaining(items, layer)
        return items

    for readers, stripe in generations:
        hands = dealt_out(rest(), readers, stripe)
        used = []
        for hand in hands:
            tally = UsedRowsTally()
            if data.draw(st.booleans()):  # in order
                count = data.draw(st.integers(0, len(hand)))
                tally.add(count)
                used_by_anybody += hand[:count]
            else:  # through a shuffle
                places = data.draw(st.sets(st.integers(0, max(0, len(hand) - 1)), max_size=len(hand)))
                tally.add(np.array(sorted(places), np.int64))
                used_by_anybody += [hand[place] for place in places]
            used.append(UsedRows.from_json(tally.used().as_json()))
        layers.append(ShardUsage(stripe, tuple(used)))
    left = numbers(list(rest()))
    assert left == sorted(left)
    assert sorted(used_by_anybody + left) == list(range(sum(sizes)))


@given(st.lists(st.lists(st.integers(0, 60), unique=True), max_size=6))
def test_a_tally_knows_which_rows_were_used_in_whatever_order(batches: list[list[int]]) -> None:
    tally, seen = UsedRowsTally(), set()
    for batch in batches:
        fresh = [number for number in batch if number not in seen]
        tally.add(np.array(fresh, np.int64))
        seen.update(fresh)
    unused = [number for start, stop in tally.used().unused(0, 100) for number in range(start, stop)]
    assert unused == [number for number in range(100) if number not in seen]


def test_everybody_has_rows_when_the_first_block_is_there() -> None:
    assert stripe_for(100, 4) == 25
    assert stripe_for(3, 4) == 1
    assert stripe_for(10**9, 2) == 4096


def reader(
    start: StartPosition, *, stripe: int = 4, used: int | None = None, passes: int = 0
) -> dict[str, Any]:
    """Return the position of a reader that has used some rows of a pass, after some others."""
    tracker = PositionTracker(start)
    tracker.stripe = stripe
    for _ in range(passes):
        list(tracker.follow(iter([(1, "row")])))
    if used is None:
        return tracker.position()
    following = tracker.follow(iter([(used, "rows"), (1, "more")]))
    next(following)
    return tracker.position()


def test_between_two_passes_the_next_one_begins_at_its_first_row() -> None:
    start = StartPosition(0, 7)
    assert merge_positions([reader(start, passes=2), reader(start, passes=2)]) == StartPosition(2, 7)


def test_a_reader_that_has_ended_its_pass_has_used_all_of_it() -> None:
    start = StartPosition(0, 7)
    found = merge_positions([reader(start, passes=1), reader(start, used=5)])
    assert found == StartPosition(0, 7, (ShardUsage(4, (UsedRows.all_rows(), UsedRows(5))),))


def test_a_reader_that_says_nothing_stands_where_the_first_does_that_speaks() -> None:
    found = merge_positions([None, reader(StartPosition(3, 7), used=6), None])
    assert found == StartPosition(3, 7, (ShardUsage(4, (UsedRows(6), UsedRows(6), UsedRows(6))),))


def test_nothing_is_known_where_nobody_speaks() -> None:
    assert merge_positions([None, None]) is None


def test_what_was_used_before_an_earlier_interruption_is_not_forgotten() -> None:
    first = merge_positions([reader(StartPosition(1, 7), used=6)])
    assert first is not None
    second = merge_positions([reader(first, used=2, stripe=1), reader(first, used=3, stripe=1)])
    assert second == StartPosition(
        1, 7, (ShardUsage(4, (UsedRows(6),)), ShardUsage(1, (UsedRows(2), UsedRows(3))))
    )
    assert merge_positions([reader(first, passes=1)]) == StartPosition(2, 7)


def test_the_stripe_is_that_of_a_reader_who_has_got_rows() -> None:
    found = merge_positions(
        [reader(StartPosition(0, 7), used=0, stripe=1), reader(StartPosition(0, 7), used=9, stripe=16)]
    )
    assert found == StartPosition(0, 7, (ShardUsage(16, (UsedRows(0), UsedRows(9))),))


def test_a_pass_that_is_given_up_is_over() -> None:
    tracker = PositionTracker(StartPosition(0, 7))
    following = tracker.follow(iter([(3, "rows"), (3, "rows")]))
    next(following)
    following.close()  # type: ignore[attr-defined]
    assert merge_positions([tracker.position()]) == StartPosition(1, 7)
