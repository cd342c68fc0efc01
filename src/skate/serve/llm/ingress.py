"""The ingress in front of models."""

from skate.serve.llm._ingress.fastapi_ingress import make_fastapi_ingress
from skate.serve.llm._ingress.ingress import OpenAiIngress

__all__ = ["OpenAiIngress", "make_fastapi_ingress"]
