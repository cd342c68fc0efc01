"""Requests and responses of Anthropic's Messages API, and their translation to chat completions."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from skate.serve.llm._protocol.base import (
    Flag,
    Integer,
    Number,
    Positive,
    RequestModel,
    ResponseModel,
    Text,
    Timing,
)
from skate.serve.llm._protocol.chat import ChatCompletionRequest, unsupported_content

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
    """Whether the model must use a tool, and which one."""

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
    """Translate a request into a chat completion request.

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
            raise unsupported_content(block, param)
    return "".join(str(block.get("text", "")) for block in content)


def _translate(message: AnthropicMessage, param: str) -> list[dict[str, Any]]:
    """Translate a message into one message for each tool result, followed by one for the rest of its content."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    translated: list[dict[str, Any]] = []
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
                pass  # it is encrypted for Anthropic's servers
            case "tool_use":
                function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case "tool_result":
                content = _text(block.get("content") or "", param)
                translated.append(
                    {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}
                )
            case _:
                raise unsupported_content(block, param)
    if texts or calls or not translated:
        rest: dict[str, Any] = {"role": message.role, "content": "".join(texts)}
        if calls:
            rest["tool_calls"] = calls
        if reasoning:
            rest["reasoning_content"] = "".join(reasoning)
        translated.append(rest)
    return translated
