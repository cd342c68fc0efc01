"""The modules of the proxy, including its HTTP server."""

from __future__ import annotations

import skate.serve._proxy.listeners  # noqa: F401  # the proxy actor imports it lazily
from skate.serve._preloaded._installed import load_installed

load_installed("uvloop", "uvicorn.lifespan.off", "uvicorn.protocols.http.httptools_impl", "uvicorn.server")
