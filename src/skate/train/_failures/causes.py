"""Failures of workers, and the search for the cause among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from skate.exceptions import RayTaskError


@dataclass(frozen=True)
class Failure:
    """The failure of one worker.

    Attributes:
        error: The exception that it raised, or that reports its end.
        text: A description: the traceback, if there is one.
        at: The time, in seconds of the system clock; 0 for a worker that died, so that it sorts first.
    """

    error: BaseException
    text: str
    at: float = 0.0

    @property
    def portable(self) -> Exception:
        """The error as an `Exception`."""
        return self.error if isinstance(self.error, Exception) else RuntimeError(repr(self.error))


def unwrap(error: BaseException) -> BaseException:
    """Return the exception that a worker raised, from the error that reports it here."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(error, RayTaskError) and isinstance(cause, BaseException) else error


# The texts of time-outs, and the libraries whose time-outs are those of collective operations.
_TIMEOUT = re.compile(r"timed out|timeout", re.IGNORECASE)
_COLLECTIVE = re.compile(r"gloo|nccl|torch.distributed|c10d", re.IGNORECASE)


def is_collective_timeout(failure: Failure) -> bool:
    """Return whether a worker failed because others did not join a collective operation in time.

    >>> is_collective_timeout(Failure(RuntimeError("[gloo/tcp/buffer.cc:81] Timed out waiting 2000ms for recv"), ""))
    True
    >>> is_collective_timeout(Failure(TimeoutError("the licence server timed out"), ""))
    False
    """
    text = f"{type(failure.error).__name__}: {failure.error}"
    return bool(_TIMEOUT.search(text) and _COLLECTIVE.search(text + failure.text))


def order_by_cause(failures: Mapping[int, Failure]) -> dict[int, Failure]:
    """Return failures by rank, the likely cause first."""
    return dict(sorted(failures.items(), key=lambda each: each[1].at))


def describe(failures: Mapping[int, Failure]) -> str:
    """Return a description of failures, the cause first.

    >>> died = Failure(RuntimeError("gone"), "the worker died")
    >>> raised = Failure(ConnectionError("closed by peer"), "Traceback …", at=2.5)
    >>> print(describe(order_by_cause({0: raised, 1: died})))
    rank 1 failed:
    the worker died
    after it, and perhaps because of it:
      rank 0: ConnectionError('closed by peer')
    """
    (rank, first), *others = failures.items()
    text = f"rank {rank} failed:\n{first.text.rstrip()}"
    if others:
        named = "\n".join(f"  rank {each}: {failure.error!r}" for each, failure in others)
        text += f"\nafter it, and perhaps because of it:\n{named}"
    return text
