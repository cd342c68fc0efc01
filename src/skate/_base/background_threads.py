"""Threads that show or record what a program does. No wait of the program depends on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_PREFIX = "skate-background-"
_unlisted: set[int] = set()  # background threads that `threading` does not know


def make_background_thread(name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
    """Return a daemon thread that only shows or records what the program does. It has not been started."""
    return threading.Thread(target=target, args=args, name=f"{_PREFIX}{name}", daemon=True)


def is_background_thread(thread: threading.Thread) -> bool:
    """Return whether a thread only shows or records what the program does."""
    return thread.name.startswith(_PREFIX)


def background_threads() -> set[int]:
    """Return the identifiers of the threads that only show or record what the program does."""
    return _unlisted.union(
        thread.ident or 0 for thread in threading.enumerate() if is_background_thread(thread)
    )


def count_as_background(ident: int, *, running: bool) -> None:
    """Count a thread that was not started by `threading` as a background thread, until it has ended."""
    (_unlisted.add if running else _unlisted.discard)(ident)
