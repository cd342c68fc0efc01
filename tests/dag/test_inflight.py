"""Counting executions of compiled graphs."""

from __future__ import annotations

import pytest

from skate.dag._inflight import InflightExecutions
from skate.exceptions import RayCgraphCapacityExceeded


def ledger(*, max_inflight: int = 3, max_buffered: int = 10, num_outputs: int = 1) -> InflightExecutions:
    return InflightExecutions(max_inflight, max_buffered, num_outputs)


def test_executions_are_numbered_from_zero() -> None:
    counts = ledger()
    assert [counts.submit(), counts.submit()] == [0, 1]
    assert counts.inflight == 2


def test_too_many_executions_in_flight_are_refused() -> None:
    counts = ledger(max_inflight=2)
    counts.submit()
    counts.submit()
    with pytest.raises(RayCgraphCapacityExceeded, match="2 executions of the compiled graph are in flight"):
        counts.submit()
    assert counts.inflight == 2


def test_fetching_a_result_makes_room() -> None:
    counts = ledger(max_inflight=1)
    counts.fetch(counts.submit())
    assert counts.submit() == 1


def test_fetching_a_later_result_buffers_the_earlier_ones() -> None:
    counts = ledger()
    counts.submit()
    counts.submit()
    counts.check_fetch(1)
    counts.fetch(1)
    counts.settle(1, 0)
    assert (counts.inflight, counts.buffered) == (0, 1)
    counts.check_fetch(0)
    counts.settle(0, 0)
    assert counts.buffered == 0


def test_too_many_buffered_results_are_refused() -> None:
    counts = ledger(max_buffered=1)
    counts.submit()
    counts.submit()
    with pytest.raises(RayCgraphCapacityExceeded, match=r"would buffer those of 2 executions .* allows 1"):
        counts.check_fetch(1)
    counts.check_fetch(0)


def test_outputs_not_asked_for_count_as_buffered() -> None:
    counts = ledger(max_buffered=1, num_outputs=2)
    counts.submit()
    counts.submit()
    counts.check_fetch(0)
    counts.fetch(0)
    counts.settle(0, 0)
    with pytest.raises(RayCgraphCapacityExceeded, match="would buffer"):
        counts.check_fetch(1)
    counts.settle(0, 1)
    counts.check_fetch(1)


def test_an_execution_nobody_wants_is_abandoned() -> None:
    counts = ledger()
    counts.submit()
    assert counts.find_abandoned() is None
    counts.settle(0, 0)
    assert counts.find_abandoned() == 0
    assert not counts.is_over(0)
    counts.fetch(0)
    assert counts.find_abandoned() is None
    assert counts.is_over(0)


def test_only_the_oldest_execution_can_be_passed_over() -> None:
    counts = ledger()
    counts.submit()
    counts.submit()
    counts.settle(1, 0)
    assert counts.find_abandoned() is None
    counts.fetch(0)
    assert counts.find_abandoned() == 1


def test_settling_twice_does_nothing() -> None:
    counts = ledger()
    counts.submit()
    counts.settle(0, 0)
    counts.settle(0, 0)
    assert counts.find_abandoned() == 0
