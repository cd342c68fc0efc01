"""When silent workers are asked, and when they hang."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skate.train._workers.watch import Watch


def watch(world: int = 2, limit: float | None = None) -> Watch:
    return Watch(range(world), 0.0, limit=limit, silence=60.0, patience=600.0, recheck=10.0)


def test_silent_workers_are_asked_and_have_to_answer() -> None:
    found = watch()
    found.heard(1, 30.0)
    assert found.due() == 60.0
    assert found.to_ask(60.0) == [0]
    found.asked(0, 60.0)
    assert found.to_ask(60.0) == []
    assert found.mute(659.0) == []
    assert found.mute(660.0) == [0]
    found.answered(0, 600.0)
    assert found.mute(660.0) == []
    assert found.to_ask(659.0) == [1]
    assert found.to_ask(660.0) == [0, 1]


def test_a_word_from_any_worker_keeps_a_run_from_hanging() -> None:
    found = watch(limit=10.0)
    found.heard(0, 1.0)
    found.heard(1, 9.0)
    assert not found.hangs(18.9)
    assert found.hangs(19.0)
    assert found.silent_for(0, 19.0) == 18.0


def test_a_run_does_not_hang_before_all_have_begun() -> None:
    found = watch(limit=10.0)
    found.heard(0, 1.0)
    assert not found.hangs(50.0)
    found.heard(1, 50.0)
    assert not found.hangs(59.9)
    assert found.hangs(60.0)


def test_an_answer_is_no_word_of_the_training_function() -> None:
    found = watch(limit=100.0)
    found.heard(0, 0.0)
    found.heard(1, 0.0)
    found.asked(0, 60.0)
    found.answered(0, 60.0)
    assert found.hangs(100.0)


def test_after_a_worker_has_returned_silent_ones_are_asked_sooner() -> None:
    found = watch()
    found.heard(1, 30.0)
    found.returned(0, 31.0)
    assert found.due() == 40.0
    assert found.to_ask(40.0) == [1]
    found.asked(1, 40.0)
    found.answered(1, 41.0)
    assert found.due() == 51.0


def test_workers_that_have_ended_are_not_watched() -> None:
    found = watch(limit=10.0)
    found.ended(0, 1.0)
    found.ended(1, 1.0)
    assert (found.due(), found.hangs(99.0), found.to_ask(99.0), found.mute(9999.0)) == (None, False, [], [])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["heard", "asked", "answered", "ended"]), st.integers(0, 2), st.integers(0, 50)
        )
    )
)
def test_nothing_is_due_before_its_time_and_something_is_at_it(story: list[tuple[str, int, int]]) -> None:
    found = watch(3, limit=500.0)
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
        return bool(found.to_ask(at) or found.mute(at) or found.hangs(at))

    assert wants(due)
    assert not wants(due - 0.5)
