"""How workers fail, and which failure is the cause of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from skate.exceptions import RayTaskError


@dataclass(frozen=True)
class Failure:
    """How a worker failed.

    Attributes:
        error: What it raised, or what became of it.
        text: The same for a reader: a traceback, where there is one.
        at: When, in seconds of the machine's clock; 0 for one that died, which comes before all that raised.
    """

    error: BaseException
    text: str
    at: float = 0.0

    @property
    def portable(self) -> Exception:
        """The error as one that callers can handle."""
        return self.error if isinstance(self.error, Exception) else RuntimeError(repr(self.error))


def origin(error: BaseException) -> BaseException:
    """Return what was raised in a worker, out of the error that tells of it here."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(error, RayTaskError) and isinstance(cause, BaseException) else error


# How frameworks say that others have not come in time, and where they say it: another time-out is the user's.
_IN_VAIN = re.compile(r"timed out|timeout", re.IGNORECASE)
_OF_COLLECTIVES = re.compile(r"gloo|nccl|torch.distributed|c10d", re.IGNORECASE)


def waited_in_vain(failure: Failure) -> bool:
    """Tell whether a worker has failed because others did not come to a collective operation in time.

    >>> waited_in_vain(Failure(RuntimeError("[gloo/tcp/unbound_buffer.cc:81] Timed out waiting 2000ms for recv"), ""))
    True
    >>> waited_in_vain(Failure(TimeoutError("the licence server timed out"), ""))
    False
    """
    said = f"{type(failure.error).__name__}: {failure.error}"
    return bool(_IN_VAIN.search(said) and _OF_COLLECTIVES.search(said + failure.text))


def ordered(failures: Mapping[int, Failure]) -> dict[int, Failure]:
    """Return failures by rank, the likely cause first."""
    return dict(sorted(failures.items(), key=lambda each: each[1].at))


def told(failures: Mapping[int, Failure]) -> str:
    """Return failures as a text, the cause on top.

    >>> died = Failure(RuntimeError("gone"), "the worker died")
    >>> raised = Failure(ConnectionError("closed by peer"), "Traceback …", at=2.5)
    >>> print(told(ordered({0: raised, 1: died})))
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
