"""Remote tracebacks as text: source lines and the chain of causes, without Skate's own frames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skate._base.locations import PACKAGE

if TYPE_CHECKING:
    import traceback

# The directory of the package, whose frames are omitted.
_PACKAGE = os.path.join(PACKAGE, "")

FULL_TRACEBACK_VARIABLE = "SKATE_FULL_TRACEBACK"


def render_exception(exc: BaseException, *, skip_frames: int = 0) -> str:
    """Render an exception and its causes without Skate's own frames.

    The raised exception comes first and the root of the chain last, each one once. Frames of Skate are kept if no
    other frame would remain, and all of them with ``SKATE_FULL_TRACEBACK=1``.

    Args:
        exc: The exception.
        skip_frames: How many of its outermost frames to leave out.
    """
    import traceback  # slow to import, and only needed for errors

    summary: traceback.TracebackException | None = traceback.TracebackException.from_exception(exc)
    assert summary is not None
    if skip_frames:
        summary.stack[:] = summary.stack[skip_frames:]
    current: BaseException | None = exc
    parts: list[str] = []
    while summary is not None and current is not None:
        parts.append(_render_one(current, summary))
        if summary.__cause__ is not None:
            parts.append("\nCaused by:\n")
            summary, current = summary.__cause__, current.__cause__
        elif summary.__context__ is not None and not summary.__suppress_context__:
            parts.append("\nRaised while handling:\n")
            summary, current = summary.__context__, current.__context__
        else:
            break
    return "".join(parts).rstrip("\n")


def safe_str(exc: BaseException) -> str:
    """Return ``str(exc)``, or a placeholder if the exception's own ``__str__`` fails."""
    try:
        return str(exc)
    except Exception as error:  # __str__ is user code
        return f"<str() of {type(exc).__qualname__} failed with {type(error).__name__}>"


def _render_one(exc: BaseException, summary: traceback.TracebackException) -> str:
    from skate._base.errors.task import RayTaskError

    _trim(summary)
    if isinstance(exc, RayTaskError):
        # Its text already shows the members of a group.
        summary.exceptions = None
    lines = list(summary.format(chain=False))
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        del lines[0]
    return "".join(lines)


def _trim(summary: traceback.TracebackException) -> None:
    if os.environ.get(FULL_TRACEBACK_VARIABLE, "0") in ("", "0"):
        kept = [frame for frame in summary.stack if not frame.filename.startswith(_PACKAGE)]
        if kept:
            summary.stack[:] = kept
    for member in summary.exceptions or ():
        _trim(member)
