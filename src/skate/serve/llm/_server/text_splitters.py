"""Split generated text into reasoning, content and tool calls while it streams.

Text arrives in pieces that may end inside a marker. A splitter holds back the end of the text while it may be the
beginning of a marker, so the parts do not depend on how the text is divided into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from skate.serve.llm._protocol.base import new_id

__all__ = [
    "CALL_CLOSE",
    "CALL_OPEN",
    "THINK_CLOSE",
    "THINK_OPEN",
    "Part",
    "ReasoningSplitter",
    "TextPart",
    "ToolCallParser",
    "ToolCallPart",
]

THINK_OPEN: Final = "<think>"
THINK_CLOSE: Final = "</think>"
CALL_OPEN: Final = "<tool_call>"
CALL_CLOSE: Final = "</tool_call>"

# A grammar fixes the format of a call. A JSON value contains no unescaped line break, so the end is unambiguous.
_CALL_HEAD: Final = re.compile(r'\s*\{"name": "([^"]*)", "arguments": ')
_CALL_END: Final = f"}}\n{CALL_CLOSE}"


@dataclass(slots=True)  # not frozen: one is made for each token, and freezing doubles the cost
class TextPart:
    """A part of the answer, or of the reasoning before it."""

    text: str
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A part of a tool call. The first part has the id and the name."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


Part = TextPart | ToolCallPart


def held_back(text: str, marker: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a marker.

    >>> held_back("an answer <to", "<tool_call>")
    3
    """
    for count in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:count]):
            return count
    return 0


class ReasoningSplitter:
    """Split text into reasoning, which is between `<think>` and `</think>`, and the answer after it.

    Args:
        starts_in_reasoning: Whether the prompt ends with `<think>`, so that the text starts with reasoning.
        is_enabled: Whether to look for reasoning at all.
    """

    def __init__(self, *, starts_in_reasoning: bool = False, is_enabled: bool = True) -> None:
        self._state = "start" if is_enabled else "answer"
        if starts_in_reasoning:
            self._state = "reasoning"
        self._held = ""

    @property
    def is_reasoning(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        return self._state == "reasoning"

    @property
    def is_in_answer(self) -> bool:
        """Whether all further text belongs to the answer."""
        return self._state == "answer" and not self._held

    def feed(self, text: str, *, is_last: bool = False) -> Iterator[TextPart]:
        """Yield the parts that are complete with the next piece of text."""
        self._held += text
        if self._state == "start":
            stripped = self._held.lstrip()
            if stripped.startswith(THINK_OPEN):
                self._state, self._held = "reasoning", stripped.removeprefix(THINK_OPEN)
            elif is_last or not THINK_OPEN.startswith(stripped):
                self._state = "answer"
        if self._state == "reasoning":
            before, close, after = self._held.partition(THINK_CLOSE)
            if close:
                self._state, self._held = "gap", after
            else:
                keep = 0 if is_last else held_back(before, THINK_CLOSE)
                before, self._held = before[: len(before) - keep], before[len(before) - keep :]
            if before:
                yield TextPart(before, is_reasoning=True)
        if self._state == "gap":  # templates put line breaks between the reasoning and the answer
            self._held = self._held.lstrip("\r\n")
            if self._held:
                self._state = "answer"
        if self._state == "answer" and self._held:
            answer, self._held = self._held, ""
            yield TextPart(answer)


@dataclass
class ToolCallParser:
    """Parse the tool calls in a text that the grammar of `chat_grammar` constrains.

    Args:
        is_enabled: Whether the text may contain calls. Otherwise it is returned unchanged.
        count: The number of complete calls so far.
    """

    is_enabled: bool = True
    count: int = 0
    _state: str = "text"
    _held: str = ""
    _skips_spaces: bool = False

    def feed(self, text: str, *, is_last: bool = False) -> Iterator[Part]:
        """Yield the parts that are complete with the next piece of text."""
        if not self.is_enabled:
            if text:
                yield TextPart(text)
            return
        self._held += text
        while True:
            state = self._state
            step = {"text": self._text, "head": self._head, "arguments": self._arguments}[state]
            yield from step(is_last)
            if self._state == state:
                return

    def _text(self, is_last: bool) -> Iterator[Part]:
        if self._skips_spaces:
            self._held = self._held.lstrip()
            self._skips_spaces = not self._held
        before, opening, after = self._held.partition(CALL_OPEN)
        if opening:
            self._state, self._held = "head", after
        else:
            keep = 0 if is_last else held_back(before, CALL_OPEN)
            before, self._held = before[: len(before) - keep], before[len(before) - keep :]
        if before:
            yield TextPart(before)

    def _head(self, _: bool) -> Iterator[Part]:
        found = _CALL_HEAD.match(self._held)
        if found is not None:
            self._state, self._held = "arguments", self._held[found.end() :]
            yield ToolCallPart(self.count, id=new_id("call_"), name=found[1])

    def _arguments(self, is_last: bool) -> Iterator[Part]:
        before, ending, after = self._held.partition(_CALL_END)
        index = self.count
        if ending:
            self._state, self._held = "text", after
            self._skips_spaces = True  # calls are separated by line breaks
            self.count += 1
        else:
            keep = 0 if is_last else held_back(before, _CALL_END)
            before, self._held = before[: len(before) - keep], before[len(before) - keep :]
        if before:
            yield ToolCallPart(index, before)
