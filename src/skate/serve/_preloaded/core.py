"""What the controller and replicas need."""

from __future__ import annotations

import skate.serve._controller.state
import skate.serve._replica.actor  # noqa: F401  # one of the two is what the process becomes
from skate.serve._preloaded._installed import load_installed

load_installed("uvloop", "starlette.requests", "starlette.responses")
