"""Requests and responses of OpenAI's Responses API, and their translation to chat completions."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import Field, field_validator

from skate.serve.llm._protocol.base import (
    CompletionTokensDetails,
    Count,
    Flag,
    Integer,
    Number,
    Positive,
    PromptTokensDetails,
    RequestError,
    RequestModel,
    ResponseModel,
    Text,
    Timing,
    unix_time,
)
from skate.serve.llm._protocol.chat import ChatCompletionRequest, ReasoningEffort, unsupported_content

__all__ = ["Response", "ResponseUsage", "ResponsesRequest", "custom_tools", "to_chat_request"]

_IGNORED = (
    "user",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "client_metadata",
    "max_tool_calls",
    "include",
)
_INCLUDES = ("reasoning.encrypted_content",)
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")


class Reasoning(RequestModel):
    """How much the model reasons. `summary` is ignored: the reasoning itself is returned."""

    effort: ReasoningEffort | None = None
    summary: Text | None = None
    generate_summary: Text | None = None


class TextFormat(RequestModel):
    """The format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    # pydantic uses the name `schema` itself.
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: Flag | None = None


class TextOptions(RequestModel):
    """Options of the text. `verbosity` is ignored."""

    format: TextFormat | None = None
    verbosity: Text | None = None


class ResponsesRequest(RequestModel):
    """A request for a response.

    Nothing is stored: send the whole conversation as `input`. `user`, `metadata`, `prompt_cache_key`,
    `prompt_cache_retention`, `safety_identifier`, `service_tier`, `store`, `client_metadata`, `max_tool_calls` and
    `include` are accepted and ignored; `ignored_fields` in the response lists them.
    """

    model: Text | None = None
    input: Text | list[dict[str, Any]]
    instructions: Text | None = None
    max_output_tokens: Positive | None = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    top_p: Number | None = Field(default=None, ge=0, le=1)
    stream: Flag | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: Flag | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled"] | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None
    background: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    # Accepted and ignored.
    include: list[Text] | None = None
    max_tool_calls: Integer | None = None
    user: Text | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: Text | None = None
    prompt_cache_retention: Text | None = None
    safety_identifier: Text | None = None
    service_tier: Text | None = None
    store: Flag | None = None
    client_metadata: dict[str, Any] | None = None

    @field_validator("previous_response_id", "conversation", "prompt", mode="before")
    @classmethod
    def _reject_state(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError("responses are not stored: send the whole conversation as `input`")
        return value

    @field_validator("truncation", mode="before")
    @classmethod
    def _reject_truncation(cls, value: Any) -> Any:
        if value == "auto":
            raise ValueError("nothing is truncated: send a shorter `input`")
        return value

    @field_validator("include")
    @classmethod
    def _check_include(cls, value: list[str] | None) -> list[str] | None:
        for each in value or ():
            if each not in _INCLUDES:
                raise ValueError(f"{each!r} cannot be included; supported values are: {', '.join(_INCLUDES)}")
        return value

    @property
    def ignored_fields(self) -> list[str]:
        """The fields of the request that have no effect."""
        return [name for name in _IGNORED if getattr(self, name) is not None]


def custom_tools(request: ResponsesRequest) -> set[str]:
    """Return the names of the tools whose input is plain text."""
    return {str(tool.get("name")) for tool in request.tools or () if tool.get("type") == "custom"}


def to_chat_request(request: ResponsesRequest) -> ChatCompletionRequest:
    """Translate a request into a chat completion request.

    Raises:
        RequestError: If it is invalid.
    """
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request),
        "max_completion_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stream": request.stream,
        "tools": [_tool(tool, number) for number, tool in enumerate(request.tools or ())] or None,
        "tool_choice": _tool_choice(request.tool_choice),
        "reasoning_effort": None if request.reasoning is None else request.reasoning.effort,
    }
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    if request.text is not None and request.text.format is not None:
        format = request.text.format
        fields["response_format"] = {"type": format.type}
        if format.type == "json_schema":
            fields["response_format"]["json_schema"] = {
                "name": format.name or "response",
                "schema": format.schema_,
            }
    return ChatCompletionRequest.parse(fields)


