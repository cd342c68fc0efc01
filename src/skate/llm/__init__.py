"""Language models: engines that generate text, and fine-tuning."""

from skate.llm._engine.api import (
    Engine,
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    Grammar,
    KVLayout,
    KVTransferError,
    PrefilledPrompt,
    PrefillEngine,
    PrefixCacheEngine,
    RequestTiming,
    SamplingParams,
    TextGenerator,
    Tokenizer,
    TokenLogprob,
    WorkerEngine,
)
from skate.llm._engine.blocks import CachedPrefixes
from skate.llm._engine.loading import is_vllm_installed, load_engine, load_tokenizer
from skate.llm._finetune.api import FinetuneResult, finetune
from skate.llm._finetune.config import DatasetConfig, FinetuneConfig

__all__ = [
    "CachedPrefixes",
    "DatasetConfig",
    "Engine",
    "EngineDeadError",
    "FinetuneConfig",
    "FinetuneResult",
    "FinishReason",
    "GenerationOutput",
    "GenerationRequest",
    "Grammar",
    "KVLayout",
    "KVTransferError",
    "PrefillEngine",
    "PrefilledPrompt",
    "PrefixCacheEngine",
    "RequestTiming",
    "SamplingParams",
    "TextGenerator",
    "TokenLogprob",
    "Tokenizer",
    "WorkerEngine",
    "finetune",
    "is_vllm_installed",
    "load_engine",
    "load_tokenizer",
]
