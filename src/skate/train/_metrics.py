"""What may be reported: a dict of values that another process can be told."""

from __future__ import annotations

from typing import Any

import skate.cloudpickle


def checked(metrics: Any) -> dict[str, Any]:
    """Return metrics as they are told, or say which of them cannot be.

    Tensors and NumPy scalars of one number become that number: whoever drives the run may have neither library, and
    a tensor on a GPU must not travel.

    Raises:
        TypeError: It is no dict, or a value cannot be serialised; names it.
    """
    if not isinstance(metrics, dict):
        raise TypeError(
            f"metrics must be a dict of names and values, not {type(metrics).__name__}: report({{'loss': loss}})"
        )
    plain = {key: _plain(value) for key, value in metrics.items()}
    try:
        skate.cloudpickle.dumps(plain)
    except Exception:
        for key, value in plain.items():
            try:
                skate.cloudpickle.dumps(value)
            except Exception as error:
                raise TypeError(
                    f"the metric {key!r} is a {type(value).__name__} that cannot be serialised ({error}): report "
                    "numbers, texts, lists or arrays"
                ) from error
        raise
    return plain


def _plain(value: Any) -> Any:
    if type(value).__module__.partition(".")[0] not in ("torch", "numpy", "jax", "jaxlib", "tensorflow"):
        return value
    if getattr(value, "ndim", None) == 0 or getattr(value, "shape", None) == ():
        item = getattr(value, "item", None) or getattr(value, "numpy", None)
        return item() if item is not None else value
    detach = getattr(value, "detach", None)
    return detach().cpu() if detach is not None else value
