"""Lines on a terminal that show how far something is, and vanish when it is done."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

DELAY = 0.5  # seconds: what is over by then needs no lines
INTERVAL = 0.25
SWITCH = "SKATE_PROGRESS"  # "0" turns the lines of all libraries off


def wanted() -> bool:
    """Return whether progress is shown: on a terminal, and not turned off."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()  # None: the program was started without it
    return is_terminal and os.environ.get(SWITCH, "1") != "0"


class LiveLines:
    """Shows lines from half a second after it begins until it is stopped.

    Args:
        lines: Returns what to show, as something that rich can print.
        name: Of the thread that shows it.
    """

    def __init__(self, lines: Callable[[], Any], name: str) -> None:
        self._lines = lines
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._show, name=name, daemon=True)
        self._thread.start()

    def _show(self) -> None:
        if self._stopped.wait(DELAY):
            return
        from rich.console import Console
        from rich.live import Live

        screen = Console(stderr=True)
        with Live(get_renderable=self._lines, console=screen, auto_refresh=False, transient=True) as live:
            live.refresh()
            while not self._stopped.wait(INTERVAL):
                live.refresh()

    def stop(self) -> None:
        """Remove the lines."""
        self._stopped.set()
        self._thread.join()
