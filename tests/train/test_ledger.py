"""Which reports are complete, and which checkpoints are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from skate.train._reports.report_ledger import CompletedReport, KeptCheckpoint, ReportLedger, Status, best

LOSS = {"loss": 1.0}


def named(index: int) -> str:
    return f"checkpoint_{index:06d}"


def test_a_report_is_complete_when_all_workers_have_made_it() -> None:
    ledger = ReportLedger(2)
    assert ledger.reported(0, {"loss": 1}) == []
    assert ledger.reported(1, {"loss": 2}) == [CompletedReport(0, [{"loss": 1}, {"loss": 2}])]


def test_a_checkpoint_is_complete_when_all_its_parts_are_stored() -> None:
    ledger = ReportLedger(2)
    ledger.reported(0, LOSS, named(0))
    ledger.reported(1, LOSS, named(0))
    assert ledger.stored(1, 0) == []
    assert ledger.unfinished == [named(0)]
    (done,) = ledger.stored(0, 0)
    assert done.checkpoint == KeptCheckpoint(0, named(0), LOSS)
    assert ledger.unfinished == []


def test_a_fast_worker_does_not_complete_what_a_slow_one_adds_to() -> None:
    ledger = ReportLedger(2)
    for index in range(2):
        ledger.reported(0, LOSS, named(index))
        ledger.reported(1, LOSS, named(index))
        ledger.stored(0, index)
        ledger.stored(1, index)
    for index in range(2, 9):
        ledger.reported(0, LOSS, named(index))
        assert ledger.stored(0, index) == []
    ledger.reported(1, LOSS, named(2))
    assert [done.index for done in ledger.stored(1, 2)] == [2]


def test_one_worker_may_report_alone() -> None:
    ledger = ReportLedger(3)
    done: list[CompletedReport] = []
    for index in range(2):
        done += ledger.reported(0, {"step": index}, named(index))
        done += ledger.stored(0, index)
    assert not done  # the others may still come
    for rank in (1, 2):
        done += ledger.ended(rank)
    assert [each.index for each in done] == [0, 1]
    assert all(each.checkpoint is not None for each in done)


def test_what_could_not_be_stored_is_no_checkpoint() -> None:
    ledger = ReportLedger(2)
    ledger.reported(0, LOSS, named(0))
    ledger.reported(1, LOSS, named(0))
    ledger.stored(0, 0, lost="rank 0: OSError: disk full")
    (done,) = ledger.stored(1, 0)
    assert (done.checkpoint, done.lost) == (None, "rank 0: OSError: disk full")
    assert ledger.kept == []


def test_the_latest_are_kept() -> None:
    ledger = ReportLedger(1, keep=2)
    dropped: list[KeptCheckpoint] = []
    for index in range(4):
        ledger.reported(0, LOSS, named(index))
        for done in ledger.stored(0, index):
            dropped += done.dropped
    assert [each.index for each in ledger.kept] == [2, 3]
    assert [each.index for each in dropped] == [0, 1]


def test_the_best_are_kept_and_the_latest_to_go_on_from() -> None:
    ledger = ReportLedger(1, keep=2, score="accuracy")
    for index, accuracy in enumerate([0.9, 0.5, 0.7, 0.1]):
        ledger.reported(0, {"accuracy": accuracy}, named(index))
        ledger.stored(0, index)
    assert [each.metrics["accuracy"] for each in ledger.kept] == [0.9, 0.7, 0.1]


def test_a_checkpoint_that_comes_late_is_kept_with_what_the_others_said() -> None:
    ledger = ReportLedger(2)
    for step in range(5):
        ledger.reported(1, {"step": step}, positions={"train": step})
    assert ledger.next > 1  # nobody knew yet that the other gives checkpoints
    assert ledger.reported(0, {"step": 0}) == []
    assert ledger.reported(0, {"step": 1}, named(1), positions={"train": 10}) == []
    assert ledger.unfinished == [named(1)]
    (late,) = ledger.stored(0, 1)
    assert late.checkpoint is not None
    assert late.checkpoint.metrics == {"step": 1}
    assert late.checkpoint.positions == [{"train": 10}, {"train": 1}]
    assert ledger.kept == [late.checkpoint]
    assert ledger.unfinished == []


def test_a_part_that_comes_late_joins_its_checkpoint() -> None:
    ledger = ReportLedger(3)
    for step in range(5):
        ledger.reported(2, {"step": step})
    for rank in (0, 1):
        ledger.reported(rank, {"rank": rank}, named(0))
        ledger.stored(rank, 0)
    assert [each.name for each in ledger.kept] == [named(0)]


def test_the_latest_checkpoint_stays_the_latest_when_an_earlier_one_comes_late() -> None:
    ledger = ReportLedger(2)
    for step in range(5):
        ledger.reported(1, {"step": step}, named(step) if step == 2 else None)
    ledger.stored(1, 2)
    ledger.reported(0, {"step": 0}, named(0))
    ledger.stored(0, 0)
    assert [each.index for each in ledger.kept] == [0, 2]


def test_a_checkpoint_without_a_score_is_the_worst() -> None:
    scored = [
        KeptCheckpoint(0, "a", {"loss": 3.0}),
        KeptCheckpoint(1, "b", {"loss": float("nan")}),
        KeptCheckpoint(2, "c", {}),
        KeptCheckpoint(3, "d", {"loss": 2}),
    ]
    assert best(scored, "loss", "min") == scored[3]
    assert best(scored, "loss", "max") == scored[0]
    assert best(scored, "accuracy", "max") is None


def test_reports_of_a_new_attempt_are_counted_on() -> None:
    ledger = ReportLedger(1, first=7, kept=[KeptCheckpoint(6, named(6), LOSS)])
    assert [done.index for done in ledger.reported(0, LOSS)] == [7]
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
def test_in_any_order_each_report_is_complete_in_its_turn_and_perhaps_again_with_a_late_part(
    story: tuple[int, list[tuple[str, int]]],
) -> None:
    reports, events = story
    ledger = ReportLedger(1 + max(rank for _, rank in events))
    stored = dict.fromkeys(range(5), 0)
    done: list[CompletedReport] = []
    for event, rank in events:
        match event:
            case "announced":
                done += ledger.reported(rank, {"rank": rank}, named(ledger.index_of(rank)))
            case "stored":
                done += ledger.stored(rank, stored[rank])
                stored[rank] += 1
            case _:
                done += ledger.ended(rank)
    assert list(dict.fromkeys(each.index for each in done)) == list(range(reports))
    assert ledger.unfinished == []
    assert [each.index for each in ledger.kept] == list(range(reports))


def test_what_waits_to_be_validated_is_not_dropped() -> None:
    ledger = ReportLedger(1, keep=1, score="accuracy")
    for index, accuracy in enumerate([0.2, 0.1, 0.3]):
        ledger.reported(0, {"accuracy": accuracy}, named(index), validation={})
        ledger.stored(0, index)
    assert [each.status for each in ledger.kept] == [Status.PENDING_VALIDATION] * 3
    assert ledger.validated(1, Status.VALIDATED, {"accuracy": 0.9}) == []
    assert [each.index for each in ledger.validated(0, Status.VALIDATION_FAILED, {})] == [0]
    assert ledger.validated(2, Status.VALIDATED, {"accuracy": 0.4}) == []
    assert [(each.index, each.metrics["accuracy"]) for each in ledger.kept] == [(1, 0.9), (2, 0.4)]


def test_the_first_of_several_says_how_to_validate() -> None:
    ledger = ReportLedger(3)
    for rank in (2, 1, 0):
        ledger.reported(rank, LOSS, named(0), validation={"rank": rank} if rank else None)
        ledger.stored(rank, 0)
    assert ledger.kept[0].validation == {"rank": 1}


def test_a_part_that_comes_late_and_is_lost_leaves_the_others() -> None:
    ledger = ReportLedger(2)
    for index in range(4):
        ledger.reported(0, LOSS, named(index))
        ledger.stored(0, index)
    assert [each.index for each in ledger.kept] == [0, 1, 2, 3]
    ledger.reported(1, LOSS, named(0))
    assert named(0) not in ledger.unfinished
    (done,) = ledger.stored(1, 0, lost="rank 1: OSError: disk full")
    assert (done.lost, done.lost_name) == ("rank 1: OSError: disk full", None)
    assert [each.index for each in ledger.kept] == [0, 1, 2, 3]


@st.composite
def validations(draw: Any) -> tuple[int, list[tuple[str, int]]]:
    """Checkpoints of one worker, some of which are validated, at any time after they are stored."""
    count = draw(st.integers(1, 6))
    wanted = draw(st.sets(st.integers(0, count - 1)))
    events = [
        ("reported, to be validated" if index in wanted else "reported", index) for index in range(count)
    ]
    for index in sorted(wanted):
        after = events.index(("reported, to be validated", index)) + 1
        events.insert(draw(st.integers(after, len(events))), ("validated", index))
    return draw(st.integers(1, 3)), events


@given(validations(), st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_whenever_validations_end_the_best_and_the_latest_are_kept(
    story: tuple[int, list[tuple[str, int]]], scores: list[float]
) -> None:
    keep, events = story
    ledger = ReportLedger(1, keep=keep, score="score")
    pending: set[int] = set()
    gone: list[int] = []
    for event, index in events:
        if event == "validated":
            pending.discard(index)
            dropped = ledger.validated(index, Status.VALIDATED, {"score": scores[index]})
        else:
            validation = {} if event != "reported" else None
            pending |= {index} if validation is not None else set()
            ledger.reported(0, {"score": scores[index]}, named(index), validation=validation)
            (done,) = ledger.stored(0, index)
            dropped = list(done.dropped)
        gone += [each.index for each in dropped]
        here = {each.index for each in ledger.kept}
        assert pending == {each.index for each in ledger.kept if each.is_pending}
        assert len(here - pending) <= keep + 1
    count = sum(event != "validated" for event, _ in events)
    assert sorted([*gone, *(each.index for each in ledger.kept)]) == list(range(count))
    assert ledger.kept[-1].index == count - 1
    assert len(ledger.kept) <= keep + 1
    assert max(scores[:count]) in [scores[each.index] for each in ledger.kept]


def test_a_worker_that_never_reports_is_waited_for_once() -> None:
    ledger = ReportLedger(2)
    done = []
    for index in range(4):
        done += ledger.reported(0, {"step": index}, f"checkpoint_{index}")
        done += ledger.stored(0, index)
        if index < 2:
            assert not done
    assert [each.index for each in done] == [0, 1, 2, 3]
    assert [each.name for each in ledger.kept] == [f"checkpoint_{index}" for index in range(4)]
    # One that comes at last adds its part.
    late = ledger.reported(1, {}, "checkpoint_0") + ledger.stored(1, 0)
    assert [each.index for each in late] == [0]
    assert len(ledger.kept) == 4


def test_a_worker_whose_reports_are_needed_is_waited_for_until_it_ends() -> None:
    ledger = ReportLedger(2, waits_for=[0])
    assert [done for index in range(5) for done in ledger.reported(1, {"step": index})] == []
    assert [each.index for each in ledger.reported(0, {"step": 0})] == [0]
    assert [each.index for each in ledger.ended(0)] == [1, 2, 3, 4]


def test_what_will_be_a_checkpoint_is_known_while_it_is_stored() -> None:
    ledger = ReportLedger(2)
    for rank in (0, 1):
        ledger.reported(rank, LOSS, named(0))
    assert ledger.is_storing({0, 1}, ledger.end)
    assert not ledger.is_storing({0}, ledger.end), "who is gone stores nothing more"
    ledger.stored(1, 0)
    assert ledger.is_storing({0}, ledger.end)
    ledger.reported(0, LOSS, named(1))
    assert not ledger.is_storing({0}, 0), "what was reported later does not count"
    ledger.stored(0, 0)
    assert not ledger.is_storing({0, 1}, ledger.end), "a worker has not made the second report, and may never"
    ledger.reported(1, LOSS)
    assert ledger.is_storing({0, 1}, ledger.end)
    ledger.stored(0, 1, lost="the disk is full")
    assert not ledger.is_storing({0, 1}, ledger.end)


def test_a_part_that_comes_late_and_cannot_be_stored_holds_up_no_other_checkpoint() -> None:
    ledger = ReportLedger(2)
    for index in range(3):
        ledger.reported(0, LOSS, named(index))
        ledger.stored(0, index)
    ledger.reported(1, LOSS, named(0))
    assert not ledger.is_storing({0}, ledger.end)
    assert ledger.is_storing({1}, ledger.end)
    for _ in range(3):
        ledger.reported(1, LOSS)
    ledger.reported(0, LOSS, named(3))
    assert ledger.is_storing({0}, ledger.end)
