"""Deployments that hold engines."""

from skate.serve.llm._server.llm_server import LLMServer

__all__ = ["LLMServer"]
