"""Anthropic's Messages API."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from skate.serve.llm._protocol.base import (
    Flag,
    Integer,
    Number,
    Positive,
    RequestError,
    RequestModel,
    ResponseModel,
    Text,
    Timing,
)
from skate.serve.llm._protocol.chat import ChatCompletionRequest

__all__ = [
    "CountTokensRequest",
    "CountTokensResponse",
    "MessagesRequest",
    "MessagesResponse",
    "to_chat_request",
]


class AnthropicMessage(RequestModel):
    """A message: text or a list of blocks."""

    role: Literal["user", "assistant", "system"]
    content: Text | list[dict[str, Any]]


class AnthropicTool(RequestModel):
    """A tool that the model may use."""

    name: Text
    description: Text | None = None
    input_schema: dict[str, Any] | None = None
    type: Literal["custom"] | None = None
    cache_control: dict[str, Any] | None = None
    strict: Flag | None = None
    eager_input_streaming: Flag | None = None


class AnthropicToolChoice(RequestModel):
    """Whether, and which, tool the model must use."""

    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None
    disable_parallel_tool_use: Flag | None = None


class Thinking(RequestModel):
    """Whether the model reasons. The budget is ignored."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Integer | None = None
    display: Text | None = None


class CountTokensRequest(RequestModel):
    """A request for the number of tokens of a conversation."""

    model: Text | None = None
    messages: list[AnthropicMessage] = Field(min_length=1)
    system: Text | list[dict[str, Any]] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None


class MessagesRequest(CountTokensRequest):
    """A request for the next message.

    `metadata`, `service_tier`, `container`, `context_management` and `output_config` are accepted and ignored.
    """

    max_tokens: Positive
    stop_sequences: list[Text] | None = None
    stream: Flag | None = None
    temperature: Number | None = Field(default=None, ge=0, le=1)
    top_k: Integer | None = Field(default=None, ge=0)
    top_p: Number | None = Field(default=None, ge=0, le=1)
    # Accepted and ignored.
    metadata: dict[str, Any] | None = None
    service_tier: Text | None = None
    container: Text | None = None
    context_management: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


class CountTokensResponse(ResponseModel):
    """The number of tokens of a conversation."""

    input_tokens: int


class MessagesResponse(ResponseModel):
    """A message."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[dict[str, Any]] = Field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: dict[str, int] = Field(default_factory=dict)
    timing: Timing | None = None

    always_sent = ("stop_reason", "stop_sequence")


def to_chat_request(request: CountTokensRequest) -> ChatCompletionRequest:
    """Return the chat completion request that a request means.

    Raises:
        RequestError: If it is invalid.
    """
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": _text(request.system, "system")})
    for number, message in enumerate(request.messages):
        messages += _translate(message, f"messages[{number}]")
    fields: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.tools:
        fields["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.tools
        ]
    if (choice := request.tool_choice) is not None:
        names = {"auto": "auto", "any": "required", "none": "none"}
        fields["tool_choice"] = names.get(choice.type) or {
            "type": "function",
            "function": {"name": choice.name},
        }
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if request.thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": request.thinking.type != "disabled"}
    if isinstance(request, MessagesRequest):
        fields |= {
            "max_tokens": request.max_tokens,
            "stop": request.stop_sequences,
            "stream": request.stream,
            "temperature": request.temperature,
            "top_k": request.top_k,
            "top_p": request.top_p,
        }
    return ChatCompletionRequest.parse(fields)


def _text(content: str | list[dict[str, Any]], param: str) -> str:
    if isinstance(content, str):
        return content
    for block in content:
        if not isinstance(block, dict) or block.get("type") != "text":
            kind = block.get("type") if isinstance(block, dict) else block
            raise RequestError(
                f"`{param}` has a block of type {str(kind)[:64]!r}: the model takes text only.", param=param
            )
    return "".join(str(block.get("text", "")) for block in content)


def _translate(message: AnthropicMessage, param: str) -> list[dict[str, Any]]:
    """Return the messages that a message means: one, and one for each result of a tool."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    made: list[dict[str, Any]] = []
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.content:
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "thinking":
                reasoning.append(str(block.get("thinking", "")))
            case "redacted_thinking":
                pass  # another provider encrypted it
            case "tool_use":
                function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case "tool_result":
                content = _text(block.get("content") or "", param)
                made.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
            case kind:
                raise RequestError(
                    f"`{param}` has a block of type {str(kind)[:64]!r}: the model takes text only.",
                    param=param,
                )
    if texts or calls or not made:
        own: dict[str, Any] = {"role": message.role, "content": "".join(texts)}
        if calls:
            own["tool_calls"] = calls
        if reasoning:
            own["reasoning_content"] = "".join(reasoning)
        made.append(own)
    return made
