"""Language models over datasets: text generation, embeddings, and requests to servers."""

from skate.data.llm import _extra as _extra  # before all others: it names a missing extra
from skate.data.llm._config import (
    HttpRequestProcessorConfig,
    ProcessorConfig,
    ServeDeploymentProcessorConfig,
    SGLangEngineProcessorConfig,
    vLLMEngineProcessorConfig,
)
from skate.data.llm._processor import Processor, build_llm_processor, build_processor
from skate.data.llm._stage_config import (
    ChatTemplateStageConfig,
    DetokenizeStageConfig,
    HttpRequestStageConfig,
    PrepareMultimodalStageConfig,
    TokenizerStageConfig,
)

__all__ = [
    "ChatTemplateStageConfig",
    "DetokenizeStageConfig",
    "HttpRequestProcessorConfig",
    "HttpRequestStageConfig",
    "PrepareMultimodalStageConfig",
    "Processor",
    "ProcessorConfig",
    "SGLangEngineProcessorConfig",
    "ServeDeploymentProcessorConfig",
    "TokenizerStageConfig",
    "build_llm_processor",
    "build_processor",
    "vLLMEngineProcessorConfig",
]
