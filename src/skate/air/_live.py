"""Progress lines on the terminal, which disappear when the work is done."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

DELAY = 0.5  # seconds, so that short work shows no lines
INTERVAL = 0.25  # seconds between updates
SWITCH = "SKATE_PROGRESS"  # "0" turns the lines of all libraries off


def wanted() -> bool:
    """Return whether to show progress: on a terminal, unless it is turned off."""
    is_terminal = (
        sys.stderr is not None and sys.stderr.isatty()
    )  # None: the program was started without stderr
    return is_terminal and os.environ.get(SWITCH, "1") != "0"


class LiveLines:
    """Shows lines, after a delay, until it is stopped.

    Args:
        lines: Returns the lines, as an object that rich can print.
        name: The name of the thread that shows them.
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
