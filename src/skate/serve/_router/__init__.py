"""Choosing a replica for each request, from any process: queues, live loads, retries."""

from skate.serve._router.router import Router
from skate.serve._router.runtime import Runtime, current_runtime

__all__ = ["Router", "Runtime", "current_runtime"]
