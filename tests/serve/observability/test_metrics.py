"""Request metrics, in the format of Prometheus."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from fastapi import FastAPI

from skate import serve
from skate.serve._observability.metrics import (
    BUCKET_BOUNDARIES_MS,
    FLUSH_INTERVAL_S,
    DurationHistogram,
    MetricsBuffer,
    ProxyMetrics,
)
from skate.util.metrics import prometheus_text
from tests.serve.conftest import light
from tests.serve.waiting import until

_SAMPLE = re.compile(r"^skate_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
    """Return the series of a metric that have these labels, among others."""
    found = []
    for metric, text, value in _SAMPLE.findall(prometheus_text()):
        known = dict(_LABEL.findall(text))
        if metric == name and labels.items() <= known.items():
            found.append((known, float(value)))
    return found


def total(name: str, **labels: str) -> float:
    return sum(value for _, value in samples(name, **labels))


def until_total(name: str, expected: float, **labels: str) -> None:
    until(lambda: total(name, **labels) == expected, prometheus_text)


def status_of(url: str, method: str = "GET") -> int:
    try:
        with urlopen(Request(url, method=method), timeout=60) as response:
            return int(response.status)
    except HTTPError as error:
        with error:
            return error.code


@light(name="Measured", max_ongoing_requests=1)
class Measured:
    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, request: Any) -> str:
        if request.url.path.endswith("/fail"):
            raise LookupError("nothing there")
        return "hello"

    async def wait(self) -> None:
        await self.gate.wait()

    async def fail(self) -> None:
        raise KeyError("no key")


def test_requests_over_http_are_counted_by_route_method_and_status(run: Callable[..., Any], url: str) -> None:
    run(Measured.bind(), name="counted", route_prefix="/counted")
    assert [status_of(f"{url}/counted") for _ in range(3)] == [200] * 3
    assert status_of(f"{url}/counted", "POST") == 200
    assert status_of(f"{url}/counted/fail") == 500
    labels = {"application": "counted", "route": "/counted"}
    until_total("serve_num_http_requests_total", 5, **labels)
    assert total("serve_num_http_requests_total", **labels, method="GET", status_code="200") == 3
    assert total("serve_num_http_error_requests_total", **labels, method="GET", error_code="500") == 1
    assert total("serve_num_deployment_http_error_requests_total", **labels, deployment="Measured") == 1
    assert total("serve_http_request_latency_ms_count", **labels, status_code="200") == 4


def test_a_path_that_leads_nowhere_is_counted_without_a_route(run: Callable[..., Any], url: str) -> None:
    run(Measured.bind(), name="elsewhere", route_prefix="/elsewhere")
    before = total("serve_num_http_error_requests_total", error_code="404", application="")
    assert status_of(f"{url}/nowhere") == 404
    until_total("serve_num_http_error_requests_total", before + 1, error_code="404", application="", route="")


def test_a_replica_tells_of_its_requests_errors_and_health(run: Callable[..., Any], url: str) -> None:
    handle = run(Measured.bind(), name="told", route_prefix="/told")
    assert status_of(f"{url}/told") == 200
    assert status_of(f"{url}/told/fail") == 500
    with pytest.raises(KeyError):
        handle.fail.remote().result()
    until_total("serve_deployment_request_counter_total", 3, application="told")
    (labels, starts), *others = samples("serve_deployment_replica_starts_total", application="told")
    assert (starts, others) == (1, [])
    assert labels["deployment"] == "Measured"
    replica = {"deployment": "Measured", "replica": labels["replica"], "application": "told"}
    assert total("serve_deployment_request_counter_total", **replica, route="/told") == 2
    errors = {
        (known["route"], known["exception_type"]): value
        for known, value in samples("serve_deployment_error_counter_total", **replica)
    }
    assert errors == {("/told", "LookupError"): 1, ("", "KeyError"): 1}
    assert total("serve_deployment_replica_healthy", **replica) == 1
    assert total("serve_deployment_processing_latency_ms_count", **replica) == 3


def test_time_is_split_into_queue_replica_and_framework(run: Callable[..., Any], url: str) -> None:
    run(Measured.bind(), name="split", route_prefix="/split")
    for _ in range(4):
        assert status_of(f"{url}/split") == 200
    until_total("serve_http_request_latency_ms_count", 4, application="split")
    until_total("serve_deployment_processing_latency_ms_count", 4, application="split")
    until_total("serve_request_router_fulfillment_time_ms_count", 4, application="split")
    assert total("serve_http_request_framework_latency_ms_count", application="split") == 4
    whole = total("serve_http_request_latency_ms_sum", application="split")
    assert 0 < total("serve_http_request_framework_latency_ms_sum", application="split") < whole


def test_requests_that_wait_are_seen_while_they_do(run: Callable[..., Any]) -> None:
    handle = run(Measured.bind(), name="queue", route_prefix="/queue")
    responses = [handle.wait.remote() for _ in range(3)]
    until_total("serve_deployment_queued_queries", 2, application="queue")
    until_total("serve_num_ongoing_requests_at_replicas", 1, application="queue")
    until_total("serve_replica_processing_queries", 1, application="queue")
    for response in responses:
        response.cancel()
    until_total("serve_deployment_queued_queries", 0, application="queue")
    until_total("serve_num_ongoing_requests_at_replicas", 0, application="queue")
    until_total("serve_replica_processing_queries", 0, application="queue")
    assert total("serve_handle_request_counter_total", application="queue") == 3


def test_failed_health_checks_are_counted(run: Callable[..., Any]) -> None:
    @light(health_check_period_s=0.05)
    class Moody:
        is_well = True

        async def fall_ill(self) -> None:
            self.is_well = False

        async def check_health(self) -> None:
            if not self.is_well:
                raise RuntimeError("ill")

    handle = run(Moody.bind(), name="moody", route_prefix="/moody")
    handle.fall_ill.remote().result()
    until(lambda: total("serve_health_check_failures_total", application="moody") >= 3, prometheus_text)


def test_the_controller_tells_how_things_stand(run: Callable[..., Any]) -> None:
    run(Measured.bind(), name="stands", route_prefix="/stands")
    until_total("serve_application_status", 6, application="stands")
    until_total("serve_deployment_status", 6, application="stands", deployment="Measured")
    assert total("serve_deployment_target_replicas", application="stands", deployment="Measured") == 1
    serve.delete("stands")
    until_total("serve_application_status", 0, application="stands")
    until_total("serve_deployment_status", 0, application="stands")


def test_methods_that_clients_invent_are_one_series() -> None:
    async def go() -> None:
        measures = ProxyMetrics("http", lambda: 0)
        for number in range(10):
            measures.ended("invented", "", "/", f"METHOD{number}", 200, 0.001)
        measures.close()

    asyncio.run(go())
    assert samples("serve_num_http_requests_total", application="invented") == [
        ({"application": "invented", "method": "OTHER", "route": "/", "status_code": "200"}, 10.0)
    ]


def test_replicas_and_the_proxy_are_told_of_as_they_come_and_go(run: Callable[..., Any]) -> None:
    class Configured:
        def reconfigure(self, config: Any) -> None:
            self.config = config

    app = light(Configured).options(
        _internal=True, name="Comes", version="1", num_replicas=2, user_config={"of": "old"}
    )
    run(app.bind(), name="comes", route_prefix="/comes")
    of = {"application": "comes", "deployment": "Comes"}
    for name in ("startup", "initialization"):
        until_total(f"serve_replica_{name}_latency_ms_count", 2, **of)
    assert ["replica" in labels for labels, _ in samples("serve_replica_startup_latency_ms_count", **of)] == [
        False
    ]
    run(app.options(user_config={"of": "new"}).bind(), name="comes", route_prefix="/comes")
    until_total("serve_replica_reconfigure_latency_ms_count", 2, **of)
    serve.delete("comes")
    until_total("serve_replica_shutdown_duration_ms_count", 2, **of)
    (labels, status), *others = samples("serve_proxy_status")
    assert others == []
    assert status == 2
    assert {"node_id", "node_ip_address"} <= labels.keys()


def test_calls_of_a_request_have_its_route(run: Callable[..., Any], url: str) -> None:
    api = FastAPI()

    @light
    async def below() -> str:
        return "below"

    @light
    @serve.ingress(api)
    class Above:
        def __init__(self, handle: Any) -> None:
            self.handle = handle

        @api.get("/one/{name}")
        async def one(self, name: str) -> str:
            return str(await self.handle.remote())

        @api.get("/two")
        async def two(self) -> str:
            return str(await self.handle.remote())

    run(Above.bind(below.bind()), name="routes", route_prefix="/routes")
    for path in ("one/a", "one/b", "two"):
        assert status_of(f"{url}/routes/{path}") == 200
    for deployment in ("Above", "below"):
        of = {"application": "routes", "deployment": deployment}
        until_total("serve_deployment_request_counter_total", 2, route="/routes/one/{name}", **of)
        until_total("serve_deployment_request_counter_total", 1, route="/routes/two", **of)


def test_what_autoscaling_goes_by_is_told(run: Callable[..., Any]) -> None:
    scaling = {"min_replicas": 2, "max_replicas": 3, "target_ongoing_requests": 4}
    app = light(Measured.func_or_class).options(name="Scaled", autoscaling_config=scaling)
    run(app.bind(), name="scaled", route_prefix="/scaled")
    of = {"application": "scaled", "deployment": "Scaled"}
    until_total("serve_autoscaling_target_replicas", 2, **of)
    until_total("serve_autoscaling_target_ongoing_requests", 4, **of)
    until(lambda: samples("serve_autoscaling_desired_replicas", **of) != [])
    assert total("serve_autoscaling_total_requests", **of) == 0
    assert samples("serve_autoscaling_policy_execution_time_ms", policy_scope="deployment", **of)


def test_a_spread_counts_into_buckets_and_starts_anew() -> None:
    durations = DurationHistogram()
    for milliseconds in (0.05, 0.1, 3.0, 10_000_000.0):
        durations.add(milliseconds / 1000)
    number, buckets = durations.reset()
    assert number == 4
    assert buckets[0] == 2  # a value at a limit is below it
    assert buckets[BUCKET_BOUNDARIES_MS.index(5.0)] == 1
    assert buckets[len(BUCKET_BOUNDARIES_MS)] == 1
    assert buckets[-1] == pytest.approx(10_000_003.15)
    assert durations.reset()[0] == 0


def test_numbers_are_added_once_for_all_that_came_meanwhile() -> None:
    async def go() -> None:
        flushed = asyncio.Event()
        times = []

        def flush() -> None:
            times.append(1)
            flushed.set()

        buffer = MetricsBuffer(flush)
        for _ in range(3):
            buffer.schedule_flush()
        await asyncio.wait_for(flushed.wait(), 10)
        assert len(times) == 1
        assert not buffer.is_scheduled

    asyncio.run(go())


def test_a_loop_that_was_blocked_is_late() -> None:
    async def go() -> list[float]:
        flushed = asyncio.Event()
        late: list[float] = []
        buffer = MetricsBuffer(flushed.set, late.append)
        buffer.schedule_flush()
        time.sleep(2 * FLUSH_INTERVAL_S)  # noqa: ASYNC251 - it is to block the loop
        await asyncio.wait_for(flushed.wait(), 10)
        return late

    (late,) = asyncio.run(go())
    assert late >= FLUSH_INTERVAL_S * 0.99


def test_the_proxy_and_replicas_tell_how_late_their_loops_are(run: Callable[..., Any], url: str) -> None:
    run(Measured.bind(), name="pulse", route_prefix="/pulse")
    assert status_of(f"{url}/pulse") == 200
    name = "serve_event_loop_monitoring_iterations_total"
    until(lambda: samples(name, component="proxy"), prometheus_text)
    until(lambda: samples(name, component="replica", application="pulse"), prometheus_text)
    proxies = [labels for labels, _ in samples(name, component="proxy")]
    assert sorted(each["loop_type"] for each in proxies) == ["main", "router"]
    replicas = [labels for labels, _ in samples(name, component="replica", application="pulse")]
    assert sorted(each["loop_type"] for each in replicas) == ["main", "router", "user_code"]
    assert {each["deployment"] for each in replicas} == {"Measured"}
    (proxy,), (replica,) = ({each["actor_id"] for each in found} for found in (proxies, replicas))
    assert proxy != replica
    for labels in replicas:
        looks = total(name, **labels)
        assert total("serve_event_loop_scheduling_latency_ms_count", **labels) >= looks > 0
        assert samples("serve_event_loop_tasks", **labels)
