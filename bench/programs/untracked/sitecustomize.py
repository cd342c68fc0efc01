"""Turns the recording of tasks and calls off in every process that has this folder in PYTHONPATH, for a comparison.

What is left is the same program without the state API: the node keeps no history of tasks, an actor's worker no log of
calls, and a worker shows no title. Only `state_tracking.py` uses it.
"""

from __future__ import annotations

import os
from typing import Any

if os.environ.get("BENCH_UNTRACKED") == "1":
    from skate._engine.local.state.tasks import Tasks
    from skate._engine.local.worker.main import EventLog
    from skate._engine.local.worker.process_title import ProcessTitle

    def _skip(*_: Any) -> None:
        """Record nothing."""

    for kind, method in (
        (Tasks, "record"),
        (Tasks, "record_finished"),
        (EventLog, "add"),
        (ProcessTitle, "show"),
    ):
        if not callable(getattr(kind, method)):
            raise TypeError(f"{kind.__name__}.{method} is no method: the comparison would measure nothing.")
        setattr(kind, method, _skip)
