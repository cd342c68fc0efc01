"""Routing of requests to replicas, in every process that calls a deployment: queues, load reports, retries."""

from skate.serve._router.router import Router
from skate.serve._router.runtime import Runtime, current_runtime

__all__ = ["Router", "Runtime", "current_runtime"]
