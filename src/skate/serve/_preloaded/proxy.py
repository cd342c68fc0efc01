"""Imports for the proxy: an HTTP server, which other processes do not need."""

from __future__ import annotations

import skate.serve._proxy.doors  # noqa: F401  # the implementation of the actor
from skate.serve._preloaded._installed import load_installed

load_installed("uvloop", "uvicorn.lifespan.off", "uvicorn.protocols.http.httptools_impl", "uvicorn.server")
