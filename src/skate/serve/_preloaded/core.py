"""The modules of the controller and of replicas."""

from __future__ import annotations

import skate.serve._controller.state
import skate.serve._replica.actor  # noqa: F401  # a process becomes a controller or a replica
from skate.serve._preloaded._installed import load_installed

load_installed("uvloop", "starlette.requests", "starlette.responses")
