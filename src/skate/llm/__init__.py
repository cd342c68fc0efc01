"""Language models: engines that generate text, and fine-tuning."""

from skate.llm._engine.api import (
    Engine,
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    Grammar,
    RequestTiming,
    SamplingParams,
    Tokenizer,
    TokenLogprob,
)

__all__ = [
    "Engine",
    "EngineDeadError",
    "FinishReason",
    "GenerationOutput",
    "GenerationRequest",
    "Grammar",
    "RequestTiming",
    "SamplingParams",
    "TokenLogprob",
    "Tokenizer",
]
