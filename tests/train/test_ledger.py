"""Which reports are complete, and which checkpoints are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from skate.train._ledger import Completed, Kept, Ledger, best

LOSS = {"loss": 1.0}


def named(index: int) -> str:
    return f"checkpoint_{index:06d}"


def test_a_report_is_complete_when_all_workers_have_made_it() -> None:
    ledger = Ledger(2)
    assert ledger.announced(0, {"loss": 1}) == []
    assert ledger.announced(1, {"loss": 2}) == [Completed(0, [{"loss": 1}, {"loss": 2}])]


def test_a_checkpoint_is_complete_when_all_its_parts_are_stored() -> None:
    ledger = Ledger(2)
    ledger.announced(0, LOSS, named(0))
    ledger.announced(1, LOSS, named(0))
    assert ledger.stored(1, 0) == []
    assert ledger.unfinished == [named(0)]
    (done,) = ledger.stored(0, 0)
    assert done.checkpoint == Kept(0, named(0), LOSS)
    assert ledger.unfinished == []


def test_a_fast_worker_does_not_complete_what_a_slow_one_adds_to() -> None:
    ledger = Ledger(2)
    for index in range(2):
        ledger.announced(0, LOSS, named(index))
        ledger.announced(1, LOSS, named(index))
        ledger.stored(0, index)
        ledger.stored(1, index)
    for index in range(2, 9):
        ledger.announced(0, LOSS, named(index))
        assert ledger.stored(0, index) == []
    ledger.announced(1, LOSS, named(2))
    assert [done.index for done in ledger.stored(1, 2)] == [2]


def test_one_worker_may_report_alone() -> None:
    ledger = Ledger(3)
    done: list[Completed] = []
    for index in range(5):
        done += ledger.announced(0, {"step": index}, named(index))
        done += ledger.stored(0, index)
    assert [each.index for each in done] == [0, 1, 2]  # for the last two the others may still come
    for rank in (1, 2):
        done += ledger.ended(rank)
    assert [each.index for each in done] == [0, 1, 2, 3, 4]
    assert all(each.checkpoint is not None for each in done)


def test_what_could_not_be_stored_is_no_checkpoint() -> None:
    ledger = Ledger(2)
    ledger.announced(0, LOSS, named(0))
    ledger.announced(1, LOSS, named(0))
    ledger.stored(0, 0, lost="rank 0: OSError: disk full")
    (done,) = ledger.stored(1, 0)
    assert (done.checkpoint, done.lost) == (None, "rank 0: OSError: disk full")
    assert ledger.kept == []


def test_the_latest_are_kept() -> None:
    ledger = Ledger(1, keep=2)
    dropped: list[Kept] = []
    for index in range(4):
        ledger.announced(0, LOSS, named(index))
        for done in ledger.stored(0, index):
            dropped += done.dropped
    assert [each.index for each in ledger.kept] == [2, 3]
    assert [each.index for each in dropped] == [0, 1]


def test_the_best_are_kept_and_the_latest_to_go_on_from() -> None:
    ledger = Ledger(1, keep=2, score="accuracy")
    for index, accuracy in enumerate([0.9, 0.5, 0.7, 0.1]):
        ledger.announced(0, {"accuracy": accuracy}, named(index))
        ledger.stored(0, index)
    assert [each.metrics["accuracy"] for each in ledger.kept] == [0.9, 0.1]


def test_a_checkpoint_without_a_score_is_the_worst() -> None:
    scored = [
        Kept(0, "a", {"loss": 3.0}),
        Kept(1, "b", {"loss": float("nan")}),
        Kept(2, "c", {}),
        Kept(3, "d", {"loss": 2}),
    ]
    assert best(scored, "loss", "min") == scored[3]
    assert best(scored, "loss", "max") == scored[0]
    assert best(scored, "accuracy", "max") is None


def test_reports_of_a_new_attempt_are_counted_on() -> None:
    ledger = Ledger(1, first=7, kept=[Kept(6, named(6), LOSS)])
    assert [done.index for done in ledger.announced(0, LOSS)] == [7]
    assert ledger.index_of(0) == 8


@st.composite
def stories(draw: Any) -> tuple[int, list[tuple[str, int]]]:
    """Workers that each make some reports with checkpoints, store them, and end, in any order between them."""
    world = draw(st.integers(1, 4))
    reports = draw(st.integers(0, 5))
    lanes = {rank: ["announced", "stored"] * reports + ["ended"] for rank in range(world)}
    order = draw(st.permutations([rank for rank, lane in lanes.items() for _ in lane]))
    return reports, [(lanes[rank].pop(0), rank) for rank in order]


@given(stories())
def test_in_any_order_each_report_is_complete_once_and_in_its_turn(
    story: tuple[int, list[tuple[str, int]]],
) -> None:
    reports, events = story
    ledger = Ledger(1 + max(rank for _, rank in events))
    stored = dict.fromkeys(range(5), 0)
    done: list[Completed] = []
    for event, rank in events:
        match event:
            case "announced":
                done += ledger.announced(rank, {"rank": rank}, named(ledger.index_of(rank)))
            case "stored":
                done += ledger.stored(rank, stored[rank])
                stored[rank] += 1
            case _:
                done += ledger.ended(rank)
    assert [each.index for each in done] == list(range(reports))
    assert ledger.unfinished == []
    assert [each.index for each in ledger.kept] == list(range(reports))
