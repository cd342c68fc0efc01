"""Chat completions: generate the answers to a request, complete or as a stream."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from skate.llm import GenerationOutput, TextGenerator, Tokenizer, TokenLogprob
from skate.serve.llm._protocol.base import RawRequestInfo, RequestError
from skate.serve.llm._protocol.chat import (
    AssistantMessage,
    ChatChoice,
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    ChatStreamChoice,
    FunctionCallDelta,
    FunctionCallResponse,
    ToolCallDelta,
    ToolCallResponse,
    TopLogprob,
)
from skate.serve.llm._server.constraints import chat_grammar, tools_of
from skate.serve.llm._server.generation import (
    Account,
    ChunkTemplate,
    EventTemplate,
    Run,
    chunk_event,
    finish_reason,
    last_events,
    run_samples,
    samples_of,
    sampling_params,
)
from skate.serve.llm._server.prompts import (
    ChatPrompt,
    check_context,
    check_length,
    render_chat,
    run_tokenizer,
)
from skate.serve.llm._server.text_splitters import (
    CALL_OPEN,
    THINK_CLOSE,
    Part,
    ReasoningSplitter,
    TextPart,
    ToolCallParser,
    ToolCallPart,
)

__all__ = ["ChatRun", "Piece", "TranslatedRun", "answer_chat", "stream_chat"]


@dataclass(slots=True)  # not frozen: one is made for each token, and freezing doubles the cost
class Piece:
    """The next piece of one of the answers.

    Args:
        index: The number of the answer.
        parts: The text and tool calls that the piece adds.
        output: The output of the engine.
        finish_reason: Set on the last piece of the answer.
    """

    index: int
    parts: list[Part]
    output: GenerationOutput
    finish_reason: str | None = None


class ChatRun(Run[ChatCompletionRequest]):
    """A chat completion that runs on an engine. Call `prepare` first."""

    ID_PREFIX = "chatcmpl-"

    def __init__(
        self,
        engine: TextGenerator,
        request: ChatCompletionRequest,
        adapter: str | None,
        info: RawRequestInfo | None,
    ) -> None:
        super().__init__(engine, request, adapter, info)
        self.prompt = ChatPrompt([])

    async def prepare(self) -> None:
        """Render the conversation to a prompt, and check that it fits into the context.

        Raises:
            RequestError: If the request is invalid.
        """
        characters = sum(len(message.text) for message in self.request.messages)
        check_length(characters, self.engine.max_model_len, "messages")
        self.prompt = await run_tokenizer(self._render, characters)
        count = len(self.prompt.tokens)
        if not count:
            raise RequestError("The messages give an empty prompt.", param="messages")
        check_context(count, self.request.limit, self.engine.max_model_len, "messages")
        self.account.add_prompt(count)

    def _render(self) -> ChatPrompt:
        request = self.request
        variables = dict(request.chat_template_kwargs or {})
        if request.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", request.reasoning_effort)
            variables.setdefault("enable_thinking", request.reasoning_effort != "none")
        return render_chat(
            self.engine.tokenizer,
            request.messages,
            tools=tools_of(request),
            add_generation_prompt=request.add_generation_prompt is not False,
            continue_final_message=request.continue_final_message,
            variables=variables,
        )

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Generate the answers. Closing the iterator aborts them."""
        request, tokenizer = self.request, self.engine.tokenizer
        starts_in_reasoning = self.prompt.starts_in_reasoning
        has_tools = bool(tools_of(request))
        params = sampling_params(
            self.engine,
            request,
            logprobs=(request.top_logprobs or 0) if request.logprobs else None,
            grammar=chat_grammar(request, tokenizer, starts_in_reasoning=starts_in_reasoning),
            skip_special_tokens=request.skip_special_tokens
            and not _is_hidden(tokenizer, THINK_CLOSE)
            and not (has_tools and _is_hidden(tokenizer, CALL_OPEN)),
        )
        requests = list(samples_of(request, self.id, self.prompt.tokens, params, self.adapter))
        splitters = [
            ReasoningSplitter(
                starts_in_reasoning=starts_in_reasoning, is_enabled=not request.continue_final_message
            )
            for _ in requests
        ]
        parsers = [ToolCallParser(has_tools) for _ in requests]
        async with aclosing(run_samples(self.engine, requests)) as outputs:
            async for index, output in outputs:
                splitter, parser = splitters[index], parsers[index]
                self.account.add(index, output, is_reasoning=splitter.is_reasoning)
                reason = finish_reason(output)
                parts = _split(output.text, splitter, parser, is_last=reason is not None)
                if parser.count and reason == "stop":
                    reason = "tool_calls"
                yield Piece(index, parts, output, reason)


