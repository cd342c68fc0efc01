"""When a silent worker is probed, and when it counts as hung."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skate.train._workers.liveness import LivenessTracker


def tracker(world: int = 2, hang_timeout: float | None = None) -> LivenessTracker:
    return LivenessTracker(
        range(world),
        0.0,
        hang_timeout=hang_timeout,
        probe_after=60.0,
        probe_timeout=600.0,
        recheck_after=10.0,
    )


def test_silent_workers_are_asked_and_have_to_answer() -> None:
    found = tracker()
    found.received(1, 30.0)
    assert found.due() == 60.0
    assert found.to_probe(60.0) == [0]
    found.probed(0, 60.0)
    assert found.to_probe(60.0) == []
    assert found.unresponsive(659.0) == []
    assert found.unresponsive(660.0) == [0]
    found.answered(0, 600.0)
    assert found.unresponsive(660.0) == []
    assert found.to_probe(659.0) == [1]
    assert found.to_probe(660.0) == [0, 1]


def test_a_word_from_any_worker_keeps_a_run_from_hanging() -> None:
    found = tracker(hang_timeout=10.0)
    found.received(0, 1.0)
    found.received(1, 9.0)
    assert not found.hangs(18.9)
    assert found.hangs(19.0)
    assert found.silent_for(0, 19.0) == 18.0


def test_a_run_does_not_hang_before_all_have_begun() -> None:
    found = tracker(hang_timeout=10.0)
    found.received(0, 1.0)
    assert not found.hangs(50.0)
    found.received(1, 50.0)
    assert not found.hangs(59.9)
    assert found.hangs(60.0)


def test_an_answer_is_no_word_of_the_training_function() -> None:
    found = tracker(hang_timeout=100.0)
    found.received(0, 0.0)
    found.received(1, 0.0)
    found.probed(0, 60.0)
    found.answered(0, 60.0)
    assert found.hangs(100.0)


def test_after_a_worker_has_returned_silent_ones_are_asked_sooner() -> None:
    found = tracker()
    found.received(1, 30.0)
    found.returned(0, 31.0)
    assert found.due() == 40.0
    assert found.to_probe(40.0) == [1]
    found.probed(1, 40.0)
    found.answered(1, 41.0)
    assert found.due() == 51.0


def test_workers_that_have_ended_are_not_watched() -> None:
    found = tracker(hang_timeout=10.0)
    found.ended(0, 1.0)
    found.ended(1, 1.0)
    assert (found.due(), found.hangs(99.0), found.to_probe(99.0), found.unresponsive(9999.0)) == (
        None,
        False,
        [],
        [],
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["received", "probed", "answered", "ended"]),
            st.integers(0, 2),
            st.integers(0, 50),
        )
    )
)
def test_nothing_is_due_before_its_time_and_something_is_at_it(story: list[tuple[str, int, int]]) -> None:
    found = tracker(3, hang_timeout=500.0)
    now, ended = 0.0, set()
    for event, rank, later in story:
        now += later
        if rank not in ended:
            getattr(found, event)(rank, now)
        if event == "ended":
            ended.add(rank)
    due = found.due()
    if due is None:
        assert ended == {0, 1, 2}
        return

    def wants(at: float) -> bool:
        return bool(found.to_probe(at) or found.unresponsive(at) or found.hangs(at))

    assert wants(due)
    assert not wants(due - 0.5)
