"""Requests and responses about tokens, models, adapters and transcriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from skate.serve.llm._protocol.base import Count, Flag, RequestModel, ResponseModel, Text, unix_time
from skate.serve.llm._protocol.chat import ChatMessage, Tool

if TYPE_CHECKING:
    from skate.serve.llm._config import LLMConfig

__all__ = [
    "DetokenizeRequest",
    "DetokenizeResponse",
    "LoadLoraAdapterRequest",
    "ModelCard",
    "ModelList",
    "TokenizeChatRequest",
    "TokenizeCompletionRequest",
    "TokenizeResponse",
    "TranscriptionRequest",
    "TranscriptionResponse",
    "TranscriptionStreamResponse",
    "UnloadLoraAdapterRequest",
    "to_model_metadata",
]


class TokenizeCompletionRequest(RequestModel):
    """A request for the tokens of a text."""

    model: Text | None = None
    prompt: Text
    add_special_tokens: Flag = True
    return_token_strs: Flag = False


class TokenizeChatRequest(RequestModel):
    """A request for the tokens of a conversation."""

    model: Text | None = None
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[Tool] | None = None
    add_generation_prompt: Flag = True
    continue_final_message: Flag = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: Flag = False


class TokenizeResponse(ResponseModel):
    """Tokens."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(RequestModel):
    """A request for the text of tokens."""

    model: Text | None = None
    tokens: list[Count]


class DetokenizeResponse(ResponseModel):
    """The text of tokens."""

    prompt: str


class ModelCard(ResponseModel):
    """A model that clients can use.

    Args:
        id: The name of the model.
        object: Always "model".
        created: When the card was made, in seconds since 1970.
        owned_by: The organization that provides it.
        permission: Always empty.
        parent: The base model, if this is an adapter.
        max_model_len: The context length, if it is configured.
        metadata: Additional information.
        scales_to_zero: Whether the model may have no replica. This field is not sent.
    """

    id: str
    object: str = "model"
    created: int = Field(default_factory=unix_time)
    owned_by: str = "skate"
    permission: list[str] = Field(default_factory=list)
    parent: str | None = None
    max_model_len: int | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    scales_to_zero: bool = Field(default=False, exclude=True)


class ModelList(ResponseModel):
    """All models that clients can use."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


def to_model_metadata(
    model_id: str, model_config: LLMConfig, overrides: dict[str, Any] | None = None
) -> ModelCard:
    """Return the card of a model.

    Args:
        model_id: The name of the model, or of one of its adapters.
        model_config: The configuration of the model.
        overrides: Additional metadata.
    """
    metadata = {
        "model_id": model_config.model_id,
        "input_modality": model_config.input_modality,
        "max_request_context_length": model_config.max_request_context_length,
        **(overrides or {}),
    }
    scaling = model_config.deployment_config.get("autoscaling_config")
    min_replicas = (
        scaling.get("min_replicas") if isinstance(scaling, dict) else getattr(scaling, "min_replicas", None)
    )
    return ModelCard(
        id=model_id,
        parent=None if model_id == model_config.model_id else model_config.model_id,
        max_model_len=model_config.max_request_context_length,
        metadata=metadata,
        scales_to_zero=min_replicas == 0,
    )


class LoadLoraAdapterRequest(RequestModel):
    """A request to make a LoRA adapter available as a model.

    Args:
        lora_name: The name of the model.
        lora_path: The folder of the adapter.
        base_model: The model that the adapter belongs to. It is required if several models take adapters.
    """

    lora_name: Text = Field(min_length=1, max_length=256)
    lora_path: Text = Field(min_length=1)
    base_model: Text | None = None


class UnloadLoraAdapterRequest(RequestModel):
    """A request to unload a LoRA adapter that was loaded by name."""

    lora_name: Text = Field(min_length=1)


class TranscriptionRequest(RequestModel):
    """A transcription request. The response is always an error, because no engine takes audio yet."""

    model: Text | None = None
    file: Any = None
    language: Text | None = None
    prompt: Text | None = None
    response_format: Text | None = None
    temperature: float | None = None
    stream: Flag | None = None


class TranscriptionResponse(ResponseModel):
    """A transcription."""

    text: str


class TranscriptionStreamResponse(ResponseModel):
    """The next part of a transcription."""

    id: str
    object: Literal["transcription.chunk"] = "transcription.chunk"
    created: int
    model: str
    choices: list[Any]
