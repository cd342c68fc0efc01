"""Create trials from the specifications of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skate.train import Checkpoint
from skate.tune.error import TuneError
from skate.tune.experiment.trial import Trial

_TRIAL_FIELDS = ("checkpoint_config", "max_failures", "trial_name_creator", "trial_dirname_creator")


def list_specs(experiments: Any) -> list[dict[str, Any]]:
    """Return the specifications of experiments.

    Args:
        experiments: An experiment, several, or a dict of specifications by name.

    Raises:
        TuneError: A specification names no trainable.
        TypeError: The argument has another type.
    """
    if isinstance(experiments, Mapping):
        found = list(experiments.values())
    else:
        found = list(experiments) if isinstance(experiments, list | tuple) else [experiments]
    specs = []
    for each in found:
        spec = each if isinstance(each, Mapping) else getattr(each, "spec", None)
        if not isinstance(spec, Mapping):
            raise TypeError(
                f"Expected an experiment or its specification as a dict, got {type(each).__name__}."
            )
        if "run" not in spec:
            raise TuneError(
                f"The specification of an experiment needs `run`, the trainable, got {sorted(spec)}."
            )
        specs.append({**spec, "config": spec.get("config") or {}})
    return specs


def create_trial(
    spec: Mapping[str, Any], *, trial_id: str, evaluated_params: Mapping[str, Any], experiment_tag: str
) -> Trial:
    """Return a new trial of an experiment.

    Args:
        spec: The specification, with the configuration of the trial as `config`.
        trial_id: The id of the trial.
        evaluated_params: The sampled values by their paths.
        experiment_tag: A short string that identifies the trial by its sampled values.
    """
    run = spec["run"]
    stop = spec.get("stop")
    trial = Trial(
        run if isinstance(run, str) else getattr(run, "__name__", type(run).__name__),
        config=spec["config"],
        trial_id=trial_id,
        evaluated_params=evaluated_params,
        experiment_tag=experiment_tag,
        placement_group_factory=spec.get("resources_per_trial"),
        stopping_criterion=stop if isinstance(stop, Mapping) else None,
        **{name: spec[name] for name in _TRIAL_FIELDS if spec.get(name) is not None},
    )
    trial.experiment = spec.get("experiment", 0)
    if spec.get("restore"):
        trial.checkpoint = Checkpoint(spec["restore"])
    return trial
