"""The specification of an experiment, for `tune.run` and `tune.run_experiments`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from skate.tune._validation import check_checkpoint_config, check_param_space
from skate.tune.error import TuneError
from skate.tune.impl.config import CheckpointConfig, RunConfig
from skate.tune.registry import check_trainable, get_trainable_cls, register_trainable
from skate.tune.stopper import FunctionStopper, Stopper
from skate.tune.trainable.util import trainable_name

__all__ = ["Experiment"]


class Experiment:
    """A trainable, its search space, and how it is run.

    Args:
        name: The name of the experiment.
        run: The trainable: a function, a subclass of `Trainable`, or a registered name.
        **spec: Arguments of `tune.run`.

    Raises:
        TuneError: The trainable is a name that is not registered, or no trainable at all.
        ValueError: The search space is not a dictionary, or the configuration requests checkpoints of a function.
    """

    PUBLIC_KEYS: ClassVar = frozenset(("stop", "num_samples", "time_budget_s"))

    def __init__(self, name: str, run: str | Callable[..., Any] | type, **spec: Any) -> None:
        trainable = get_trainable_cls(run) if isinstance(run, str) else run
        if not callable(trainable):
            raise TuneError(
                f"`run` of the experiment {name!r} is {run!r}: it must be a function, a subclass of Trainable, or a "
                "registered name."
            )
        check_trainable(trainable)
        check_param_space(spec.get("config"), "config")
        checkpoints = spec.get("checkpoint_config")
        if isinstance(checkpoints, Mapping):
            spec["checkpoint_config"] = checkpoints = CheckpointConfig(**checkpoints)
        if checkpoints is not None:
            check_checkpoint_config(trainable, checkpoints)
        self.name = name
        self.spec: dict[str, Any] = {
            "run": run,
            **{key: value for key, value in spec.items() if value is not None},
        }

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment that a dictionary from JSON or YAML describes. `env` becomes part of `config`.

        Raises:
            TuneError: The dictionary names no trainable.
        """
        if "run" not in spec:
            raise TuneError(f"the experiment {name!r} names no trainable: add `run`. It has {sorted(spec)}.")
        given = {key: value for key, value in spec.items() if key not in ("run", "env")}
        if "env" in spec:
            given["config"] = {**(given.get("config") or {}), "env": spec["env"]}
        return cls(name, spec["run"], **given)

    @classmethod
    def get_trainable_name(cls, run_object: str | Callable[..., Any] | type) -> str:
        """Return the name of a trainable."""
        return trainable_name(run_object)

    @classmethod
    def register_if_needed(cls, run_object: str | Callable[..., Any] | type) -> str:
        """Register a trainable under its name, unless it is the name of a registered trainable. Return the name."""
        if not isinstance(run_object, str):
            register_trainable(trainable_name(run_object), run_object)
        return trainable_name(run_object)

    @property
    def run_identifier(self) -> Any:
        """The trainable."""
        return self.spec["run"]

    @property
    def public_spec(self) -> dict[str, Any]:
        """The arguments that schedulers and searchers may use."""
        return {key: value for key, value in self.spec.items() if key in self.PUBLIC_KEYS}

    @property
    def stopper(self) -> Stopper | None:
        """The stopper, if `stop` is one or a function."""
        stop = self.spec.get("stop")
        if isinstance(stop, Stopper):
            return stop
        return FunctionStopper(stop) if callable(stop) else None

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """Which checkpoints are saved and kept."""
        found: CheckpointConfig = self.spec.get("checkpoint_config") or CheckpointConfig()
        return found

    @property
    def path(self) -> str:
        """The experiment's folder."""
        return f"{RunConfig(storage_path=self.spec.get('storage_path')).storage_path}/{self.name}"

    @property
    def local_path(self) -> str:
        """The experiment's folder."""
        return self.path
