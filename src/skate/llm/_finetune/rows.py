"""Parse rows of training data of each type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skate.llm._finetune.config import DatasetConfig

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}


class RowError(Exception):
    """A row that cannot be trained on. Rows are counted by `reason`, which is short; `detail` is about one row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True)
class Chat:
    """A conversation, and the tools that the model may call in it."""

    messages: list[Message]
    tools: list[Any] | None = None


@dataclass(frozen=True)
class Instruction:
    """An instruction with its answer."""

    instruction: str
    input: str
    output: str
    system: str = ""

    def messages(self) -> list[Message]:
        """Return the instruction and the answer as a conversation."""
        request = f"{self.instruction}\n\n{self.input}" if self.input else self.instruction
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [
            *system,
            {"role": "user", "content": request},
            {"role": "assistant", "content": self.output},
        ]


@dataclass(frozen=True)
class Text:
    """A text. All of its tokens are trained."""

    text: str


@dataclass(frozen=True)
class Preference:
    """Two conversations that differ in the answer; the first is preferred."""

    chosen: Chat
    rejected: Chat


Row = Chat | Instruction | Text | Preference


def parse(row: Mapping[str, Any], source: DatasetConfig) -> Row:
    """Parse a row of a source according to the type of the source.

    Raises:
        RowError: If a column is missing or malformed.
    """
    match source.type:
        case "chat":
            return Chat(_messages(row, source.field_messages), _tools(row.get("tools")))
        case "instruction":
            return Instruction(
                _text(row, "instruction"),
                _text(row, "input", optional=True),
                _text(row, "output"),
                _text(row, "system", optional=True),
            )
        case "text":
            return Text(_text(row, source.field))
        case _:
            return _preference(row)


def _preference(row: Mapping[str, Any]) -> Preference:
    prompt = row.get("prompt", row.get("question"))
    if prompt is None:
        before: list[Message] = []
    elif isinstance(prompt, str):
        before = [{"role": "user", "content": prompt}]
    else:
        before = _parse_messages(prompt, "prompt")
    system = row.get("system")
    if isinstance(system, str) and system:
        before = [{"role": "system", "content": system}, *before]

    def chat(name: str) -> Chat:
        answer = row.get(name)
        if isinstance(answer, str):
            after: list[Message] = [{"role": "assistant", "content": answer}]
        elif isinstance(answer, Mapping):
            after = _parse_messages([answer], name)
        else:
            after = _parse_messages(answer, name)
        messages = after if after[: len(before)] == before else [*before, *after]
        if messages[-1]["role"] != "assistant":
            raise RowError(f"`{name}` does not end with an assistant turn")
        if len(messages) < 2:
            raise RowError("the row has no prompt")
        return Chat(messages)

    chosen, rejected = chat("chosen"), chat("rejected")
    if chosen == rejected:
        raise RowError("`chosen` and `rejected` are the same")
    return Preference(chosen, rejected)


def _messages(row: Mapping[str, Any], field: str) -> list[Message]:
    name = field if field in row or "conversations" not in row else "conversations"
    messages = _parse_messages(row.get(name), name)
    if not any(message["role"] == "assistant" for message in messages):
        raise RowError("the conversation has no assistant turn")
    return messages


def _parse_messages(given: Any, name: str) -> list[Message]:
    """Return messages with the keys `role` and `content`."""
    if isinstance(given, str):
        try:
            given = json.loads(given)  # CSV files contain messages as JSON
        except json.JSONDecodeError:
            raise RowError(f"`{name}` is a string, not a list of messages") from None
    if hasattr(given, "tolist"):
        given = given.tolist()
    if given is None:
        raise RowError(f"the row has no `{name}`")
    if not isinstance(given, Sequence) or not given:
        raise RowError(f"`{name}` is not a list of messages", repr(given)[:80])
    return [_message(each, name) for each in given]


def _message(given: Any, name: str) -> Message:
    if not isinstance(given, Mapping):
        raise RowError(f"an entry of `{name}` is not a message", repr(given)[:80])
    # In a column of a file, every message has every key. A key without a value was not given.
    message = {key: value for key, value in given.items() if value is not None}
    if "from" in message and "role" not in message:
        role = message.pop("from")
        message["role"] = _SHAREGPT_ROLES.get(role, role)
        message["content"] = message.pop("value", None)
    if message.get("role") not in ROLES:
        raise RowError("a message has an unknown role", repr(message.get("role")))
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        message["content"] = ""
    elif not isinstance(content, str) and not isinstance(content, list):
        raise RowError("a message has no text", repr(content)[:80])
    elif isinstance(content, list):
        message["content"] = _joined(content)
    if message["role"] == "assistant" and not message["content"].strip() and not message.get("tool_calls"):
        raise RowError("an assistant turn is empty")
    return message


def _joined(parts: list[Any]) -> str:
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RowError("a message has parts that are not text")
    return "".join(str(text) for text in texts)


def _tools(given: Any) -> list[Any] | None:
    if isinstance(given, str) and given:
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise RowError("`tools` is not JSON") from None
    return list(given) if given is not None and len(given) else None


def _text(row: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    value = row.get(name)
    if optional and value is None:
        return ""
    if value is None:
        raise RowError(f"the row has no `{name}`")
    if not isinstance(value, str):
        raise RowError(f"`{name}` is not a string", repr(value)[:80])
    if not optional and not value.strip():
        raise RowError(f"`{name}` is empty")
    return value
