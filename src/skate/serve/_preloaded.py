"""What processes of Serve need, for `runtime_env={"preload": …}`: imported once, and forked from there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import skate.serve._controller.actor
import skate.serve._proxy.actor
import skate.serve._replica.actor  # noqa: F401  # one of these is what the process becomes

# What they import when they start, as far as it is installed.
for _name in (
    "uvloop",
    "starlette.requests",
    "starlette.responses",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "uvicorn.server",
):
    if find_spec(_name.partition(".")[0]) is not None:
        import_module(_name)