R = TypeVar("R")


class TranslatedRun(ABC, Generic[R]):
    """A request of another API that runs as a chat completion.

    Args:
        engine: The engine.
        request: The request.
        adapter: The engine's name for the adapter, or None.
        info: The HTTP request.
    """

    def __init__(
        self, engine: TextGenerator, request: R, adapter: str | None, info: RawRequestInfo | None
    ) -> None:
        self.request = request
        self.chat = ChatRun(engine, self.translate(request), adapter, info)

    @staticmethod
    @abstractmethod
    def translate(request: R) -> ChatCompletionRequest:
        """Translate a request into a chat completion request."""

    @property
    def account(self) -> Account:
        """The tokens and the time of the request."""
        return self.chat.account


def _split(text: str, splitter: ReasoningSplitter, parser: ToolCallParser, *, is_last: bool) -> list[Part]:
    """Return the parts of a piece of text: reasoning, content and tool calls."""
    if splitter.is_in_answer and not parser.is_enabled:
        return [TextPart(text)] if text else []
    parts: list[Part] = []
    for part in splitter.feed(text, is_last=is_last):
        if part.is_reasoning:
            parts.append(part)
        else:
            parts.extend(parser.feed(part.text))
    if is_last:
        parts.extend(parser.feed("", is_last=True))
    return parts


def _is_hidden(tokenizer: Tokenizer, marker: str) -> bool:
    """Return whether a marker is a special token, which decoding leaves out of the text."""
    tokens = tokenizer.encode(marker, add_special_tokens=False)
    return len(tokens) == 1 and not tokenizer.decode(tokens, skip_special_tokens=True)


# ------------------------------------------------------------ complete answers


