"""Drawing the next tokens of several requests at once, on the device that has their logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from skate.llm._engine.sampler import Draw


def draw_tokens(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Draw a token from each row of float32 logits, as `RequestSampler.choose` does for one.

    The host does not wait for the device.
    """

    def column(values: Sequence[float]) -> torch.Tensor:
        host = torch.tensor(values, dtype=torch.float64)
        return host.to(logits.device, non_blocking=True)[:, None]

    logits = logits / column([draw.temperature for draw in draws]).float()
    if any(draw.min_p > 0 for draw in draws):
        # The logarithm of 0 is minus infinity, which is below every logit.
        limit = logits.amax(dim=-1, keepdim=True) + column([draw.min_p for draw in draws]).float().log()
        logits = logits.masked_fill(logits < limit, -torch.inf)
    vocabulary = logits.shape[-1]
    has_top_k = any(0 < draw.top_k < vocabulary for draw in draws)
    has_top_p = any(draw.top_p < 1.0 for draw in draws)
    if has_top_k or has_top_p:
        ordered = logits.sort(dim=-1, descending=True).values
        if has_top_k:
            counts = [draw.top_k if 0 < draw.top_k < vocabulary else vocabulary for draw in draws]
            limit = ordered.gather(-1, column(counts).long() - 1)
            logits, ordered = (each.masked_fill(each < limit, -torch.inf) for each in (logits, ordered))
        if has_top_p:
            # The last token that is needed for the sum: as many stay as there are sums below `top_p`, and one.
            sums = torch.softmax(ordered, dim=-1).cumsum(dim=-1)
            top_p = column([draw.top_p if draw.top_p < 1.0 else torch.inf for draw in draws])
            inside = (sums < top_p).sum(dim=-1, keepdim=True).clamp(max=vocabulary - 1)
            logits = logits.masked_fill(logits < ordered.gather(-1, inside), -torch.inf)
    cumulative = torch.softmax(logits, dim=-1, dtype=torch.float64).cumsum(dim=-1)
    targets = column([draw.uniform for draw in draws]) * cumulative[:, -1:]
    # Rounding may leave the last sum below 1.
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=vocabulary - 1)
