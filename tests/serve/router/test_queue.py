"""The limit of a router's queue, without replicas: `update` stands for the controller's updates."""

from __future__ import annotations

import asyncio
from typing import Any

from skate.serve._router.requests import UnaryRequest
from skate.serve._router.router import Router
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire.frames import Context
from skate.serve._wire.updates import DeploymentUpdate
from skate.serve.exceptions import BackPressureError


def new_router() -> Router:
    return Router(DeploymentID("Slow", "default"), "caller", lambda _: None)


def submit(router: Router) -> asyncio.Future[Any]:
    """Submit a request; the future gets its answer or error."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    router.submit(
        UnaryRequest(Context("request"), "", b"", None, lambda _, result: answer.set_result(result))
    )
    return answer


async def test_requests_that_came_before_the_limit_was_known_are_limited_too() -> None:
    router = new_router()
    first, *others = [submit(router) for _ in range(4)]
    router.update(DeploymentUpdate([], max_queued=1))
    assert all(isinstance(error, BackPressureError) for error in await asyncio.gather(*others))
    assert not first.done()
    assert isinstance(await submit(router), BackPressureError)
    assert router.queued == 1
    await router.close()


async def test_without_a_limit_all_wait() -> None:
    router = new_router()
    early = [submit(router) for _ in range(4)]
    router.update(DeploymentUpdate([]))
    await router.all_connections()
    answers = [*early, *(submit(router) for _ in range(4))]
    assert router.queued == len(answers)
    assert not any(answer.done() for answer in answers)
    await router.close()
