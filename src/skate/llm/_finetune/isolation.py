"""Whether rows that are packed into one sequence see each other."""

from __future__ import annotations

from typing import Any

# A leak changes the loss of a row by much more; rounding in bfloat16 by less.
LARGEST_DIFFERENCE = {"float32": 1e-4, "bfloat16": 3e-2}
_ROW = 16  # tokens of the rows that are compared


def packed_difference(module: Any, device: Any) -> float:
    """Return by how much the mean loss of a row changes when another row is packed before it.

    Args:
        module: A `LanguageModelLoss`.
        device: Its device.
    """
    import torch

    vocabulary = module.model.get_input_embeddings().weight.shape[0]
    random = torch.Generator().manual_seed(0)
    first, second = torch.randint(vocabulary, (2, _ROW), generator=random)
    was_training = module.training
    module.eval()
    with torch.no_grad():
        alone, packed = (
            float(module(**{name: each.to(device) for name, each in batch.items()})) / (_ROW - 1)
            for batch in (_batch(second), _batch(second, after=first))
        )
    module.train(was_training)
    return abs(alone - packed)


def _batch(row: Any, after: Any = None) -> dict[str, Any]:
    """Return a row, which may be packed after another that is not trained, as tensors of a micro-batch."""
    import torch

    ids, positions = row, torch.arange(len(row))
    labels = torch.cat([row[1:], torch.tensor([-100])])
    if after is not None:
        ids = torch.cat([after, ids])
        positions = torch.cat([torch.arange(len(after)), positions])
        labels = torch.cat([torch.full((len(after),), -100), labels])
    return {"input_ids": ids[None], "position_ids": positions[None], "labels": labels[None]}
