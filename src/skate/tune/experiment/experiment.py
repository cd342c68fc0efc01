"""The specification of an experiment, for `tune.run` and `tune.run_experiments`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skate.tune.error import TuneError

__all__ = ["Experiment"]


class Experiment:
    """A trainable, its search space, and how it is run.

    Args:
        name: The name of the experiment.
        run: The trainable: a function, a subclass of `Trainable`, or a registered name.
        **spec: Arguments of `tune.run`.
    """

    def __init__(self, name: str, run: str | Callable[..., Any] | type, **spec: Any) -> None:
        self.name = name
        self.spec: dict[str, Any] = {
            "run": run,
            **{key: value for key, value in spec.items() if value is not None},
        }

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment of a dictionary, as it is written in JSON or YAML.

        Raises:
            TuneError: The dictionary names no trainable.
        """
        if "run" not in spec:
            raise TuneError(f"the experiment {name!r} names no trainable: add `run`. It has {sorted(spec)}.")
        given = {key: value for key, value in spec.items() if key != "run"}
        return cls(name, spec["run"], **given)

    @property
    def run_identifier(self) -> Any:
        """The trainable."""
        return self.spec["run"]
