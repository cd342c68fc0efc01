"""Workers start with the libraries of datasets imported, and in the requested environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.data import DataContext
from skate.runtime_env import RuntimeEnv
from tests.conftest import LeakWatch


def described(batch: dict[str, Any]) -> dict[str, Any]:
    """Say what the worker has: only preloading imports this module."""
    has_module = "skate.data._preloaded" in sys.modules
    size = len(batch["id"])
    return {"preloaded": [has_module] * size, "variable": [os.environ.get("PLACE", "")] * size}


class Describing:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return described(batch)


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2, runtime_env={"env_vars": {"PLACE": "job"}}):
        yield


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("options", "variable"),
    [
        ({}, "job"),
        ({"runtime_env": RuntimeEnv(env_vars={"PLACE": "task"})}, "task"),
        ({"ray_remote_args_fn": lambda: {"runtime_env": {"env_vars": {"PLACE": "task"}}}}, "task"),
    ],
    ids=["of the job", "of a step", "of a function"],
)
def test_workers_start_with_the_libraries_and_the_environment(
    options: Any, variable: str, settings: DataContext
) -> None:
    settings.small_plan_bytes = settings.relational_plan_bytes = 0
    numbers = skate.data.range(4, override_num_blocks=2)
    for found in (
        numbers.map_batches(described, **options).take_all(),
        numbers.map_batches(Describing, concurrency=1, **options).take_all(),
    ):
        assert found == 4 * [{"preloaded": True, "variable": variable}]
