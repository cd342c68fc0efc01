"""Requests and responses of OpenAI's API."""

from skate.serve.llm._protocol.base import ErrorInfo, ErrorResponse, UsageInfo
from skate.serve.llm._protocol.chat import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
)
from skate.serve.llm._protocol.completions import (
    CompletionRequest,
    CompletionResponse,
    CompletionStreamResponse,
)
from skate.serve.llm._protocol.embeddings import (
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from skate.serve.llm._protocol.service import (
    DetokenizeRequest,
    DetokenizeResponse,
    ModelCard,
    ModelList,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeResponse,
    TranscriptionRequest,
    TranscriptionResponse,
    TranscriptionStreamResponse,
    to_model_metadata,
)

__all__ = [
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChatCompletionStreamResponse",
    "CompletionRequest",
    "CompletionResponse",
    "CompletionStreamResponse",
    "DetokenizeRequest",
    "DetokenizeResponse",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "ErrorInfo",
    "ErrorResponse",
    "ModelCard",
    "ModelList",
    "RerankRequest",
    "RerankResponse",
    "ScoreRequest",
    "ScoreResponse",
    "TokenizeChatRequest",
    "TokenizeCompletionRequest",
    "TokenizeResponse",
    "TranscriptionRequest",
    "TranscriptionResponse",
    "TranscriptionStreamResponse",
    "UsageInfo",
    "to_model_metadata",
]
