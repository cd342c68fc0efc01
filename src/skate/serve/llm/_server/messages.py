"""Anthropic's Messages API, answered with chat completions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from skate.llm import Engine
from skate.serve.llm._protocol.base import ErrorResponse, new_id
from skate.serve.llm._protocol.messages import (
    CountTokensRequest,
    CountTokensResponse,
    MessagesRequest,
    MessagesResponse,
    to_chat_request,
)
from skate.serve.llm._server.chat import ChatRun, Piece, TranslatedRun
from skate.serve.llm._server.text_splitters import Part, TextPart

__all__ = ["MessagesRun", "answer_message", "count_tokens", "error_body", "error_event", "stream_message"]

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class MessagesRun(TranslatedRun[MessagesRequest]):
    """A message that is generated as a chat completion."""

    translate = staticmethod(to_chat_request)


async def count_tokens(engine: Engine, request: CountTokensRequest, *_: Any) -> CountTokensResponse:
    """Return the number of tokens of a conversation."""
    run = ChatRun(engine, to_chat_request(request), None, None)
    await run.prepare()
    return CountTokensResponse(input_tokens=len(run.prompt.tokens))


async def answer_message(run: MessagesRun, model: str) -> MessagesResponse:
    """Return the complete message."""
    blocks = _Blocks(run, model)
    await run.chat.prepare()
    async with aclosing(run.chat.pieces()) as pieces:
        async for piece in pieces:
            for part in piece.parts:
                blocks.add(part)
            if piece.finish_reason is not None:
                blocks.end(piece)
    return blocks.message


async def stream_message(run: MessagesRun, model: str) -> AsyncGenerator[str]:
    """Yield the message as server-sent events."""
    blocks = _Blocks(run, model)
    has_begun = False
    await run.chat.prepare()
    async with aclosing(run.chat.pieces()) as pieces:
        async for piece in pieces:
            events: list[dict[str, Any]] = []
            if not has_begun:
                has_begun = True
                blocks.message.usage = {"input_tokens": run.account.prompt_tokens, "output_tokens": 0}
                events.append({"type": "message_start", "message": json.loads(blocks.message.to_json())})
            events += [event for part in piece.parts for event in blocks.add(part)]
            if piece.finish_reason is not None:
                events += blocks.end(piece)
            for event in events:
                yield _write(event)


def _write(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def error_body(error: ErrorResponse) -> dict[str, Any]:
    """Return an error in Anthropic's format."""
    kind = _ERRORS.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.error.message}}


def error_event(error: ErrorResponse) -> str:
    """Return the event that ends a stream with an error."""
    return _write(error_body(error))


class _Blocks:
    """The blocks of a message, and the events that report them to the client."""

    def __init__(self, run: MessagesRun, model: str) -> None:
        self.message = MessagesResponse(id=new_id("msg_"), model=model)
        self._run = run
        self._json = ""

    def add(self, part: Part) -> list[dict[str, Any]]:
        """Add a part to the message, and return the events for it."""
        content = self.message.content
        kind = _kind(part)
        is_new_call = not isinstance(part, TextPart) and part.name is not None
        events: list[dict[str, Any]] = []
        if not content or content[-1]["type"] != kind or is_new_call:
            events += self._close()
            block: dict[str, Any]
            if isinstance(part, TextPart):
                block = {"type": "text", "text": ""}
                if part.is_reasoning:
                    block = {"type": "thinking", "thinking": "", "signature": ""}
            else:
                block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            content.append(block)
            self._json = ""
            events.append(
                {"type": "content_block_start", "index": len(content) - 1, "content_block": dict(block)}
            )
        if isinstance(part, TextPart):
            content[-1][kind] += part.text
            delta = {"type": f"{kind}_delta", kind: part.text}
        else:
            self._json += part.arguments
            delta = {"type": "input_json_delta", "partial_json": part.arguments}
        events.append({"type": "content_block_delta", "index": len(content) - 1, "delta": delta})
        return events

    def end(self, piece: Piece) -> list[dict[str, Any]]:
        """Complete the message, and return the events for its end."""
        events = self._close()
        message, usage = self.message, self._run.account.usage
        message.stop_reason = _STOP_REASONS[str(piece.finish_reason)]
        if isinstance(piece.output.stop_reason, str) and message.stop_reason == "end_turn":
            message.stop_reason, message.stop_sequence = "stop_sequence", piece.output.stop_reason
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
        message.usage = {
            "input_tokens": usage.prompt_tokens - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": usage.completion_tokens,
        }
        message.timing = self._run.account.timing
        delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
        return [
            *events,
            {"type": "message_delta", "delta": delta, "usage": message.usage},
            {"type": "message_stop"},
        ]

    def _close(self) -> list[dict[str, Any]]:
        content = self.message.content
        if not content:
            return []
        if content[-1]["type"] == "tool_use" and self._json:
            try:
                content[-1]["input"] = json.loads(self._json)
            except ValueError:
                content[-1]["input"] = {}  # the answer was cut off: `stop_reason` is "max_tokens"
        return [{"type": "content_block_stop", "index": len(content) - 1}]


def _kind(part: Part) -> str:
    if isinstance(part, TextPart):
        return "thinking" if part.is_reasoning else "text"
    return "tool_use"
