"""The model that the examples train, and what it learns in one process: every strategy should learn the same."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import skate

EXAMPLES = Path(__file__).parents[3] / "examples" / "train"

Weights = dict[str, Any]

# Floats are added in another order. After twenty steps that is some 1e-5; a batch that is not shared correctly, a
# gradient that is not averaged, or an optimizer that has forgotten its state make more than 1e-2.
TOLERANCE = 3e-4


@pytest.fixture(scope="session", autouse=True)
def torch_is_running() -> None:
    """Take a step, for which torch opens a file that it keeps open: no test has leaked it."""
    import torch

    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(64, 64)).sum().backward()
    optimizer.step()


@pytest.fixture(scope="module")
def example() -> Iterator[Callable[[str], ModuleType]]:
    """Import an example as a module, whose functions travel to workers with their code."""
    sys.path.insert(0, str(EXAMPLES))
    loaded: dict[str, ModuleType] = {}

    def load(name: str) -> ModuleType:
        if name not in loaded:
            loaded[name] = importlib.import_module(name)
            skate.cloudpickle.register_pickle_by_value(loaded[name])
        return loaded[name]

    yield load
    sys.path.remove(str(EXAMPLES))
    for name, module in loaded.items():
        skate.cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[name]


@pytest.fixture(scope="module")
def learned_alone(example: Callable[[str], ModuleType]) -> Callable[[int], Weights]:
    """Return what one process learns in some steps."""
    known: dict[int, Weights] = {}

    def learned(steps: int) -> Weights:
        if steps not in known:
            known[steps] = example("tiny_lm").train_alone(steps).state_dict()
        return known[steps]

    return learned


def read_shards(folder: Path, like: Weights) -> Weights:
    """Return the weights of a checkpoint that `torch.distributed.checkpoint` wrote, put together."""
    import torch
    import torch.distributed.checkpoint as dcp

    found = {name: torch.full_like(value, float("nan")) for name, value in like.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process
        dcp.load({"model": found}, checkpoint_id=folder, no_dist=True)
    return found


def assert_equal(found: Weights, wanted: Weights) -> None:
    assert found.keys() == wanted.keys()
    apart = {name: float((found[name].detach() - value).abs().max()) for name, value in wanted.items()}
    worst = max(apart, key=lambda name: apart[name])
    assert apart[worst] < TOLERANCE, f"{worst} is {apart[worst]:.2g} away"
