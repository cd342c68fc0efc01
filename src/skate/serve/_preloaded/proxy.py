"""What a proxy needs: a server of HTTP, which the others do without."""

from __future__ import annotations

import skate.serve._proxy.listeners  # noqa: F401  # what is behind the actor
from skate.serve._preloaded._installed import load_installed

load_installed("uvloop", "uvicorn.lifespan.off", "uvicorn.protocols.http.httptools_impl", "uvicorn.server")
