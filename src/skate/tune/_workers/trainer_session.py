"""The session of a training function, with which Tune's functions work in the workers of a trainer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.train._workers.sessions import Session

_SESSIONS = "skate.train._workers.sessions"  # imported wherever a training function runs


def trainer_session() -> Session | None:
    """Return the session of the training function that runs in this process; None without one."""
    sessions = sys.modules.get(_SESSIONS)
    if sessions is None or not sessions.is_active():
        return None
    session: Session = sessions.current("trainer_session()")
    return session
