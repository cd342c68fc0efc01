"""Requests and responses of chat completions."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

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
    UsageInfo,
    unix_time,
)
from skate.serve.llm._protocol.sampling import MAX_LOGPROBS, SamplingFields

__all__ = [
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "ChatCompletionStreamResponse",
    "unsupported_content",
]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
Name = Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.:/-]+$")
MAX_TOOLS = 128


def unsupported_content(part: Any, param: str) -> RequestError:
    """Return the error for a part of a message that is not text."""
    kind = part.get("type") if isinstance(part, dict) else part
    return RequestError(
        f"`{param}` has content of type {str(kind)[:64]!r}, but the model takes text only.", param=param
    )


class ContentPart(RequestModel):
    """A part of a message. Models take text only."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: Text | None = None
    refusal: Text | None = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    cache_control: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _reject_media(cls, given: Any) -> Any:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind.startswith(
            ("image", "input_image", "audio", "input_audio", "video", "file")
        ):
            raise ValueError(f"the model takes text only, not content of type {kind!r}")
        return given

    @property
    def value(self) -> str:
        """The text of the part."""
        return self.text or self.refusal or ""


class FunctionCall(RequestModel):
    """The function that a tool call names, and its arguments as JSON text."""

    name: Text
    arguments: Text = "{}"


class ToolCall(RequestModel):
    """A tool call of an earlier answer."""

    id: Text
    type: Literal["function"] = "function"
    function: FunctionCall
    index: Integer | None = None


class ChatMessage(RequestModel):
    """A message of a conversation.

    `annotations` is ignored; clients send it because they return messages as they received them.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[ContentPart] | None = None
    name: Text | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    refusal: Text | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(
                f"only a message of role 'assistant' may have `tool_calls`, not one of role {self.role!r}"
            )
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of role 'tool' needs `tool_call_id`")
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message of role {self.role!r} needs `content`")
        return self

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, list):
            return "".join(part.value for part in self.content)
        return self.content or self.refusal or ""


class FunctionDefinition(RequestModel):
    """A function that the model may call."""

    name: str = Name
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: Flag | None = None


class Tool(RequestModel):
    """A tool that the model may use."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(RequestModel):
    """The name of a function."""

    name: Text


class NamedToolChoice(RequestModel):
    """The tool that the model must use."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchemaFormat(RequestModel):
    """A JSON schema for the answer."""

    name: Text = "response"
    description: Text | None = None
    # pydantic uses the name `schema` itself.
    schema_: dict[str, Any] | Flag | None = Field(default=None, alias="schema")
    strict: Flag | None = None


class ResponseFormat(RequestModel):
    """The format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError("a response format of type 'json_schema' needs `json_schema.schema`")
        return self


class ChatCompletionRequest(SamplingFields):
    """A chat completion request.

    `user`, `metadata`, `prompt_cache_key`, `prompt_cache_retention`, `safety_identifier`, `service_tier`, `store`,
    `verbosity` and `prediction` are accepted and ignored; `ignored_fields` in the response lists them.
    """

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: Positive | None = None
    logprobs: Flag = False
    top_logprobs: Integer | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: Flag = True
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: Flag | None = None
    continue_final_message: Flag = False
    modalities: list[Literal["text"]] | None = None
    # Accepted and ignored.
    prompt_cache_retention: Text | None = None
    safety_identifier: Text | None = None
    verbosity: Text | None = None
    prediction: dict[str, Any] | None = None

    @field_validator("tools")
    @classmethod
    def _check_names(cls, tools: list[Tool] | None) -> list[Tool] | None:
        names = [tool.function.name for tool in tools or ()]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tools have the name {name!r}")
        return tools or None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError(
                "`max_tokens` and `max_completion_tokens` have the same meaning but different values: "
                f"{self.max_tokens} and {self.max_completion_tokens}. Send one of them."
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs` to be true.")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("`continue_final_message` and `add_generation_prompt` cannot both be true.")
        choice = self.tool_choice
        if choice == "required" and self.tools is None:
            raise ValueError("`tool_choice` is 'required', but there are no `tools`.")
        if isinstance(choice, NamedToolChoice):
            names = [tool.function.name for tool in self.tools or ()]
            if choice.function.name not in names:
                raise ValueError(
                    f"`tool_choice` names the tool {choice.function.name!r}, which is not among `tools`: {names}."
                )
        if self._constrains_answer and (choice == "required" or isinstance(choice, NamedToolChoice)):
            raise ValueError(
                "`tool_choice` requires a tool call, but `response_format` or `structured_outputs` requires another "
                "format. Send one of them."
            )
        return self

    @property
    def _constrains_answer(self) -> bool:
        has_format = self.response_format is not None and self.response_format.type != "text"
        return has_format or self.structured_outputs is not None

    @property
    def limit(self) -> int | None:
        """The maximum number of tokens to generate."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def ignored_fields(self) -> list[str]:
        """The fields of the request that have no effect."""
        return [*super().ignored_fields, *(name for name in _IGNORED if getattr(self, name) is not None)]


_IGNORED = ("prompt_cache_retention", "safety_identifier", "verbosity", "prediction")


class TopLogprob(ResponseModel):
    """The log-probability of a token."""

    token: str
    logprob: Number
    bytes: list[int] | None = None


class ChatLogprob(TopLogprob):
    """The log-probabilities of a chosen token and of the most probable tokens."""

    top_logprobs: list[TopLogprob] = Field(default_factory=list)


class ChatLogprobs(ResponseModel):
    """The log-probabilities of the tokens of an answer."""

    content: list[ChatLogprob] | None = None
    refusal: None = None


class FunctionCallResponse(ResponseModel):
    """The function that the model calls, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCallResponse(ResponseModel):
    """A tool call of the model."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCallResponse


class AssistantMessage(ResponseModel):
    """The answer of the model."""

    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallResponse] | None = None

    always_sent = ("content", "refusal")


class ChatChoice(ResponseModel):
    """One of the generated answers."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None

    always_sent = ("logprobs", "finish_reason")


class ChatCompletionResponse(ResponseModel):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[ChatChoice]
    usage: UsageInfo
    timing: Timing | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | None = None
    ignored_fields: list[str] | None = None


class FunctionCallDelta(ResponseModel):
    """The next part of a function call."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(ResponseModel):
    """The next part of a tool call. The first part has the id and the name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCallDelta


class ChatDelta(ResponseModel):
    """The next part of an answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatStreamChoice(ResponseModel):
    """The next part of one of the answers."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None

    always_sent = ("finish_reason",)


class ChatCompletionStreamResponse(ResponseModel):
    """The next part of a chat completion."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int = Field(default_factory=unix_time)
    model: str
    choices: list[ChatStreamChoice]
    usage: UsageInfo | None = None
    timing: Timing | None = None
    prompt_token_ids: list[int] | None = None
    ignored_fields: list[str] | None = None
