"""A user's function as a plan calls it: what it is given, where it runs, and what becomes of rows it fails for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from skate.data._compute import compute_of
from skate.data._exec.failures import Failures
from skate.data._exec.udf import Udf
from skate.data._plan.nodes import Compute
from skate.data.util import torch_inference

#: What `fn` may be given as a batch.
FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)


@dataclass(frozen=True)
class Call:
    """A function, where it runs, and what is done with its errors."""

    udf: Udf
    compute: Compute
    on_error: str = "raise"

    def failures(self, kind: str) -> Failures:
        """Return what is done with errors, by a step that is called so."""
        return Failures(self.on_error, f"{kind}({self.udf.name})")


# What a function is called with besides rows, and its class: fn_args, fn_kwargs, fn_constructor_args and
# fn_constructor_kwargs.
Given = tuple[Iterable[Any] | None, dict[str, Any] | None, Iterable[Any] | None, dict[str, Any] | None]

# Where it runs: compute, concurrency and ray_remote_args_fn.
Where = tuple[Any, Any, Callable[[], dict[str, Any]] | None]


def user_call(fn: Any, given: Given, where: Where, options: dict[str, Any], on_error: str) -> Call:
    """Return a function as a plan holds it, after a look at what the user gave.

    Args:
        fn: The function, or the class.
        given: What it is called with.
        where: Where it runs.
        options: Resources and other options of its tasks or actors; None is not given.
        on_error: What is done with rows for which it fails.
    """
    fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs = given
    compute, concurrency, options_now = where
    if not callable(fn):
        raise ValueError(f"`fn` must be callable, got {type(fn).__name__}: {fn!r}")
    is_inference = torch_inference.is_inference(fn)
    if isinstance(fn, type) and not is_inference and not any("__call__" in vars(each) for each in fn.__mro__):
        raise ValueError(
            f"`fn` must be a function or a class with a method __call__, got the class {fn.__name__}."
        )
    if not isinstance(fn, type) and (fn_constructor_args is not None or fn_constructor_kwargs is not None):
        which = "fn_constructor_args" if fn_constructor_args is not None else "fn_constructor_kwargs"
        raise ValueError(f"{which} can only be specified if providing a class, but got: {fn}")
    args = None if fn_args is None else tuple(fn_args)
    constructor_args = None if fn_constructor_args is None else tuple(fn_constructor_args)
    if is_inference:
        torch_inference.check(fn, args, fn_kwargs, options.get("num_gpus"))
        fn = torch_inference.wrap_model(fn)
    udf = Udf(fn, args, fn_kwargs, constructor_args, fn_constructor_kwargs)
    return Call(udf, compute_of(udf.is_class, compute, concurrency, options, options_now), on_error)


def check_format(batch_format: str | None) -> None:
    """Refuse a format that no batch has."""
    if batch_format not in FORMATS:
        raise ValueError(
            f"The batch format must be one of: {', '.join(map(str, FORMATS))}; it is {batch_format!r}"
        )
