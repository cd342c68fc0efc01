"""Serve language models over OpenAI's API."""

from skate.serve.llm._builders import LLMServingArgs, build_llm_deployment, build_openai_app
from skate.serve.llm._config import CloudMirrorConfig, LLMConfig, LoraConfig, ModelLoadingConfig
from skate.serve.llm._patterns import LLMRouter, build_dp_deployment, build_dp_openai_app, build_pd_openai_app
from skate.serve.llm.deployment import LLMServer

__all__ = [
    "CloudMirrorConfig",
    "LLMConfig",
    "LLMRouter",
    "LLMServer",
    "LLMServingArgs",
    "LoraConfig",
    "ModelLoadingConfig",
    "build_dp_deployment",
    "build_dp_openai_app",
    "build_llm_deployment",
    "build_openai_app",
    "build_pd_openai_app",
]
