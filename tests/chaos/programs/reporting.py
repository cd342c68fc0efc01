"""What the driver programs share: reporting to the test, and stacks on demand."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys

faulthandler.register(signal.SIGUSR1, all_threads=True)

CHANNEL = int(sys.argv[1])
ARGUMENTS = sys.argv[2:]
os.set_inheritable(CHANNEL, False)


def report(text: str) -> None:
    """Tell the test something."""
    os.write(CHANNEL, f"{text}\n".encode())


def told_to_end() -> bool:
    """Return whether the test has closed our standard input."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready)


def wait_until_told() -> None:
    """Wait until the test closes our standard input."""
    os.read(0, 1)
