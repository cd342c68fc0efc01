"""Chat completions: from a request to the parts of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from skate.llm import Engine, GenerationOutput, Tokenizer, TokenLogprob
from skate.serve.llm._protocol.base import RawRequestInfo, RequestError, new_id
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
    finish_reason,
    run_samples,
    samples_of,
    sampling_params,
)
from skate.serve.llm._server.prompts import ChatPrompt, check_context, check_length, render_chat
from skate.serve.llm._server.text_splitters import (
    CALL_OPEN,
    THINK_CLOSE,
    Part,
    ReasoningSplitter,
    TextPart,
    ToolCallParser,
    ToolCallPart,
)

__all__ = ["DONE", "ChatRun", "Piece", "answer_chat", "event", "stream_chat"]

DONE = "data: [DONE]\n\n"
_LONG_TEXT = (
    16_384  # characters; longer texts are tokenized in a thread, so that they do not delay other requests
)
_MARK = "\x00"


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of one of the answers.

    Args:
        index: The number of the answer.
        parts: What it adds to the reasoning, the content and the tool calls.
        output: What the engine sent.
        finish_reason: Set on the last piece of the answer.
    """

    index: int
    parts: list[Part]
    output: GenerationOutput
    finish_reason: str | None = None


class ChatRun:
    """A chat completion that runs on an engine. Call `prepare` first.

    Args:
        engine: The engine.
        request: The request.
        adapter: The engine's name of the adapter, or None.
        info: The HTTP request.
    """

    def __init__(
        self, engine: Engine, request: ChatCompletionRequest, adapter: str | None, info: RawRequestInfo | None
    ) -> None:
        self.account = Account(info)
        self.engine = engine
        self.request = request
        self.id = request.request_id or new_id("chatcmpl-")
        self.prompt = ChatPrompt([])
        self._adapter = adapter

    async def prepare(self) -> None:
        """Turn the conversation into a prompt, and check that it fits.

        Raises:
            RequestError: If the request is invalid.
        """
        characters = sum(len(message.text) for message in self.request.messages)
        check_length(characters, self.engine.max_model_len, "messages")
        if characters > _LONG_TEXT:
            self.prompt = await asyncio.to_thread(self._render)
        else:
            self.prompt = self._render()
        count = len(self.prompt.tokens)
        if not count:
            raise RequestError("The prompt of the messages is empty.", param="messages")
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
        requests = list(samples_of(request, self.id, self.prompt.tokens, params, self._adapter))
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


def _split(text: str, splitter: ReasoningSplitter, parser: ToolCallParser, *, is_last: bool) -> list[Part]:
    """Return what a piece of text adds to the reasoning, the content and the tool calls."""
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
    """Return whether a marker is a special token, which is usually left out of the text."""
    tokens = tokenizer.encode(marker, add_special_tokens=False)
    return len(tokens) == 1 and not tokenizer.decode(tokens, skip_special_tokens=True)


# ------------------------------------------------------------ complete answers


@dataclass
class _Message:
    """An answer that is being put together."""

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
    """Return the complete answer to a request."""
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
    made = []
    for each in given:
        text = tokenizer.token_text(each.token)
        top = [
            TopLogprob(token=shown, logprob=logprob, bytes=list(shown.encode()))
            for shown, logprob in ((tokenizer.token_text(token), logprob) for token, logprob in each.top)
        ]
        made.append(
            ChatLogprob(token=text, logprob=each.logprob, bytes=list(text.encode()), top_logprobs=top)
        )
    return made


# ------------------------------------------------------------ streams


def event(data: str) -> str:
    r"""Return a server-sent event.

    >>> event("{}")
    'data: {}\n\n'
    """
    return f"data: {data}\n\n"


async def stream_chat(run: ChatRun, model: str) -> AsyncGenerator[str]:
    """Yield the answer to a request as server-sent events, each as soon as the engine has produced it."""
    request = run.request
    await run.prepare()
    options = request.stream_options
    with_usage = options is not None and options.continuous_usage_stats
    writer = _ChunkWriter(run, model)
    is_plain = not (with_usage or request.logprobs or request.return_token_ids)
    left = request.samples
    async with aclosing(run.pieces()) as pieces:
        async for piece in pieces:
            if is_plain and piece.finish_reason is None and writer.has_begun(piece.index):
                if not piece.parts:
                    continue
                if len(piece.parts) == 1 and (text := writer.text_event(piece.index, piece.parts[0])):
                    yield text
                    continue
            left -= piece.finish_reason is not None
            chunk = writer.chunk(piece)
            if with_usage:
                chunk.usage = run.account.usage
            if not left and not request.includes_usage:
                chunk.timing = run.account.timing
            yield event(chunk.to_json())
    if request.includes_usage:
        last = writer.empty()
        last.usage, last.timing = run.account.usage, run.account.timing
        yield event(last.to_json())
    yield DONE


class _ChunkWriter:
    """Make the chunks of a stream."""

    def __init__(self, run: ChatRun, model: str) -> None:
        self._run = run
        self._base = ChatCompletionStreamResponse(id=run.id, model=model, choices=[])
        self._begun: set[int] = set()
        self._frames: dict[tuple[int, bool], tuple[str, str]] = {}

    def has_begun(self, index: int) -> bool:
        """Return whether an answer has a chunk, whose delta has the role."""
        return index in self._begun

    def empty(self) -> ChatCompletionStreamResponse:
        """Return a chunk without choices."""
        return self._base.model_copy()

    def chunk(self, piece: Piece) -> ChatCompletionStreamResponse:
        """Return the chunk of a piece."""
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

    def text_event(self, index: int, part: Part) -> str | None:
        """Return the event of a part that is text. Most are, and only their text differs."""
        if not isinstance(part, TextPart):
            return None
        key = index, part.is_reasoning
        if key not in self._frames:
            field_name = "reasoning_content" if part.is_reasoning else "content"
            choice = ChatStreamChoice(index=index, delta=ChatDelta.model_validate({field_name: _MARK}))
            frame = self._base.model_copy(update={"choices": [choice]}).to_json()
            before, _, after = event(frame).partition('"\\u0000"')
            self._frames[key] = before, after
        before, after = self._frames[key]
        return f"{before}{msgspec.json.encode(part.text).decode()}{after}"


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
    made: dict[int, ToolCallDelta] = {}
    for part in parts:
        delta = made.setdefault(
            part.index, ToolCallDelta(index=part.index, function=FunctionCallDelta(arguments=""))
        )
        if part.name is not None:
            delta.id, delta.type, delta.function.name = part.id, "function", part.name
        delta.function.arguments = f"{delta.function.arguments}{part.arguments}"
    return list(made.values())
