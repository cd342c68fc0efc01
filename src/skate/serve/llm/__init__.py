"""Serve language models over OpenAI's API."""

from skate.serve.llm._builders import LLMServingArgs, build_llm_deployment, build_openai_app
from skate.serve.llm._config import CloudMirrorConfig, LLMConfig, LoraConfig, ModelLoadingConfig
from skate.serve.llm.deployment import LLMServer

__all__ = [
    "CloudMirrorConfig",
    "LLMConfig",
    "LLMServer",
    "LLMServingArgs",
    "LoraConfig",
    "ModelLoadingConfig",
    "build_llm_deployment",
    "build_openai_app",
]
