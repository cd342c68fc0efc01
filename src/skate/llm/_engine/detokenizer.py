"""Convert the tokens of a request to text as they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from skate.llm._engine.stop_strings import StopStrings
from skate.llm._engine.tokenizer import TextTokenizer

CONTEXT = 4  # number of prompt tokens that are decoded together with the first tokens of the output


class Detokenizer:
    """Converts the tokens of one request to text, piece by piece.

    Concatenated, the pieces are the text that `tokenizer.decode` gives for all tokens, up to the first stop string.
    Bytes that do not form a complete character are held back, as is text that may be the start of a stop string.

    Args:
        tokenizer: The model's tokenizer.
        stop: The text ends before the first of these strings.
        skip_special_tokens: Whether to leave special tokens out of the text.
        prompt: The tokens of the prompt. With SentencePiece tokenizers, they are needed to keep the space between the
            prompt and the text.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        stop: Sequence[str] = (),
        skip_special_tokens: bool = True,
        prompt: Sequence[int] = (),
    ) -> None:
        self._stops = StopStrings(stop)
        self._skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset()
        self._text: _Bytes | _Window = (
            _Bytes(tokenizer) if tokenizer.byte_level else _Window(tokenizer, self._skipped, prompt)
        )

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._stops.found

    def add(self, token: int) -> str:
        """Add a token, and return the text that is now certain. After a stop string, there is no more text."""
        if token in self._skipped:
            return ""
        return self._stops.add(self._text.add(token))

    def finish(self) -> str:
        """Return the text that was held back. An incomplete character becomes U+FFFD."""
        return self._stops.add(self._text.finish()) + self._stops.finish()


class _Bytes:
    """Decodes tokens that represent bytes, as UTF-8."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._bytes_of = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        return self._decoder.decode(self._bytes_of(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


class _Window:
    """Decodes tokens whose text depends on their neighbours, by decoding the last tokens again with each new one.

    The text of `_tokens[:_read]` has been returned. The text of the other tokens is what they add to it.
    """

    def __init__(self, tokenizer: TextTokenizer, skipped: frozenset[int], prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = [token for token in prompt[-CONTEXT:] if token not in skipped]
        if self._tokens and tokenizer.is_single_byte(self._tokens[-1]):
            self._tokens = []  # it may be part of a character that the first token completes
        self._read = len(self._tokens)

    def add(self, token: int) -> str:
        if not self._tokenizer.token_bytes(token):
            return ""
        self._tokens.append(token)
        # A run of single bytes is valid or invalid as a whole, so it is decoded when it ends.
        if self._tokenizer.is_single_byte(token):
            return ""
        text = self._new_text()
        if not text or text.endswith("\ufffd"):
            return ""
        del self._tokens[: self._read]
        self._read = len(self._tokens)
        return text

    def finish(self) -> str:
        text = self._new_text()
        self._read = len(self._tokens)
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._tokens[: self._read], skip_special_tokens=False)
        return self._tokenizer.decode(self._tokens, skip_special_tokens=False)[len(before) :]
