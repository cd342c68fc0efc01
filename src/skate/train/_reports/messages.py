"""What a worker tells whoever drives the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announced:
    """The worker has made its next report; with a name, it is storing its part of a checkpoint of that name."""

    metrics: dict[str, Any]
    name: str | None = None
    validation: dict[str, Any] | None = None  # settings with which the checkpoint is to be validated
    positions: dict[str, Any] | None = None  # where the worker stands in its datasets
    rows: int | None = None  # how many rows of its datasets the worker has read


@dataclass(frozen=True, slots=True)
class Stored:
    """The worker's part of the checkpoint of a report is stored, or lost.

    Attributes:
        index: The number of the report.
        lost: Why it is lost, if it is.
        name: Where in the run's folder it is, if not where it was announced.
    """

    index: int
    lost: str | None = None
    name: str | None = None


BEGIN = "begin"  # the question whether to begin: the training function is loaded, with all that it imports
CHECKPOINTS = "checkpoints"  # the question for the checkpoints of the run
BARRIER, BROADCAST = MEETINGS = ("barrier", "broadcast")  # questions that are answered when all have asked


@dataclass(frozen=True, slots=True)
class Asked:
    """The worker waits for an answer."""

    number: int
    question: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The training function has returned."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The training function has raised.

    Attributes:
        error: What it raised.
        text: Where it was raised, as a traceback.
        at: When, in seconds of the machine's clock.
    """

    error: BaseException
    text: str
    at: float


Message = Announced | Stored | Asked | Finished | Failed
