"""Operations that call a function with each row or batch, or change columns one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data import expressions
from skate.data._compute import compute_of
from skate.data._dataset.base import Plan
from skate.data._exec.failures import Failures
from skate.data._exec.udf import Udf
from skate.data._expressions.predicates import as_predicate
from skate.data._plan import nodes

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

_FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)


class Mapping(Plan):
    """The part of a dataset's API that works on rows and batches one after the other."""

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
        """Make one row out of each row.

        Args:
            fn: A function that takes a row (a dict) and returns one, or a class whose instances do: an instance is
                made in each of a number of actors, and lives as long as they do. Asynchronous functions are awaited,
                many rows at a time.
            compute: A TaskPoolStrategy or ActorPoolStrategy.
            fn_args: Given to `fn` after the row.
            fn_kwargs: Given to `fn` by name.
            fn_constructor_args: What instances of a class are made with.
            fn_constructor_kwargs: What instances of a class are made with, by name.
            num_cpus: CPUs that each task or actor takes.
            num_gpus: GPUs that each task or actor takes.
            memory: Bytes that each task or actor takes.
            concurrency: How many tasks or actors at a time; (fewest, most) lets a number of actors grow.
            on_error: What is done with rows for which `fn` raises: "raise" ends the job, "drop" leaves them out and
                counts them, "dead_letter" also keeps them with their errors, for `dead_letters`.
            ray_remote_args_fn: Returns further options for each task or actor.
            **ray_remote_args: Further options of the tasks or actors.

        >>> import skate
        >>> skate.data.range(3).map(lambda row: {"double": 2 * row["id"]}).take_all()
        [{'double': 0}, {'double': 2}, {'double': 4}]
        """
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args}
        udf = udf_of(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._each_row("Map", udf, compute, concurrency, options, ray_remote_args_fn, on_error)

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
        """Make any number of rows out of each row.

        Args:
            fn: A function that takes a row and returns a list of rows, or yields them; or a class, as in `map`.
            compute: As in `map`, and so are the other arguments.

        >>> import skate
        >>> skate.data.range(3).flat_map(lambda row: [row] * row["id"]).take_all()
        [{'id': 1}, {'id': 2}, {'id': 2}]
        """
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args}
        udf = udf_of(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._each_row("FlatMap", udf, compute, concurrency, options, ray_remote_args_fn, on_error)

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
            fn: A function that takes a row and tells whether to keep it; or a class, as in `map`.
            expr: An expression instead, or its text: it is evaluated without Python, and Parquet files are read only
                as far as it may be true.
            compute: As in `map`, and so are the other arguments.

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
                raise ValueError(
                    "when 'expr' is given, 'fn_args' and the like have nobody to go to: leave them out"
                )
            return self._then(
                nodes.Filter(self._node, as_predicate(expr), _compute(compute, options, concurrency))
            )
        udf = udf_of(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        return self._each_row("Filter", udf, compute, concurrency, options, ray_remote_args_fn, on_error)

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
        """Make rows out of batches of rows.

        Args:
            fn: A function that takes a batch and returns one of any length, or yields several; or a class, as in
                `map`.
            batch_size: Rows in a batch; None gives a block at a time.
            compute: As in `map`, and so are the arguments not named here.
            batch_format: What `fn` gets: "numpy" (a dict of arrays, the default), "pandas", "pyarrow" or "polars". It
                may return any of them.
            zero_copy_batch: Give arrays as they lie in shared memory, which cannot be written to. Set it to False for
                a function that changes its batch in place.
            udf_modifying_row_count: Accepted; nothing depends on it.
            on_error: As in `map`. A batch for which `fn` raises is tried again in halves, down to the failing rows.

        >>> import skate
        >>> skate.data.range(4).map_batches(lambda batch: {"half": batch["id"] / 2}).take(2)
        [{'half': 0.0}, {'half': 0.5}]
        """
        if batch_size in ("auto", "default"):
            batch_size = None
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(
                f"Batch size can't be negative or 0: batch_size must be at least 1, it is {batch_size!r}"
            )
        if batch_format not in _FORMATS:
            raise ValueError(
                f"The batch format must be one of: {', '.join(map(str, _FORMATS))}; it is {batch_format!r}"
            )
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args}
        udf = udf_of(fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs)
        node = nodes.EachBatch(
            self._node,
            udf,
            batch_size,
            batch_format,
            copies=not zero_copy_batch,
            failures=Failures(on_error, f"MapBatches({udf.name})"),
            compute=compute_of(udf.is_class, compute, concurrency, options, ray_remote_args_fn),
        )
        return self._then(node)

    def with_column(self, column_name: Any = None, expr: Any = None, **options: Any) -> Dataset:
        """Add a column, or replace one, by an expression.

        Args:
            column_name: What the column is called.
            expr: What it holds: an expression over the columns that are there.
            **options: Options of the tasks.

        >>> import skate
        >>> from skate.data.expressions import col
        >>> skate.data.range(2).with_column("next", col("id") + 1).take_all()
        [{'id': 0, 'next': 1}, {'id': 1, 'next': 2}]
        """
        if not isinstance(column_name, str) or not isinstance(expr, expressions.Expr):
            raise TypeError(
                f"with_column takes a name and an expression, not {type(column_name).__name__} and "
                f"{type(expr).__name__}: with_column('total', col('a') + col('b')); for a function, use add_column"
            )
        asked, concurrency = options.pop("compute", None), options.pop("concurrency", None)
        compute = compute_of(expr.needs_actor(), asked, concurrency, options)
        return self._then(nodes.Project(self._node, (expressions.star(), expr.alias(column_name)), compute))

    def with_columns(self, exprs: Any = None, *more: Any, **options: Any) -> Dataset:
        """Add columns, or replace some, by expressions.

        Args:
            exprs: Expressions by the names of their columns; or `unnest(…)`, which makes a column of each field.
            *more: Further ones.
            **options: Options of the tasks.

        >>> import skate
        >>> from skate.data.expressions import col
        >>> skate.data.range(2).with_columns({"next": col("id") + 1, "half": col("id") * 0.5}).take_all()
        [{'id': 0, 'next': 1, 'half': 0.0}, {'id': 1, 'next': 2, 'half': 0.5}]
        """
        named: list[Any] = []
        for each in (exprs, *more):
            if isinstance(each, expressions.UnnestExpr):
                named.append(each)
                continue
            for name, expr in (each or {}).items():
                if isinstance(expr, expressions.DownloadExpr):
                    raise ValueError(
                        "with_columns does not support DownloadExpr: use with_column for a download"
                    )
                if not isinstance(expr, expressions.Expr):
                    raise TypeError(f"with_columns takes expressions: {name!r} is a {type(expr).__name__}")
                named.append(expr.alias(name))
        if not named:
            return self._then(self._node)
        compute = _compute(options.pop("compute", None), options, options.pop("concurrency", None))
        return self._then(nodes.Project(self._node, (expressions.star(), *named), compute))

    def add_column(
        self, col: str, fn: Callable[[Any], Any], *, batch_format: str | None = "pandas", **options: Any
    ) -> Dataset:
        """Add a column, or replace one, by a function of each batch.

        Args:
            col: What the column is called.
            fn: Takes a batch, and returns the values of the new column.
            batch_format: What `fn` gets.
            **options: As of `map_batches`.

        >>> import skate
        >>> skate.data.range(2).add_column("next", lambda frame: frame["id"] + 1).take_all()
        [{'id': 0, 'next': 1}, {'id': 1, 'next': 2}]
        """
        if not callable(fn):
            raise ValueError("`fn` must be callable, got {}".format(fn))  # noqa: UP032
        if batch_format not in ("pandas", "pyarrow", "numpy"):
            raise ValueError(
                f"batch_format argument must be 'pandas', 'pyarrow' or 'numpy', got: {batch_format!r}"
            )
        return self.map_batches(
            partial(_with_column, col, fn), batch_format=batch_format, zero_copy_batch=False, **options
        )

    def select_columns(self, cols: str | list[str], **options: Any) -> Dataset:
        """Keep some of the columns.

        >>> import skate
        >>> skate.data.from_items([{"a": 1, "b": 2}]).select_columns(["b"]).take_all()
        [{'b': 2}]
        """
        names = [cols] if isinstance(cols, str) else list(cols)
        _check_names("select_columns", names)
        compute = _compute(options.pop("compute", None), options, options.pop("concurrency", None))
        return self._then(nodes.Project(self._node, tuple(expressions.col(name) for name in names), compute))

    def drop_columns(self, cols: list[str], **options: Any) -> Dataset:
        """Leave out some of the columns.

        >>> import skate
        >>> skate.data.from_items([{"a": 1, "b": 2}]).drop_columns(["b"]).take_all()
        [{'a': 1}]
        """
        names = list(cols)
        _check_names("drop_columns", names)
        compute = _compute(options.pop("compute", None), options, options.pop("concurrency", None))
        return self._then(
            nodes.EachBlock(
                self._node, "DropColumns", partial(_without, tuple(names)), keeps_rows=True, compute=compute
            )
        )

    def rename_columns(self, names: list[str] | dict[str, str], **options: Any) -> Dataset:
        """Give columns other names.

        Args:
            names: New names by old ones, or new names for all columns in their order.
            **options: Options of the tasks.

        >>> import skate
        >>> skate.data.range(1).rename_columns({"id": "number"}).take_all()
        [{'number': 0}]
        """
        _check_renaming(names)
        compute = _compute(None, options, options.pop("concurrency", None))
        given = dict(names) if isinstance(names, dict) else tuple(names)
        return self._then(
            nodes.EachBlock(
                self._node, "RenameColumns", partial(_renamed, given), keeps_rows=True, compute=compute
            )
        )

    def _each_row(
        self,
        kind: str,
        udf: Udf,
        compute: Any,
        concurrency: Any,
        options: dict[str, Any],
        options_now: Any,
        on_error: str,
    ) -> Dataset:
        where = compute_of(udf.is_class, compute, concurrency, options, options_now)
        return self._then(
            nodes.EachRow(self._node, kind, udf, Failures(on_error, f"{kind}({udf.name})"), where)
        )


def udf_of(
    function: Any,
    args: Iterable[Any] | None,
    kwargs: dict[str, Any] | None,
    constructor_args: Iterable[Any] | None,
    constructor_kwargs: dict[str, Any] | None,
) -> Udf:
    """Return a function as a plan holds it, after a look at what the user gave."""
    if not callable(function):
        raise ValueError(f"`fn` must be callable, got {type(function).__name__}: {function!r}")
    if not isinstance(function, type) and (constructor_args is not None or constructor_kwargs is not None):
        which = "fn_constructor_args" if constructor_args is not None else "fn_constructor_kwargs"
        raise ValueError(f"{which} can only be specified if providing a class, but got: {function}")
    return Udf(
        function,
        None if args is None else tuple(args),
        kwargs,
        None if constructor_args is None else tuple(constructor_args),
        constructor_kwargs,
    )


def _compute(compute: Any, options: dict[str, Any], concurrency: Any) -> nodes.Compute:
    return compute_of(
        False, compute, concurrency, {key: each for key, each in options.items() if key != "compute"}
    )


def _with_column(name: str, function: Callable[[Any], Any], batch: Any) -> Any:
    values = function(batch)
    if isinstance(batch, pa.Table):
        values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        if name in batch.column_names:
            return batch.set_column(batch.schema.get_field_index(name), name, values)
        return batch.append_column(name, values)
    if isinstance(batch, dict):
        return {**batch, name: values}
    batch = batch.copy(deep=False)
    batch.loc[:, name] = values
    return batch


def _without(names: tuple[str, ...], block: pa.Table, index: int) -> pa.Table:
    return block.drop_columns(list(names))


def _renamed(names: dict[str, str] | tuple[str, ...], block: pa.Table, index: int) -> pa.Table:
    if isinstance(names, dict):
        missing = [name for name in names if name not in block.column_names]
        if missing:
            raise KeyError(
                f"cannot rename columns that are not there: {missing}; there are {block.column_names}"
            )
        return block.rename_columns([names.get(name, name) for name in block.column_names])
    if len(names) != block.num_columns:
        raise ValueError(
            f"rename_columns got {len(names)} names for {block.num_columns} columns: {block.column_names}"
        )
    return block.rename_columns(list(names))


def _check_names(call: str, names: list[Any]) -> None:
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{call} requires all elements of 'cols' to be strings, got {names!r}")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{call} expects unique column names, got {twice} more than once")


def _check_renaming(names: Any) -> None:
    if isinstance(names, dict):
        if not names:
            raise ValueError("rename_columns received 'names' with no entries.")
        if not all(isinstance(key, str) and isinstance(value, str) for key, value in names.items()):
            raise ValueError(
                "rename_columns requires both keys and values in the 'names' mapping to be strings."
            )
        if len(set(names.values())) != len(names):
            raise ValueError(
                f"rename_columns received duplicate values in the 'names': {list(names.values())}"
            )
    elif isinstance(names, list):
        if not names:
            raise ValueError("rename_columns requires 'names' with at least one column name.")
        if not all(isinstance(name, str) for name in names):
            raise ValueError("rename_columns requires all elements in the 'names' list to be strings.")
        if len(set(names)) != len(names):
            raise ValueError(f"rename_columns received duplicate values in the 'names': {names}")
    else:
        raise TypeError(
            f"rename_columns expected names to be either List[str] or Dict[str, str], got {type(names)}."
        )
