"""Grammars that constrain the generated text, through llguidance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from skate.llm._engine.api import Grammar

if TYPE_CHECKING:
    import llguidance

# A model could otherwise write white space up to its last token.
_JSON: Any = {"whitespace_pattern": r"[ \n\t]{0,16}"}


class GrammarCompiler:
    """Compiles grammars for one tokenizer.

    Args:
        tokenizer: A tokenizer of the package `tokenizers`.
        vocab_size: Number of logits, which may exceed the number of tokens.
        eos_token_ids: Tokens that may end the text.

    Raises:
        ImportError: If llguidance is not installed.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        try:
            import llguidance
        except ImportError:
            raise ImportError("structured output needs llguidance: pip install 'skate[llm]'") from None
        self._eos_token_ids = list(eos_token_ids)
        self._tokenizer = llguidance.LLTokenizer(
            tokenizer.to_str(), n_vocab=vocab_size, eos_token=self._eos_token_ids or None
        )

    def compile(self, grammar: Grammar) -> GrammarMask:
        """Compile a grammar.

        Raises:
            ValueError: If the grammar is not valid, or uses a feature that cannot be enforced.
        """
        import llguidance

        matcher_class = llguidance.LLMatcher
        try:
            match grammar.kind:
                case "json":
                    source = matcher_class.grammar_from_json_schema('{"type": "object"}', defaults=_JSON)
                case "json_schema":
                    json.loads(grammar.text)
                    source = matcher_class.grammar_from_json_schema(grammar.text, defaults=_JSON)
                case "regex":
                    source = matcher_class.grammar_from_regex(grammar.text)
                case "lark":
                    source = matcher_class.grammar_from_lark(grammar.text)
        except ValueError as error:
            raise ValueError(f"the {grammar.kind} grammar is not valid: {error}") from None
        matcher = matcher_class(self._tokenizer, source)
        if matcher.is_error():
            raise ValueError(f"the {grammar.kind} grammar cannot be used: {matcher.get_error()}")
        return GrammarMask(matcher)


class GrammarMask:
    """The position of one request in its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def apply(self, logits: torch.Tensor) -> None:
        """Set the logits of tokens that the grammar does not allow next to minus infinity.

        Raises:
            ValueError: If the grammar allows no token at all.
        """
        packed = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        if self._matcher.is_error() or not packed.any():
            raise ValueError(
                f"the grammar allows no further token: {self._matcher.get_error() or 'dead end'}"
            )
        allowed = ((packed[:, None] >> torch.arange(8)) & 1).bool().flatten()
        size = min(logits.shape[0], allowed.shape[0])  # there may be more logits than tokens
        logits[:size].masked_fill_(~allowed[:size], -torch.inf)
        logits[size:] = -torch.inf

    def accept(self, token: int) -> None:
        """Advance by a token."""
        self._matcher.consume_token(token)
