"""The messages that a worker sends to the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reported:
    """The worker has made its next report.

    Attributes:
        metrics: The reported metrics.
        name: The name of the checkpoint of which the worker is storing its part, if any.
        validation: The settings of the checkpoint's validation, if any.
        positions: The worker's positions in its datasets.
        rows: How many rows of its datasets the worker has read.
    """

    metrics: dict[str, Any]
    name: str | None = None
    validation: dict[str, Any] | None = None
    positions: dict[str, Any] | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The worker has stored its part of a report's checkpoint, or has failed to.

    Attributes:
        index: The number of the report.
        lost: The reason of a failure.
        name: The name within the run's folder, if it differs from the reported one.
    """

    index: int
    lost: str | None = None
    name: str | None = None


# Kinds of requests. The reply to BEGIN lets a worker begin that has loaded its training function.
BEGIN = "begin"
CHECKPOINTS = "checkpoints"
BARRIER, BROADCAST = COLLECTIVES = ("barrier", "broadcast")  # answered once all workers have made them


@dataclass(frozen=True, slots=True)
class Request:
    """The worker waits for a reply.

    Attributes:
        number: The number of the request, unique per worker.
        kind: BEGIN, CHECKPOINTS, BARRIER or BROADCAST.
        value: The argument of the request.
    """

    number: int
    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The training function has returned."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The training function has raised.

    Attributes:
        error: The exception.
        text: Its traceback.
        at: The time, in seconds of the system clock.
    """

    error: BaseException
    text: str
    at: float


Message = Reported | CheckpointStored | Request | Finished | Failed
