"""The command line under Ray's path, from which Ray's `ray` command imports it.

If `import ray` imports Skate, an installed `ray` command runs the commands of `skate`. Messages about jobs and nodes
then go to standard output, as in Ray.
"""

from __future__ import annotations

from skate.cli.actors import kill_actor
from skate.cli.inspection import debug, memory, stack, timeline
from skate.cli.jobs import job
from skate.cli.lifecycle import start, status, stop
from skate.cli.microbenchmark import microbenchmark
from skate.cli.program import ray as cli
from skate.cli.program import ray as main

__all__ = [
    "cli",
    "debug",
    "job",
    "kill_actor",
    "main",
    "memory",
    "microbenchmark",
    "stack",
    "start",
    "status",
    "stop",
    "timeline",
]
