"""Methods that call a function with each row or batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from skate.data._arguments import checked, message
from skate.data._compute import compute_of
from skate.data._dataset.base import PlanHolder
from skate.data._dataset.user_functions import (
    ComputeArguments,
    FunctionArguments,
    UserFunction,
    check_format,
    user_function,
)
from skate.data._exec.transforms import EachBatch
from skate.data._expressions.predicates import as_predicate
from skate.data._plan import nodes

if TYPE_CHECKING:
    from skate.data.dataset import Dataset


class MapMethods(PlanHolder):
    """Methods of `Dataset` that transform rows and batches."""

    @checked()
    def map(
        self,
        fn: Callable[..., dict[str, Any]] | type,
        *,
        compute: Any = None,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: dict[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: Any = None,
        on_error: str = "raise",
        ray_remote_args_fn: Callable[[], dict[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Transform each row to one row.

        Args:
            fn: A function that takes a row (a dict) and returns one, or a class of such callables: each actor of a
                pool creates one instance. Asynchronous functions run concurrently for many rows.
            compute: A TaskPoolStrategy or ActorPoolStrategy.
            fn_args: Positional arguments of `fn` after the row.
            fn_kwargs: Keyword arguments of `fn`.
            fn_constructor_args: Positional arguments of the constructor of a class.
            fn_constructor_kwargs: Keyword arguments of the constructor of a class.
            num_cpus: CPUs of each task or actor.
            num_gpus: GPUs of each task or actor.
            memory: Bytes of memory of each task or actor.
            concurrency: Number of concurrent tasks or actors; (min, max) lets a pool of actors scale.
            on_error: How rows for which `fn` raises are handled: "raise" ends the job, "drop" drops and counts them,
                "dead_letter" also keeps them with their errors, for `dead_letters`.
            ray_remote_args_fn: Returns further options each time a task or actor starts.
            **ray_remote_args: Further options of the tasks or actors.

        >>> import skate
        >>> skate.data.range(3).map(lambda row: {"double": 2 * row["id"]}).take_all()
        [{'double': 0}, {'double': 2}, {'double': 4}]
        """
        call = user_function(
            fn,
            FunctionArguments(fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
            ComputeArguments(
                compute,
                concurrency,
                ray_remote_args_fn,
                {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args},
            ),
            on_error,
        )
        return self._each_row("Map", call)

    @checked()
    def flat_map(
        self,
        fn: Callable[..., Iterable[dict[str, Any]]] | type,
        *,
        compute: Any = None,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: dict[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: Any = None,
        on_error: str = "raise",
        ray_remote_args_fn: Callable[[], dict[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Transform each row to any number of rows.

        Args:
            fn: A function that takes a row and returns a list of rows, or yields them; or a class, as in `map`.
            compute: As in `map`, like the other arguments.

        >>> import skate
        >>> skate.data.range(3).flat_map(lambda row: [row] * row["id"]).take_all()
        [{'id': 1}, {'id': 2}, {'id': 2}]
        """
        call = user_function(
            fn,
            FunctionArguments(fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
            ComputeArguments(
                compute,
                concurrency,
                ray_remote_args_fn,
                {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args},
            ),
            on_error,
        )
        return self._each_row("FlatMap", call)

    @checked()
    def filter(
        self,
        fn: Callable[..., bool] | type | None = None,
        expr: Any = None,
        *,
        compute: Any = None,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: dict[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: Any = None,
        on_error: str = "raise",
        ray_remote_args_fn: Callable[[], dict[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Keep some of the rows.

        Args:
            fn: A function that takes a row and returns whether to keep it; or a class, as in `map`.
            expr: An expression, or its text, in place of `fn`. It is evaluated without Python code, and parts of
                Parquet files in which it cannot be true are not read.
            compute: As in `map`, like the other arguments.

        >>> import skate
        >>> skate.data.range(5).filter(lambda row: row["id"] % 2 == 1).take_all()
        [{'id': 1}, {'id': 3}]
        >>> skate.data.range(5).filter(expr="id > 2 and id != 4").take_all()
        [{'id': 3}]
        """
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args}
        if (fn is None) == (expr is None):
            raise ValueError("filter needs exactly one of 'fn' and 'expr'")
        if fn is None:
            given = (fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
            if any(each is not None for each in given):
                raise ValueError("'fn_args' and similar arguments need 'fn': leave them out with 'expr'")
            where = compute_of(False, compute, concurrency, options, ray_remote_args_fn)
            return self._with_node(nodes.Filter(self._node, as_predicate(expr), where))
        call = user_function(
            fn,
            FunctionArguments(fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
            ComputeArguments(compute, concurrency, ray_remote_args_fn, options),
            on_error,
        )
        return self._each_row("Filter", call)

    @checked("batch_format", "batch_size")
    def map_batches(
        self,
        fn: Callable[..., Any] | type,
        *,
        batch_size: int | str | None = None,
        compute: Any = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: dict[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: Any = None,
        udf_modifying_row_count: bool = True,
        on_error: str = "raise",
        ray_remote_args_fn: Callable[[], dict[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Transform batches of rows.

        Args:
            fn: A function that takes a batch and returns one of any length, or yields several; or a class, as in
                `map`.
            batch_size: Number of rows of a batch; None passes whole blocks.
            compute: As in `map`, like the arguments not named here.
            batch_format: The format of the batches: "numpy" (a dict of arrays, the default), "pandas", "pyarrow" or
                "polars". `fn` may return any of them.
            zero_copy_batch: Pass read-only arrays in shared memory. Set it to False for a function that modifies its
                batch in place.
            udf_modifying_row_count: Accepted without effect.
            on_error: As in `map`. A batch for which `fn` raises is retried in halves, down to the failing rows.

        >>> import skate
        >>> skate.data.range(4).map_batches(lambda batch: {"half": batch["id"] / 2}).take(2)
        [{'half': 0.0}, {'half': 0.5}]
        """
        if num_gpus and batch_size in (None, "auto"):
            raise ValueError(
                "map_batches with GPUs needs a `batch_size`, since it is unknown how many rows fit into the memory of "
                "a GPU. Give the number of rows that the model takes at once."
            )
        size = None if batch_size in ("auto", "default") else batch_size
        if size is not None and not isinstance(size, int):
            raise ValueError(message("batch_size", "a positive integer, 'auto' or None", batch_size))
        if size is not None and size < 1:
            raise ValueError(f"Batch size can't be negative or 0: `batch_size` is {batch_size}.")
        check_format(batch_format)
        call = user_function(
            fn,
            FunctionArguments(fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
            ComputeArguments(
                compute,
                concurrency,
                ray_remote_args_fn,
                {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args},
            ),
            on_error,
        )
        batches = EachBatch(
            call.udf, size, batch_format, copies=not zero_copy_batch, failures=call.failures("MapBatches")
        )
        return self._with_node(nodes.EachBatch(self._node, batches, call.compute))

    def _each_row(self, kind: str, call: UserFunction) -> Dataset:
        return self._with_node(nodes.EachRow(self._node, kind, call.udf, call.failures(kind), call.compute))