@dataclass
class _Message:
    """An answer under construction."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallResponse] = field(default_factory=list)
    logprobs: list[ChatLogprob] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def add(self, part: Part) -> None:
        if isinstance(part, TextPart):
            (self.reasoning if part.is_reasoning else self.content).append(part.text)
        elif part.name is not None:
            function = FunctionCallResponse(name=part.name, arguments=part.arguments)
            self.calls.append(ToolCallResponse(id=part.id or "", function=function))
        else:
            self.calls[part.index].function.arguments += part.arguments


async def answer_chat(run: ChatRun, model: str) -> ChatCompletionResponse:
    """Return the complete answers to a request."""
    request = run.request
    await run.prepare()
    messages = [_Message() for _ in range(request.samples)]
    async with aclosing(run.pieces()) as pieces:
        async for piece in pieces:
            message = messages[piece.index]
            for part in piece.parts:
                message.add(part)
            message.tokens.extend(piece.output.tokens)
            message.logprobs.extend(_logprobs(run.engine.tokenizer, piece.output.logprobs or ()))
            if piece.finish_reason is not None:
                message.finish_reason, message.stop_reason = piece.finish_reason, piece.output.stop_reason
    return ChatCompletionResponse(
        id=run.id,
        model=model,
        choices=[_choice(index, message, request) for index, message in enumerate(messages)],
        usage=run.account.usage,
        timing=run.account.timing,
        prompt_token_ids=list(run.prompt.tokens) if request.return_token_ids else None,
        ignored_fields=request.ignored_fields or None,
    )


def _choice(index: int, message: _Message, request: ChatCompletionRequest) -> ChatChoice:
    content = "".join(message.content)
    return ChatChoice(
        index=index,
        message=AssistantMessage(
            content=content if content or not message.calls else None,
            reasoning_content="".join(message.reasoning) or None,
            tool_calls=message.calls or None,
        ),
        logprobs=ChatLogprobs(content=message.logprobs) if request.logprobs else None,
        finish_reason=message.finish_reason,
        stop_reason=message.stop_reason,
        token_ids=message.tokens if request.return_token_ids else None,
    )


def _logprobs(tokenizer: Tokenizer, given: tuple[TokenLogprob, ...]) -> list[ChatLogprob]:
    logprobs = []
    for each in given:
        text = tokenizer.token_text(each.token)
        top = [
            TopLogprob(token=shown, logprob=logprob, bytes=list(shown.encode()))
            for shown, logprob in ((tokenizer.token_text(token), logprob) for token, logprob in each.top)
        ]
        logprobs.append(
            ChatLogprob(token=text, logprob=each.logprob, bytes=list(text.encode()), top_logprobs=top)
        )
    return logprobs


# ------------------------------------------------------------ streams


async def stream_chat(run: ChatRun, model: str) -> AsyncGenerator[str]:
    """Yield the answers to a request as server-sent events, each as soon as the engine has generated it."""
    request = run.request
    await run.prepare()
    writer = _ChunkWriter(run, model)
    is_plain = not (request.includes_usage_so_far or request.logprobs or request.return_token_ids)
    left = request.samples
    async with aclosing(run.pieces()) as pieces:
        async for piece in pieces:
            if is_plain and piece.finish_reason is None:
                if not piece.parts and writer.has_begun(piece.index):
                    continue
                if text := writer.text_event(piece):
                    yield text
                    continue
            left -= piece.finish_reason is not None
            yield chunk_event(writer.chunk(piece), run, is_last=not left)
    for text in last_events(writer.empty(), run):
        yield text


class _ChunkWriter:
    """Create the chunks of a stream."""

    def __init__(self, run: ChatRun, model: str) -> None:
        self._run = run
        self._base = ChatCompletionStreamResponse(id=run.id, model=model, choices=[])
        self._begun: set[int] = set()
        self._templates: dict[tuple[int, bool, bool], EventTemplate] = {}

    def has_begun(self, index: int) -> bool:
        """Return whether an answer has a chunk already. The first chunk contains the role."""
        return index in self._begun

    def empty(self) -> ChatCompletionStreamResponse:
        """Return a chunk without choices."""
        return self._base.model_copy()

    def chunk(self, piece: Piece) -> ChatCompletionStreamResponse:
        """Return the chunk for a piece."""
        request, output = self._run.request, piece.output
        is_first = piece.index not in self._begun
        self._begun.add(piece.index)
        logprobs = None
        if request.logprobs and output.logprobs:
            logprobs = ChatLogprobs(content=_logprobs(self._run.engine.tokenizer, output.logprobs))
        choice = ChatStreamChoice(
            index=piece.index,
            delta=_delta(piece.parts, is_first=is_first),
            logprobs=logprobs,
            finish_reason=piece.finish_reason,
            stop_reason=output.stop_reason,
            token_ids=list(output.tokens) if request.return_token_ids else None,
        )
        chunk = self._base.model_copy(update={"choices": [choice]})
        if is_first and len(self._begun) == 1:
            chunk.ignored_fields = request.ignored_fields or None
            if request.return_token_ids:
                chunk.prompt_token_ids = list(self._run.prompt.tokens)
        return chunk

    def text_event(self, piece: Piece) -> str | None:
        """Return the event for a piece that only adds text, or None. In most pieces, only the text differs."""
        index, parts = piece.index, piece.parts
        part = parts[0] if len(parts) == 1 else _NO_TEXT
        if len(parts) > 1 or not isinstance(part, TextPart):
            return None
        is_first = index not in self._begun
        if is_first:
            if self._run.request.ignored_fields:
                return None
            self._begun.add(index)
        key = index, part.is_reasoning, is_first
        template = self._templates.get(key)
        if template is None:
            template = _template(self._base.model, *key).bind(self._base.id, self._base.created)
            self._templates[key] = template
        return template.fill(part.text)


_NO_TEXT = TextPart("")


@functools.lru_cache(maxsize=256)
def _template(model: str, index: int, is_reasoning: bool, is_first: bool) -> ChunkTemplate:
    """Return the template of a chunk that adds text to an answer or to its reasoning."""
    part = TextPart(ChunkTemplate.TEXT, is_reasoning)
    return ChunkTemplate(
        ChatCompletionStreamResponse(
            id=ChunkTemplate.ID,
            created=ChunkTemplate.CREATED,
            model=model,
            choices=[ChatStreamChoice(index=index, delta=_delta([part], is_first=is_first))],
        )
    )


def _delta(parts: list[Part], *, is_first: bool) -> ChatDelta:
    content = "".join(part.text for part in parts if isinstance(part, TextPart) and not part.is_reasoning)
    reasoning = "".join(part.text for part in parts if isinstance(part, TextPart) and part.is_reasoning)
    calls = _call_deltas([part for part in parts if isinstance(part, ToolCallPart)])
    return ChatDelta(
        role="assistant" if is_first else None,
        content=content or ("" if is_first and not calls and not reasoning else None),
        reasoning_content=reasoning or None,
        tool_calls=calls or None,
    )


def _call_deltas(parts: list[ToolCallPart]) -> list[ToolCallDelta]:
    """Return one delta for each tool call that the parts belong to."""
    deltas: dict[int, ToolCallDelta] = {}
    for part in parts:
        delta = deltas.setdefault(
            part.index, ToolCallDelta(index=part.index, function=FunctionCallDelta(arguments=""))
        )
        if part.name is not None:
            delta.id, delta.type, delta.function.name = part.id, "function", part.name
        delta.function.arguments = f"{delta.function.arguments}{part.arguments}"
    return list(deltas.values())
