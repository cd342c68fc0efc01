"""OpenAI's Responses API, answered with chat completions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from skate.serve.llm._protocol.base import CompletionTokensDetails, ErrorResponse, PromptTokensDetails, new_id
from skate.serve.llm._protocol.responses import (
    Response,
    ResponsesRequest,
    ResponseUsage,
    custom_tools,
    to_chat_request,
)
from skate.serve.llm._server.chat import TranslatedRun
from skate.serve.llm._server.generation import as_error_response
from skate.serve.llm._server.text_splitters import Part, TextPart

__all__ = ["ResponsesRun", "answer_response", "stream_response"]

Event = dict[str, Any]


class ResponsesRun(TranslatedRun[ResponsesRequest]):
    """A response that is generated as a chat completion."""

    translate = staticmethod(to_chat_request)


async def answer_response(run: ResponsesRun, model: str) -> Response:
    """Return the complete response."""
    output = _Output(run, model)
    await run.chat.prepare()
    async with aclosing(run.chat.pieces()) as pieces:
        async for piece in pieces:
            for part in piece.parts:
                output.add(part)
            if piece.finish_reason is not None:
                output.end(piece.finish_reason)
    return output.response


async def stream_response(run: ResponsesRun, model: str) -> AsyncGenerator[str]:
    """Yield the response as server-sent events. Items have the same ids as in the complete response."""
    output = _Output(run, model)
    number = 0

    def write(events: list[Event]) -> Iterator[str]:
        nonlocal number
        for each in events:
            yield f"event: {each['type']}\ndata: {json.dumps({**each, 'sequence_number': number})}\n\n"
            number += 1

    await run.chat.prepare()
    try:
        async with aclosing(run.chat.pieces()) as pieces:
            async for piece in pieces:
                if not number:
                    for text in write(output.begin()):
                        yield text
                events = [event for part in piece.parts for event in output.add(part)]
                if piece.finish_reason is not None:
                    events += output.end(piece.finish_reason)
                for text in write(events):
                    yield text
    except Exception as error:
        if not number:
            raise
        for text in write(output.fail(as_error_response(error, "responses"))):
            yield text


class _Output:
    """The items of a response, and the events that report them to the client."""

    def __init__(self, run: ResponsesRun, model: str) -> None:
        self.response = Response.for_request(new_id("resp_"), model, run.request)
        self._run = run
        self._custom = custom_tools(run.request)
        self._item: dict[str, Any] | None = None  # the item that is being generated
        self._arguments = ""

    def begin(self) -> list[Event]:
        """Return the events for the start of the response."""
        shown = self._dump()
        return [
            {"type": "response.created", "response": shown},
            {"type": "response.in_progress", "response": shown},
        ]

    def add(self, part: Part) -> list[Event]:
        """Add a part to the output, and return the events for it."""
        events: list[Event] = []
        if isinstance(part, TextPart):
            kind = "reasoning" if part.is_reasoning else "message"
            is_new = self._item is None or self._item["type"] != kind
        else:
            is_new = part.name is not None
        if is_new:
            events += self._close()
            events += self._open(part)
        text = part.text if isinstance(part, TextPart) else part.arguments
        return events + self._extend(text) if text else events

    def end(self, finish_reason: str) -> list[Event]:
        """Complete the response, and return the events for its end."""
        is_truncated = finish_reason == "length"
        events = self._close("incomplete" if is_truncated else "completed")
        usage = self._run.account.usage
        self.response.usage = ResponseUsage(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=usage.prompt_tokens_details or PromptTokensDetails(),
            output_tokens=usage.completion_tokens,
            output_tokens_details=usage.completion_tokens_details or CompletionTokensDetails(),
            total_tokens=usage.total_tokens,
        )
        self.response.timing = self._run.account.timing
        self.response.status = "incomplete" if is_truncated else "completed"
        if is_truncated:
            self.response.incomplete_details = {"reason": "max_output_tokens"}
        return [*events, {"type": f"response.{self.response.status}", "response": self._dump()}]

    def fail(self, error: ErrorResponse) -> list[Event]:
        """Mark the response as failed, and return the events for it."""
        self.response.status = "failed"
        self.response.error = {
            "code": str(error.error.code or "server_error"),
            "message": error.error.message,
        }
        return [{"type": "response.failed", "response": self._dump()}]

    def _dump(self) -> Any:
        return json.loads(self.response.to_json())

    @property
    def _position(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item["id"], "output_index": len(self.response.output) - 1}

    def _open(self, part: Part) -> list[Event]:
        """Begin an item."""
        self._arguments = ""
        if isinstance(part, TextPart):
            is_reasoning = part.is_reasoning
            item: dict[str, Any] = {
                "id": new_id("rs_" if is_reasoning else "msg_"),
                "type": "reasoning" if is_reasoning else "message",
                "status": "in_progress",
                "content": [],
            }
            item["summary" if is_reasoning else "role"] = [] if is_reasoning else "assistant"
        elif part.name in self._custom:
            item = {"id": new_id("ctc_"), "type": "custom_tool_call", "input": ""}
        else:
            item = {"id": new_id("fc_"), "type": "function_call", "status": "in_progress", "arguments": ""}
        if not isinstance(part, TextPart):
            item.update(call_id=part.id, name=part.name)
        self._item = item
        self.response.output.append(item)
        events: list[Event] = [
            {
                "type": "response.output_item.added",
                "output_index": len(self.response.output) - 1,
                "item": dict(item, content=[]) if "content" in item else dict(item),
            }
        ]
        if isinstance(part, TextPart):
            content = (
                {"type": "reasoning_text", "text": ""}
                if part.is_reasoning
                else {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            )
            item["content"].append(content)
            events.append(
                {
                    "type": "response.content_part.added",
                    **self._position,
                    "content_index": 0,
                    "part": dict(content),
                }
            )
        return events

    def _extend(self, text: str) -> list[Event]:
        """Add text to the item."""
        item = self._item
        assert item is not None
        match item["type"]:
            case "function_call":
                item["arguments"] += text
                return [{"type": "response.function_call_arguments.delta", **self._position, "delta": text}]
            case "custom_tool_call":
                self._arguments += text  # the input is known only when the JSON text is complete
                return []
            case "message":
                item["content"][0]["text"] += text
                return [
                    {
                        "type": "response.output_text.delta",
                        **self._position,
                        "content_index": 0,
                        "delta": text,
                        "logprobs": [],
                    }
                ]
        item["content"][0]["text"] += text
        return [
            {"type": "response.reasoning_text.delta", **self._position, "content_index": 0, "delta": text}
        ]

    def _close(self, status: str = "completed") -> list[Event]:
        """End the item that is being generated, if there is one."""
        item = self._item
        if item is None:
            return []
        position = self._position
        events: list[Event] = []
        match item["type"]:
            case "function_call":
                events.append(
                    {
                        "type": "response.function_call_arguments.done",
                        **position,
                        "name": item["name"],
                        "arguments": item["arguments"],
                    }
                )
            case "custom_tool_call":
                item["input"] = _input_of(self._arguments)
                events += [
                    {"type": "response.custom_tool_call_input.delta", **position, "delta": item["input"]},
                    {"type": "response.custom_tool_call_input.done", **position, "input": item["input"]},
                ]
            case kind:
                name = "output_text" if kind == "message" else "reasoning_text"
                content = item["content"][0]
                extra: Event = {"logprobs": []} if kind == "message" else {}
                events += [
                    {
                        "type": f"response.{name}.done",
                        **position,
                        "content_index": 0,
                        "text": content["text"],
                        **extra,
                    },
                    {
                        "type": "response.content_part.done",
                        **position,
                        "content_index": 0,
                        "part": dict(content),
                    },
                ]
        if "status" in item:
            item["status"] = status
        events.append(
            {
                "type": "response.output_item.done",
                "output_index": position["output_index"],
                "item": _copy(item),
            }
        )
        self._item = None
        return events


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "content": [dict(each) for each in item["content"]]} if "content" in item else dict(item)


def _input_of(arguments: str) -> str:
    """Return the input of a custom tool, whose arguments are `{"input": "…"}`."""
    try:
        return str(json.loads(arguments)["input"])
    except ValueError:
        return arguments  # the answer was cut off
