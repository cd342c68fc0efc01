"""Applications in the calling process, with Ray's `_local_testing_mode`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import skate
from skate import serve


@serve.deployment
class Adder:
    def __init__(self, increment: int) -> None:
        self.increment = increment

    def __call__(self, number: int) -> tuple[int, int]:
        return number + self.increment, os.getpid()


@serve.deployment
class Ingress:
    def __init__(self, adder: serve.handle.DeploymentHandle) -> None:
        self.adder = adder

    async def __call__(self, number: int) -> tuple[int, int]:
        return await self.adder.remote(number)


@pytest.fixture(autouse=True)
def no_session() -> Iterator[None]:
    assert not skate.is_initialized()
    yield
    serve.shutdown()
    skate.shutdown()


def test_an_application_runs_in_the_calling_process_without_a_session() -> None:
    handle = serve.run(Ingress.bind(Adder.bind(2)), _local_testing_mode=True)
    assert handle.remote(3).result() == (5, os.getpid())


def test_several_applications_run_in_the_calling_process() -> None:
    targets = [
        serve.RunTarget(Adder.bind(number), name=f"add-{number}", route_prefix=None) for number in (1, 2)
    ]
    handles = serve.run_many(targets, _local_testing_mode=True)
    assert [handle.remote(3).result()[0] for handle in handles] == [4, 5]
