"""Replicas that die, hang, fail to start, or fail their health check."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from skate import serve
from skate.exceptions import RayActorError, RayTaskError
from skate.serve.schema import DeploymentStatus
from tests.serve.conftest import light
from tests.serve.load import Load

pytestmark = pytest.mark.usefixtures("engine")


@light
class Holds:
    def __init__(self, value: Any) -> None:
        self.value = value


@light
class Mortal:
    def __init__(self) -> None:
        self.is_well = True

    async def __call__(self) -> str:
        await asyncio.sleep(0.002)
        return "alive"

    async def pid(self) -> int:
        return os.getpid()

    async def wait(self) -> None:
        await asyncio.Event().wait()

    async def fall_ill(self) -> None:
        self.is_well = False

    async def check_health(self) -> None:
        if not self.is_well:
            raise RuntimeError("ill")


def test_kills_of_replicas_fail_no_request(run: Callable[..., Any], url: str) -> None:
    handle = run(Mortal.options(num_replicas=2).bind())
    with Load(url) as load:
        for _ in range(5):
            load.wait_for_more(10)
            os.kill(handle.pid.remote().result(), signal.SIGKILL)
        load.wait_for_more(30)
        while (
            serve.status().applications["default"].deployments["Mortal"].status
            is not DeploymentStatus.HEALTHY
        ):
            load.wait_for_more(5)
    assert load.failures == []
    assert set(load.answers) == {"alive"}


def test_a_call_that_may_not_run_twice_fails_with_its_replica(run: Callable[..., Any]) -> None:
    handle = run(Mortal.bind())
    pid = handle.pid.remote().result()
    response = handle.wait.remote()
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0.1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayActorError):
        response.result(timeout_s=60)
    assert handle.pid.remote().result(timeout_s=60) != pid


def test_a_replica_that_says_it_is_ill_is_replaced(run: Callable[..., Any]) -> None:
    handle = run(Mortal.options(health_check_period_s=0.1, health_check_timeout_s=5).bind())
    pid = handle.pid.remote().result()
    handle.fall_ill.remote().result()
    while handle.pid.remote().result(timeout_s=60) == pid:
        pass


def test_a_replica_that_hangs_is_replaced(run: Callable[..., Any]) -> None:
    @light(health_check_period_s=0.1, health_check_timeout_s=0.2)
    class Hangs:
        async def pid(self) -> int:
            return os.getpid()

        async def check_health(self) -> None:
            if self.hung:
                await asyncio.Event().wait()

        hung = False

        async def hang(self) -> None:
            self.hung = True

    handle = run(Hangs.bind())
    pid = handle.pid.remote().result()
    handle.hang.remote().result()
    while handle.pid.remote().result(timeout_s=60) == pid:
        pass


def test_a_deployment_that_cannot_be_pickled_is_refused_with_its_name(run: Callable[..., Any]) -> None:
    import threading

    with pytest.raises(TypeError, match=r"arguments of deployment 'Holds'.*constructor"):
        run(Holds.bind(threading.Lock()))


def test_code_that_cannot_be_pickled_is_refused_where_it_is_written() -> None:
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"deployment 'Locks': '.*lock' was found to be non-serializable"):

        @light
        class Locks:
            def __call__(self) -> Any:
                return lock


def test_an_error_in_an_inner_application_is_told_of_that_one(run: Callable[..., Any]) -> None:
    import threading

    with pytest.raises(TypeError, match=r"^Could not serialize the arguments of deployment 'Holds_1'"):
        run(Holds.bind(Holds.bind(threading.Lock())))


def test_a_request_that_outlives_its_replica_fails_with_what_to_do(run: Callable[..., Any]) -> None:
    @light(graceful_shutdown_timeout_s=0.1)
    class Slow:
        def __init__(self) -> None:
            self.begun = asyncio.Event()

        async def __call__(self) -> None:
            self.begun.set()
            await asyncio.Event().wait()

        async def wait(self) -> None:
            await self.begun.wait()

    handle = run(Slow.bind())
    response = handle.remote()
    handle.wait.remote().result(timeout_s=30)
    serve.delete("default")
    with pytest.raises(RayActorError, match=r"default#Slow#\w+ was stopped .* graceful_shutdown_timeout_s"):
        response.result(timeout_s=30)


def test_an_application_cannot_contain_itself(run: Callable[..., Any]) -> None:
    inner: list[Any] = []
    app = Holds.bind(inner)
    inner.append(app)
    with pytest.raises(ValueError, match="Holds → Holds"):
        run(app)


def test_a_deployment_needs_bind(run: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"pass Mortal\.bind\(\)"):
        run(Mortal)
    with pytest.raises(RuntimeError, match="bind"):
        Mortal()


@pytest.mark.one_machine
def test_a_replica_without_resources_says_what_it_waits_for(run: Callable[..., Any]) -> None:
    run(Mortal.options(name="all", ray_actor_options={"num_cpus": 3}).bind(), name="all", route_prefix=None)
    serve._run(
        Mortal.options(ray_actor_options={"num_cpus": 2}).bind(),
        name="late",
        route_prefix=None,
        _blocking=False,
    )
    while not (said := serve.status().applications["late"].message):
        pass
    assert "needs {'CPU': 2.0}" in said
    serve.delete("all")
    assert serve.get_app_handle("late").remote().result(timeout_s=60) == "alive"


class _Odd(BaseException):
    """What no `except Exception` catches."""


@light
class Quits:
    def by_exit(self) -> None:
        sys.exit(3)

    async def by_error(self) -> None:
        raise _Odd("never seen before")

    def in_a_stream(self) -> Any:
        yield 1
        raise _Odd("in the middle")

    async def in_the_background(self) -> str:
        async def quit() -> None:
            sys.exit(4)

        await asyncio.wait([asyncio.ensure_future(quit())])
        return "the task has ended"

    async def __call__(self) -> int:
        return os.getpid()


def test_code_that_would_end_the_program_ends_its_request_only(run: Callable[..., Any]) -> None:
    handle = run(Quits.bind())
    pid = handle.remote().result()
    for method, told in (("by_exit", "SystemExit: 3"), ("by_error", "_Odd: never seen before")):
        with pytest.raises(RayTaskError, match=told):
            getattr(handle, method).remote().result()
    stream = handle.options(stream=True).in_a_stream.remote()
    assert next(stream) == 1
    with pytest.raises(RayTaskError, match="_Odd: in the middle"):
        next(stream)
    assert handle.in_the_background.remote().result() == "the task has ended"
    assert handle.remote().result() == pid
