from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import skate
from skate import exceptions, job_config, runtime_env
from skate.util import scheduling_strategies

STRATEGY = scheduling_strategies.PlacementGroupSchedulingStrategy
NAMES = [
    ("skate.actor", "ActorAlreadyExistsError", exceptions.ActorAlreadyExistsError),
    ("skate.actor", "AsyncioActorExit", exceptions.AsyncioActorExit),
    ("skate.actor", "ObjectRefGenerator", skate.ObjectRefGenerator),
    ("skate.actor", "PlacementGroupSchedulingStrategy", STRATEGY),
    ("skate.client_builder", "JobConfig", job_config.JobConfig),
    ("skate.client_builder", "LoggingConfig", skate.LoggingConfig),
    ("skate.client_builder", "ray_driver_init", skate.init),
    ("skate.remote_function", "ObjectRefGenerator", skate.ObjectRefGenerator),
    ("skate.remote_function", "PlacementGroupSchedulingStrategy", STRATEGY),
    ("skate.runtime_context", "RuntimeEnv", runtime_env.RuntimeEnv),
]


@pytest.mark.parametrize(
    ("module", "name", "value"), NAMES, ids=[f"{module}.{name}" for module, name, _ in NAMES]
)
def test_a_module_has_the_names_that_it_has_in_ray(module: str, name: str, value: object) -> None:
    assert getattr(importlib.import_module(module), name) is value


def test_an_unknown_name_is_an_attribute_error_of_the_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'skate\.actor' has no attribute 'ObjectRefGenerators'"):
        importlib.import_module("skate.actor").ObjectRefGenerators  # noqa: B018


def test_the_names_load_at_their_first_use() -> None:
    program = (
        "import sys, skate.actor, skate.remote_function, skate.runtime_context\n"
        "print('skate.util.scheduling_strategies' in sys.modules)\n"
        "skate.actor.PlacementGroupSchedulingStrategy\n"
        "print('skate.util.scheduling_strategies' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