def _messages(request: ResponsesRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    reasoning: str | None = None
    for number, item in enumerate(request.input):
        kind = item.get("type", "message")
        param = f"input[{number}]"
        match kind:
            case "message":
                message = {"role": item.get("role"), "content": _content(item.get("content"), param)}
                if reasoning is not None and message["role"] == "assistant":
                    message["reasoning_content"], reasoning = reasoning, None
                messages.append(message)
            case "function_call" | "custom_tool_call":
                _add_call(messages, item, reasoning)
                reasoning = None
            case "function_call_output" | "custom_tool_call_output":
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": item.get("call_id"),
                        "content": _content(item.get("output"), param),
                    }
                )
            case "reasoning":
                parts = item.get("content") or item.get("summary") or []
                reasoning = "".join(str(part.get("text", "")) for part in parts)
            case _:
                raise RequestError(
                    f"`{param}` has the type {str(kind)[:64]!r}, which is not supported: send messages, function calls "
                    "and their outputs, and reasoning.",
                    param=param,
                )
    return messages


def _content(content: Any, param: str) -> Any:
    """Return content as the content of a chat message: a string, or a list of text parts."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS:
            raise unsupported_content(part, param)
    return [{"type": "text", "text": str(part.get("text") or part.get("refusal") or "")} for part in content]


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], reasoning: str | None) -> None:
    """Add a tool call to the last message if it is the assistant's, otherwise to a new message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    arguments = item.get("arguments")
    if item["type"] == "custom_tool_call":
        arguments = json.dumps({"input": item.get("input", "")})
    call = {"id": item.get("call_id"), "function": {"name": item.get("name"), "arguments": arguments}}
    messages[-1].setdefault("tool_calls", []).append(call)
    if reasoning is not None:
        messages[-1]["reasoning_content"] = reasoning


def _tool(tool: dict[str, Any], number: int) -> dict[str, Any]:
    kind, param = tool.get("type"), f"tools[{number}]"
    known = {"function": ("parameters", "strict"), "custom": ("format",)}
    if kind not in known:
        raise RequestError(
            f"`{param}` has the type {str(kind)[:64]!r}, but the server has no built-in tools: send tools of type "
            "'function' or 'custom'.",
            param=param,
        )
    unknown = set(tool) - {"type", "name", "description", "defer_loading", *known[kind]}
    if unknown:
        raise RequestError(f"`{param}` has no field {min(unknown)!r}.", param=param, code="unknown_parameter")
    parameters = tool.get("parameters")
    if kind == "custom":
        parameters = {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
            "additionalProperties": False,
        }
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | dict[str, Any] | None) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") not in ("function", "custom"):
        raise RequestError(
            "`tool_choice` must name a tool of type 'function' or 'custom'.", param="tool_choice"
        )
    return {"type": "function", "function": {"name": choice.get("name")}}


class ResponseUsage(ResponseModel):
    """The number of tokens that a request used."""

    input_tokens: Count = 0
    input_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)
    output_tokens: Count = 0
    output_tokens_details: CompletionTokensDetails = Field(default_factory=CompletionTokensDetails)
    total_tokens: Count = 0


class Response(ResponseModel):
    """A response. Its output is a list of items: reasoning, messages, and tool calls."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(default_factory=unix_time)
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str
    output: list[dict[str, Any]] = Field(default_factory=list)
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    reasoning: dict[str, Any] | None = None
    store: Literal[False] = False
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: Any = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    metadata: dict[str, Any] | None = None
    timing: Timing | None = None
    ignored_fields: list[str] | None = None

    always_sent = (
        "error",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "temperature",
        "top_p",
        "usage",
        "metadata",
    )

    @classmethod
    def for_request(cls, id: str, model: str, request: ResponsesRequest) -> Self:
        """Return the response to a request, as it is before anything is generated."""
        format = None if request.text is None else request.text.format
        return cls(
            id=id,
            model=model,
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            reasoning=None if request.reasoning is None else request.reasoning.model_dump(),
            temperature=request.temperature,
            text={
                "format": {"type": "text"}
                if format is None
                else format.model_dump(by_alias=True, exclude_none=True)
            },
            tool_choice=request.tool_choice or "auto",
            tools=request.tools or [],
            top_p=request.top_p,
            metadata=request.metadata,
            ignored_fields=request.ignored_fields or None,
        )
