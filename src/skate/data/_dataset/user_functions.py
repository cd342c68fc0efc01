"""The user functions of map methods: their arguments, where they run, and how their errors are handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from skate.data._compute import compute_of
from skate.data._exec.failures import Failures
from skate.data._exec.udf import Udf
from skate.data._plan.nodes import Compute
from skate.data.util import torch_inference

#: The formats of a batch.
FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)


@dataclass(frozen=True)
class UserFunction:
    """A user function with its compute and its handling of errors."""

    udf: Udf
    compute: Compute
    on_error: str = "raise"

    def failures(self, kind: str) -> Failures:
        """Return the handling of errors for a step of this kind."""
        return Failures(self.on_error, f"{kind}({self.udf.name})")


@dataclass(frozen=True)
class FunctionArguments:
    """Further arguments of a user function, and of the constructor of its class; the fields are those of `map`."""

    fn_args: Iterable[Any] | None = None
    fn_kwargs: dict[str, Any] | None = None
    fn_constructor_args: Iterable[Any] | None = None
    fn_constructor_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class ComputeArguments:
    """The arguments of `map` that say where a function runs.

    Attributes:
        compute: A strategy.
        concurrency: A number of tasks or actors.
        options_fn: Returns further options each time a task or actor starts.
        options: Resources and other options of the tasks or actors; None values count as not given.
    """

    compute: Any
    concurrency: Any
    options_fn: Callable[[], dict[str, Any]] | None
    options: dict[str, Any]


def user_function(
    fn: Any, arguments: FunctionArguments, compute: ComputeArguments, on_error: str
) -> UserFunction:
    """Check the arguments of a map method, and return its function.

    Args:
        fn: The function or class.
        arguments: Its further arguments.
        compute: Where it runs.
        on_error: How rows for which it fails are handled.
    """
    fn_constructor_args, fn_constructor_kwargs = (
        arguments.fn_constructor_args,
        arguments.fn_constructor_kwargs,
    )
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
    args = None if arguments.fn_args is None else tuple(arguments.fn_args)
    constructor_args = None if fn_constructor_args is None else tuple(fn_constructor_args)
    if is_inference:
        torch_inference.check(fn, args, arguments.fn_kwargs, compute.options.get("num_gpus"))
        fn = torch_inference.wrap_model(fn)
    udf = Udf(fn, args, arguments.fn_kwargs, constructor_args, fn_constructor_kwargs)
    resolved = compute_of(
        udf.is_class, compute.compute, compute.concurrency, compute.options, compute.options_fn
    )
    return UserFunction(udf, resolved, on_error)


def check_format(batch_format: str | None) -> None:
    """Raise ValueError for an unknown batch format."""
    if batch_format not in FORMATS:
        raise ValueError(
            f"The batch format must be one of: {', '.join(map(str, FORMATS))}; it is {batch_format!r}"
        )
