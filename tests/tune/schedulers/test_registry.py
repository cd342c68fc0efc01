"""Schedulers by name."""

from __future__ import annotations

from typing import Any

import pytest

from skate.tune import schedulers
from skate.tune.schedulers import create_scheduler
from skate.tune.schedulers.pb2 import PB2


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("fifo", schedulers.FIFOScheduler, {}),
        ("async_hyperband", schedulers.ASHAScheduler, {"max_t": 5}),
        ("AsyncHyperBand", schedulers.ASHAScheduler, {}),
        ("median_stopping_rule", schedulers.MedianStoppingRule, {}),
        ("medianstopping", schedulers.MedianStoppingRule, {}),
        ("hyperband", schedulers.HyperBandScheduler, {}),
        ("hb_bohb", schedulers.HyperBandForBOHB, {}),
        ("pbt", schedulers.PopulationBasedTraining, {"hyperparam_mutations": {"a": [1]}}),
        ("resource_changing", schedulers.ResourceChangingScheduler, {}),
    ],
)
def test_names_of_schedulers(name: str, kind: type, options: dict[str, Any]) -> None:
    assert type(create_scheduler(name, **options)) is kind


def test_pb2_has_a_name() -> None:
    pytest.importorskip("sklearn")
    assert type(create_scheduler("pb2", hyperparam_bounds={"a": [0, 1]})) is PB2


def test_arguments_of_other_schedulers_are_ignored() -> None:
    scheduler = create_scheduler("fifo", max_t=3, metric="loss", mode="min", perturbation_interval=4)
    assert type(scheduler) is schedulers.FIFOScheduler
    assert create_scheduler("hyperband", metric="loss", grace_period=4).metric == "loss"


def test_arguments_that_no_scheduler_has_are_errors() -> None:
    with pytest.raises(TypeError, match=r"the argument 'grace_periods'. Did you mean 'grace_period'\?"):
        create_scheduler("fifo", grace_periods=3)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"no scheduler 'hyperbands'. Did you mean 'hyperband'\? The schedulers are fifo,"
    ):
        create_scheduler("hyperbands")


def test_every_exported_name_exists() -> None:
    assert all(hasattr(schedulers, name) for name in schedulers.__all__)
