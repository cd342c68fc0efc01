"""Check that an engine can continue a prompt that another engine has prefilled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from skate.llm._engine.api import KVLayout, KVTransferError, PrefilledPrompt, SamplingParams

_REMEDIES = {
    "dtype": "give both engines the same `dtype`",
    "matrix_type": "give both engines the same `dtype` and `quantization`",
    "weights": "load the same weights into both engines, or update those of both, and prefill the prompt again",
}


def check_prompt_of(prefilled: PrefilledPrompt, prompt: Sequence[int], params: SamplingParams) -> None:
    """Check that a prefilled prompt belongs to a request.

    Raises:
        KVTransferError: If it does not.
    """
    if prefilled.prompt != tuple(prompt):
        raise KVTransferError(
            f"the prefilled prompt has {len(prefilled.prompt)} other tokens than the prompt of {len(prompt)}; give the "
            "request that was prefilled"
        )
    if params.logprobs is not None and prefilled.logprob is None:
        raise KVTransferError(
            "the request has logprobs, but the prefilled prompt has none for the first token; prefill the same request"
        )


def check_layout(prefilled: PrefilledPrompt, layout: KVLayout, adapter: str | None) -> None:
    """Check that keys and values fit an engine.

    Args:
        prefilled: The keys and values of a prompt.
        layout: The layout of the engine.
        adapter: The digest of the adapter of the request, if it has one.

    Raises:
        KVTransferError: If they do not fit. The message says what differs, and what to do.
    """
    for name in (field.name for field in fields(KVLayout)):
        theirs, ours = getattr(prefilled.layout, name), getattr(layout, name)
        if theirs != ours:
            remedy = _REMEDIES.get(name, "load the same model into both engines")
            raise KVTransferError(
                f"the keys and values of the prompt were computed with {name}={theirs!r}, but this engine has "
                f"{name}={ours!r}; {remedy}"
            )
    if prefilled.adapter != adapter:
        raise KVTransferError(
            f"the prompt was prefilled with {_describe(prefilled.adapter)}, but the request has {_describe(adapter)}; "
            "load the same adapter into both engines"
        )
    shape = (layout.layers, 2, len(prefilled.prompt), layout.heads, layout.head_dim)
    if prefilled.keys_values.shape != shape:
        raise KVTransferError(
            f"the keys and values have the shape {prefilled.keys_values.shape} instead of {shape}; prefill the prompt "
            "again"
        )


def _describe(adapter: str | None) -> str:
    return "no adapter" if adapter is None else f"the adapter {adapter[:8]}"
