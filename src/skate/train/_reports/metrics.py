"""Checks and conversions of reported metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import skate.cloudpickle
from skate.air import _arguments as arguments
from skate.air._json import as_json


def check_metrics(metrics: Any) -> dict[str, Any]:
    """Return metrics in the form in which they are sent to the controller.

    Tensors and NumPy scalars with one element become numbers, also in nested dicts: the controller may lack the
    library, and a tensor on a GPU must not be sent.

    Raises:
        TypeError: `metrics` is no dict, a name is neither a string nor a number, or a value cannot be serialized.
        ValueError: A value is a torch tensor with several elements, or a dict contains itself.
    """
    if not isinstance(metrics, dict):
        arguments.refuse("metrics", "a dictionary of names and values, such as {'loss': 0.5}", metrics)
    try:
        plain = {key: _plain(value, str(_checked_name(key))) for key, value in metrics.items()}
    except RecursionError:
        raise ValueError(
            "`metrics` contain a dictionary that contains itself: report numbers and strings."
        ) from None
    for key, value in plain.items():
        if isinstance(value, str | int | float | None):
            continue
        try:
            skate.cloudpickle.loads(skate.cloudpickle.dumps(value))
            json.dumps(value, default=as_json)
        except Exception as error:
            raise TypeError(
                f"`metrics[{key!r}]` is a {type(value).__name__} that cannot be serialized ({error}): report numbers, "
                "strings, lists or arrays."
            ) from error
    return plain


def _checked_name(name: Any) -> Any:
    """Return the name of a metric, which must be a key that JSON allows."""
    if not isinstance(name, str | int | float | None):
        raise TypeError(f"the name of each of the `metrics` must be a string, got {arguments.shown(name)}.")
    return name


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each, f"{name}/{_checked_name(key)}") for key, each in value.items()}
    library = type(value).__module__.partition(".")[0]
    if library not in ("torch", "numpy", "jax", "jaxlib", "tensorflow"):
        return value
    if getattr(value, "ndim", None) == 0 or getattr(value, "shape", None) == ():
        item = getattr(value, "item", None) or getattr(value, "numpy", None)
        return item() if item is not None else value
    if library == "torch" and hasattr(value, "detach"):
        raise ValueError(
            f"`metrics[{name!r}]` is a tensor of shape {tuple(value.shape)}: report numbers (`loss.item()`), and put "
            "weights into the checkpoint."
        )
    return value


def lookup(metrics: Mapping[str, Any], name: str) -> Any:
    """Return a metric by its name, or by its path in nested dicts, such as `eval/loss`; None if it is missing.

    >>> lookup({"eval": {"loss": 0.5}}, "eval/loss")
    0.5
    """
    if name in metrics:
        return metrics[name]
    first, _, rest = name.partition("/")
    inside = metrics.get(first)
    return lookup(inside, rest) if rest and isinstance(inside, Mapping) else None


def numbers(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the metrics that are numbers, with those of nested dicts under their paths, such as `eval/loss`.

    >>> numbers({"loss": 0.5, "eval": {"loss": 1}, "note": "text", "best": True})
    {'loss': 0.5, 'eval/loss': 1.0}
    """
    found: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found.update(numbers(value, f"{name}/"))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    return found
