"""Check the citations of an answer while it streams, and add those that the model has left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The share of a sentence's words that a passage must contain to be cited for it.
SUPPORT = 0.5
_CITATION = re.compile(r"(?:\s*\[\s*\d+(?:\s*,\s*\d+)*\s*\])+")
# The end of a text that may become the end of a sentence, or a citation, when more text arrives.
_UNFINISHED = re.compile(r"(?:[.!?]+[\"')*`]*)?\s*(?:\[[\d\s,]*)?$")
_END = re.compile(r"[.!?][\"')*`]*(?=\s)|\n")
_WORD = re.compile(r"[^\W_]{3,}")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "all also and any are but can for from has have how into its may not one only that the their them then there "
        "these they this use used using was were what when where which will with you your"
    )
)


def content_words(text: str) -> set[str]:
    """Return the words of a text that carry meaning, cut to a stem of six letters."""
    return {word[:6] for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS}


class CitationChecker:
    """Passes the text of an answer on, and makes sure that each citation is right.

    A citation such as `[2]` stays if there is a second passage and it contains at least half of the words of the
    sentence. Other citations are removed. A sentence without one gets the passage that contains most of its words, if
    that is at least half of them, and otherwise none.

    Args:
        passages: The texts of the passages, from number 1.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self._passages = [content_words(text) for text in passages]
        self._pending = ""  # not passed on yet
        self._sentence = ""  # passed on, without citations
        self._is_cited = False
        self.cited: set[int] = set()

    def add(self, text: str) -> str:
        """Take the next piece of the answer, and return the text that can be shown."""
        self._pending += text
        unfinished = _UNFINISHED.search(self._pending)
        assert unfinished is not None  # it matches the empty end
        ready, self._pending = self._pending[: unfinished.start()], unfinished[0]
        return self._check(ready)

    def finish(self) -> str:
        """Return the rest of the answer."""
        rest, self._pending = self._pending.rstrip(), ""
        return self._check(rest) + self._end_sentence()

    def _check(self, text: str) -> str:
        shown = []
        at = 0
        while at < len(text):
            citation, end = _CITATION.search(text, at), _END.search(text, at)
            if end and (not citation or end.start() < citation.start()):
                # A citation right behind the full stop belongs to the sentence before it.
                behind = _CITATION.match(text, end.end())
                shown.append(self._pass_on(text[at : end.end()]))
                at = end.end()
                if behind:
                    shown.append(self._cite(behind[0]))
                    at = behind.end()
                last = shown.pop()
                mark = self._end_sentence()
                shown.append(last[:-1] + mark + "\n" if last.endswith("\n") else last + mark)
            elif citation:
                shown.append(self._pass_on(text[at : citation.start()]))
                shown.append(self._cite(citation[0]))
                at = citation.end()
            else:
                shown.append(self._pass_on(text[at:]))
                break
        return "".join(shown)

    def _pass_on(self, text: str) -> str:
        self._sentence += text
        return text

    def _cite(self, citation: str) -> str:
        numbers = dict.fromkeys(int(digits[:9]) for digits in re.findall(r"\d+", citation))
        words = content_words(self._sentence)
        right = [number for number in numbers if self._supports(number, words)]
        self._is_cited |= bool(right)
        return self._mark(right)

    def _mark(self, numbers: Sequence[int]) -> str:
        self.cited.update(numbers)
        return "".join(f" [{number}]" for number in numbers)

    def _supports(self, number: int, words: set[str]) -> bool:
        return 1 <= number <= len(self._passages) and self._share(number, words) >= SUPPORT

    def _share(self, number: int, words: set[str]) -> float:
        return len(words & self._passages[number - 1]) / len(words) if words else 0.0

    def _end_sentence(self) -> str:
        words = content_words(self._sentence)
        if len(words) < 2:  # "e.g." or "1." is no sentence yet
            return ""
        is_cited, self._is_cited, self._sentence = self._is_cited, False, ""
        if is_cited or not self._passages:
            return ""
        best = max(range(1, len(self._passages) + 1), key=lambda number: self._share(number, words))
        return self._mark([best]) if self._supports(best, words) else ""
