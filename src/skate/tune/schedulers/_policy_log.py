"""Policy files of population based training: which trial copied which, when, and with which configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

GLOBAL_FILE = "pbt_global.txt"


class PolicyStep(NamedTuple):
    """One row of a policy file: a trial has copied another one."""

    trial_tag: str
    source_tag: str
    trial_iteration: int
    source_iteration: int
    old_config: dict[str, Any]
    new_config: dict[str, Any]


class Schedule(NamedTuple):
    """The configurations that led to a trial."""

    initial_config: dict[str, Any] | None
    changes: list[tuple[int, dict[str, Any]]]  # the iterations at which the configuration changes


def append_step(folder: str | os.PathLike[str], trial_id: str, source_id: str, step: PolicyStep) -> None:
    """Add a step to the file of all trials, and to that of a trial, which continues the file of its source."""
    root = Path(folder)
    row = json.dumps(step, default=_to_json) + "\n"
    with (root / GLOBAL_FILE).open("a") as file:
        file.write(row)
    source = _policy_file(root, source_id)
    earlier = source.read_text() if source.exists() else ""
    _policy_file(root, trial_id).write_text(earlier + row)


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Return the schedule in the policy file of a trial.

    Raises:
        ValueError: It is not a policy file.
    """
    steps = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            steps.append(PolicyStep(*json.loads(line)))
        except (ValueError, TypeError):
            raise ValueError(f"{path} is not a policy file: line {number} is {line[:80]!r}.") from None
    changes: list[tuple[int, dict[str, Any]]] = []
    initial, expected = None, None
    for step in reversed(steps):
        if expected is not None and step.trial_tag != expected:
            break  # an earlier step of the trial, which a later copy has overwritten
        expected, initial = step.source_tag, step.old_config
        changes.append((step.source_iteration, step.new_config))
    return Schedule(initial, changes[::-1])


def _policy_file(root: Path, trial_id: str) -> Path:
    return root / f"pbt_policy_{trial_id}.txt"


def _to_json(value: Any) -> Any:
    """Return numbers and arrays of NumPy as Python values, and other values as strings."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
