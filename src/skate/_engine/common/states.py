"""The states of tasks and actors, as Ray's state API names them."""

from __future__ import annotations

TASK_HISTORY = 10_000  # finished tasks and calls that the state API and the timeline keep

# States of a task.
WAITING = "PENDING_ARGS_AVAIL"
QUEUED = "PENDING_NODE_ASSIGNMENT"
SUBMITTED = "SUBMITTED_TO_WORKER"
RUNNING = "RUNNING"
FINISHED = "FINISHED"
FAILED = "FAILED"

# States of an actor.
PENDING_CREATION = "PENDING_CREATION"
ALIVE = "ALIVE"
RESTARTING = "RESTARTING"
DEAD = "DEAD"
