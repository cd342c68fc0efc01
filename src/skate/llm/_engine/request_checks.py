"""Checks of a request that every engine makes before it runs the request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from skate._base.suggestions import did_you_mean

_T = TypeVar("_T")


def check_prompt(prompt: Sequence[int], *, room: int, vocab_size: int) -> None:
    """Check the tokens of a prompt.

    Args:
        prompt: The tokens.
        room: The maximum number of tokens.
        vocab_size: The size of the model's vocabulary.

    Raises:
        ValueError: If the prompt is empty, too long, or has a token that the model does not know.
    """
    if not prompt:
        raise ValueError("the prompt is empty; it must have at least one token")
    if len(prompt) > room:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens, but the context has room for {room}; shorten the prompt or "
            "raise max_model_len"
        )
    check_tokens("the prompt", prompt, vocab_size=vocab_size)


def check_tokens(where: str, tokens: Collection[int], *, vocab_size: int) -> None:
    """Check that tokens are in the vocabulary.

    Raises:
        ValueError: If one is not.
    """
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        unknown = next(token for token in tokens if not 0 <= token < vocab_size)
        raise ValueError(f"{where} has the token {unknown}, but the vocabulary has only {vocab_size}")


def find_adapter(adapters: Mapping[str, _T], name: str) -> _T:
    """Return an adapter by its name.

    Raises:
        ValueError: If there is none. The message suggests the closest name.
    """
    if name not in adapters:
        raise ValueError(f"there is no adapter {name!r}.{did_you_mean(name, adapters)}")
    return adapters[name]
