"""Health metrics of the controller, including the delay of load reports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

import skate
from skate.serve._controller.client import connect
from skate.serve._controller.health import ControllerHealth, Durations
from skate.serve.schema import ControllerHealthMetrics
from skate.util.metrics import prometheus_text
from tests.serve.conftest import light
from tests.serve.observability.test_metrics import samples, total
from tests.serve.waiting import until


def health() -> ControllerHealthMetrics:
    client = connect()
    assert client is not None
    return client.health()


def quick(**given: Any) -> dict[str, Any]:
    return {"min_replicas": 1, "max_replicas": 1, "metrics_interval_s": 0.05, **given}


@light(name="Measures", autoscaling_config=quick())
class Measures:
    """Counts how often it is asked for numbers; one that is broken fails then."""

    def __init__(self, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.asked = 0

    async def times(self) -> int:
        return self.asked

    def record_autoscaling_stats(self) -> dict[str, float]:
        self.asked += 1
        if self.is_broken:
            raise LookupError("no such number")
        return {"asked": self.asked}


@light(name="Plain", autoscaling_config=quick())
class Plain:
    async def __call__(self) -> str:
        return "hello"


class TestHealth:
    def test_a_new_one_has_done_nothing(self) -> None:
        found = asyncio.run(ControllerHealth().metrics())
        assert (found.num_control_loops, found.last_control_loop_time) == (0, 0.0)
        assert found.loop_duration_s is not None
        assert found.loop_duration_s.mean == 0.0
        assert found.handle_reports_received == 0

    def test_turns_are_counted_and_timed(self) -> None:
        known = ControllerHealth()
        for _ in range(3):
            with known.iteration():
                pass
        found = asyncio.run(known.metrics())
        assert found.num_control_loops == 3
        assert found.loop_duration_s is not None
        assert 0 < found.loop_duration_s.min <= found.loop_duration_s.mean <= found.loop_duration_s.max
        assert found.controller_start_time <= found.last_control_loop_time <= found.timestamp
        assert found.uptime_s > 0
        assert found.loops_per_second == pytest.approx(3 / found.uptime_s)

    def test_a_turn_that_fails_is_counted(self) -> None:
        known = ControllerHealth()
        with pytest.raises(KeyError), known.iteration():
            raise KeyError("on purpose")
        assert known.iterations.count == 1

    def test_reports_are_counted_by_who_sends_them(self) -> None:
        known = ControllerHealth()
        known.from_handles.add(0.002)
        known.from_handles.add(0.004)
        known.from_replicas.add(0.001)
        known.handle_delays.add(0.5)
        found = asyncio.run(known.metrics())
        assert (found.handle_reports_received, found.replica_reports_received) == (2, 1)
        assert found.ingest_reports_received == 3
        assert found.handle_ingest_duration_ms is not None
        assert found.handle_ingest_duration_ms.mean == pytest.approx(3.0)
        assert found.handle_metrics_delay_ms is not None
        assert found.handle_metrics_delay_ms.max == pytest.approx(500.0)

    def test_old_durations_are_counted_but_not_kept(self) -> None:
        durations = Durations()
        for _ in range(1000):
            durations.add(1.0)
        assert (durations.count, durations.total_s) == (1000, 1000.0)
        assert len(durations.last) < 1000


@pytest.mark.usefixtures("engine")
class TestController:
    def test_it_says_how_it_does(self, run: Callable[..., Any]) -> None:
        before = health()
        assert before.num_control_loops > 0  # it has processed the state
        assert before.process_memory_mb > 1
        assert before.num_asyncio_tasks > 0
        run(Plain.bind())
        after = health()
        assert after.num_control_loops > before.num_control_loops
        assert (
            after.controller_start_time == before.controller_start_time < before.timestamp < after.timestamp
        )
        assert after.application_state_update_duration_s is not None
        assert after.application_state_update_duration_s.max > 0

    def test_another_one_starts_counting_anew(self, run: Callable[..., Any]) -> None:
        run(Plain.bind())
        before = health()
        client = connect()
        assert client is not None
        os.kill(skate.get(client.actor.get_pid.remote()), 9)
        assert health().controller_start_time > before.controller_start_time

    def test_reports_of_callers_arrive(self, run: Callable[..., Any]) -> None:
        handle = run(Plain.bind(), name="reported")
        assert handle.remote().result() == "hello"
        named = {"application": "reported", "deployment": "Plain"}
        until(lambda: total("serve_autoscaling_handle_metrics_delay_ms_count", **named), prometheus_text)
        (labels, _), *others = samples("serve_autoscaling_handle_metrics_delay_ms_count", **named)
        assert not others
        assert not {"handle", "replica"} & labels.keys()  # one series, however many callers there are
        assert health().handle_reports_received > 0


@pytest.mark.usefixtures("engine")
class TestAutoscalingStats:
    def test_how_long_they_take_is_told_under_any_policy(self, run: Callable[..., Any]) -> None:
        run(Measures.bind(), name="measures")
        named = {"application": "measures", "deployment": "Measures"}
        until(lambda: total("serve_user_autoscaling_stats_latency_ms_count", **named) > 1, prometheus_text)
        (labels, _), *others = samples("serve_user_autoscaling_stats_latency_ms_count", **named)
        assert (bool(labels["replica"]), others) == (True, [])
        assert total("serve_record_autoscaling_stats_failed_total", **named) == 0
        until(lambda: total("serve_autoscaling_replica_metrics_delay_ms_count", **named) > 1, prometheus_text)

    def test_failures_are_told_by_the_name_of_the_error(self, run: Callable[..., Any]) -> None:
        handle = run(Measures.bind(is_broken=True), name="broken")
        named = {"application": "broken", "exception_name": "LookupError"}
        until(lambda: total("serve_record_autoscaling_stats_failed_total", **named) > 1, prometheus_text)
        assert handle.times.remote().result() > 1  # it answers as if nothing were wrong

    def test_a_replica_that_measures_nothing_is_asked_once(self, run: Callable[..., Any]) -> None:
        run(Plain.bind(), name="plain", route_prefix=None)
        run(Measures.bind(), name="beside", route_prefix=None)
        name = "serve_autoscaling_replica_metrics_delay_ms_count"
        until(lambda: total(name, application="beside") > 3, prometheus_text)
        assert total(name, application="plain") == 1
