"""Deployments that run engines."""

from skate.serve.llm._patterns import DPServer, PDDecodeServer, PDPrefillServer
from skate.serve.llm._server.llm_server import LLMServer

__all__ = ["DPServer", "LLMServer", "PDDecodeServer", "PDPrefillServer"]
