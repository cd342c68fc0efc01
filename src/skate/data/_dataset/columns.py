"""Methods that compute, select and rename columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data import expressions
from skate.data._arguments import ArgumentTypeError, check_type, checked, shown
from skate.data._compute import compute_of
from skate.data._dataset.mapping import MapMethods
from skate.data._expressions.errors import missing_column
from skate.data._plan import nodes

if TYPE_CHECKING:
    from skate.data.dataset import Dataset


class ColumnMethods(MapMethods):
    """Methods of `Dataset` that transform columns."""

    @checked("expr")
    def with_column(
        self, column_name: str, expr: expressions.Expr, *, compute: Any = None, **ray_remote_args: Any
    ) -> Dataset:
        """Add a column, or replace one, by an expression.

        Args:
            column_name: The name of the column.
            expr: An expression over the columns of the dataset.
            compute: A TaskPoolStrategy, or for expressions that call instances of a class, an ActorPoolStrategy.
            **ray_remote_args: Options of the tasks or actors, such as `num_cpus`.

        >>> import skate
        >>> from skate.data.expressions import col
        >>> skate.data.range(2).with_column("next", col("id") + 1).take_all()
        [{'id': 0, 'next': 1}, {'id': 1, 'next': 2}]
        """
        _check_expression("expr", expr)
        resolved = _resolve_compute(compute, ray_remote_args, expr.needs_actor())
        return self._with_node(
            nodes.Project(self._node, (expressions.star(), expr.alias(column_name)), resolved)
        )

    def with_columns(
        self, exprs: Any = None, *more_exprs: Any, compute: Any = None, **ray_remote_args: Any
    ) -> Dataset:
        """Add columns, or replace some, by expressions.

        Args:
            exprs: Expressions by column name; or `unnest(…)`, which adds a column for each field.
            *more_exprs: Further expressions.
            compute: As in `with_column`.
            **ray_remote_args: As in `with_column`.

        >>> import skate
        >>> from skate.data.expressions import col
        >>> skate.data.range(2).with_columns({"next": col("id") + 1, "half": col("id") * 0.5}).take_all()
        [{'id': 0, 'next': 1, 'half': 0.0}, {'id': 1, 'next': 2, 'half': 0.5}]
        """
        named: list[Any] = []
        for each in (exprs, *more_exprs):
            if isinstance(each, expressions.UnnestExpr):
                named.append(each)
                continue
            check_type("exprs", each or {}, dict, "a dict of expressions or unnest(…)")
            for name, expr in (each or {}).items():
                check_type("exprs", name, str, "a dict with strings as keys")
                if isinstance(expr, expressions.DownloadExpr):
                    raise ValueError(
                        "with_columns does not support DownloadExpr: use with_column for a download"
                    )
                _check_expression(f"exprs[{name!r}]", expr)
                named.append(expr.alias(name))
        resolved = _resolve_compute(compute, ray_remote_args, any(each.needs_actor() for each in named))
        if not named:
            return self._with_node(self._node)
        return self._with_node(nodes.Project(self._node, (expressions.star(), *named), resolved))

    @checked("batch_format")
    def add_column(
        self,
        col: str,
        fn: Callable[[Any], Any],
        *,
        batch_format: str | None = "pandas",
        compute: Any = None,
        concurrency: int | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Add a column, or replace one, by a function of each batch.

        Args:
            col: The name of the column.
            fn: Takes a batch, and returns the values of the new column.
            batch_format: The format of the batches: "pandas" (the default), "pyarrow" or "numpy".
            compute: As in `map_batches`.
            concurrency: As in `map_batches`.
            **ray_remote_args: As in `map_batches`.

        >>> import skate
        >>> skate.data.range(2).add_column("next", lambda frame: frame["id"] + 1).take_all()
        [{'id': 0, 'next': 1}, {'id': 1, 'next': 2}]
        """
        if not callable(fn):
            raise ValueError(f"`fn` must be callable, got {fn}")
        if batch_format not in ("pandas", "pyarrow", "numpy"):
            raise ValueError(
                f"batch_format argument must be 'pandas', 'pyarrow' or 'numpy', got: {batch_format!r}"
            )
        return self.map_batches(
            partial(_add_column, col, fn),
            batch_size="default",  # also with a GPU: the user ensures that a block fits
            batch_format=batch_format,
            zero_copy_batch=False,
            compute=compute,
            concurrency=concurrency,
            **ray_remote_args,
        )

    @checked("cols")
    def select_columns(
        self,
        cols: str | list[str],
        *,
        compute: Any = None,
        concurrency: int | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Keep some of the columns.

        Args:
            cols: Their names, in the resulting order.
            compute: A TaskPoolStrategy.
            concurrency: Number of concurrent tasks.
            **ray_remote_args: Options of the tasks, such as `num_cpus`.

        >>> import skate
        >>> skate.data.from_items([{"a": 1, "b": 2}]).select_columns(["b"]).take_all()
        [{'b': 2}]
        """
        names = _names("select_columns", cols)
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]  # of `ConsumptionMethods`
        for name in names if schema is not None else ():
            if name not in schema.names:
                raise missing_column(name, schema.names)
        resolved = compute_of(False, compute, concurrency, ray_remote_args)
        return self._with_node(
            nodes.Project(self._node, tuple(expressions.col(name) for name in names), resolved)
        )

    @checked("cols")
    def drop_columns(
        self, cols: list[str], *, compute: Any = None, concurrency: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """Drop some of the columns.

        Args:
            cols: Their names.
            compute: As in `select_columns`.
            concurrency: As in `select_columns`.
            **ray_remote_args: As in `select_columns`.

        >>> import skate
        >>> skate.data.from_items([{"a": 1, "b": 2}]).drop_columns(["b"]).take_all()
        [{'a': 1}]
        """
        names = _names("drop_columns", cols)
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]  # of `ConsumptionMethods`
        if schema is not None:
            _check_present(names, schema.names)
        resolved = compute_of(False, compute, concurrency, ray_remote_args)
        return self._each_block("DropColumns", partial(_drop, tuple(names)), resolved)

    @checked("names")
    def rename_columns(
        self, names: list[str] | dict[str, str], *, concurrency: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """Rename columns.

        Args:
            names: New names by old names, or the new names of all columns in order.
            concurrency: As in `select_columns`.
            **ray_remote_args: As in `select_columns`.

        >>> import skate
        >>> skate.data.range(1).rename_columns({"id": "number"}).take_all()
        [{'number': 0}]
        """
        _check_renaming(names)
        schema = self.schema(fetch_if_missing=False)  # type: ignore[attr-defined]  # of `ConsumptionMethods`
        if schema is not None:
            _new_names(names, schema.names)
        given = dict(names) if isinstance(names, dict) else tuple(names)
        resolved = compute_of(False, None, concurrency, ray_remote_args)
        return self._each_block("RenameColumns", partial(_rename, given), resolved)

    def _each_block(self, label: str, function: Callable[[pa.Table, int], pa.Table], compute: Any) -> Dataset:
        return self._with_node(nodes.EachBlock(self._node, label, function, keeps_rows=True, compute=compute))


def _check_expression(name: str, expr: Any) -> None:
    words = "an expression such as col('a') + 1 (a function goes to add_column)"
    check_type(name, expr, expressions.Expr, words)


def _resolve_compute(compute: Any, options: dict[str, Any], needs_actor: bool) -> nodes.Compute:
    """Return where expressions are evaluated; the options may contain `concurrency`."""
    rest = {name: value for name, value in options.items() if name != "concurrency"}
    return compute_of(needs_actor, compute, options.get("concurrency"), rest)


def _add_column(name: str, function: Callable[[Any], Any], batch: Any) -> Any:
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


def _drop(names: tuple[str, ...], block: pa.Table, index: int) -> pa.Table:
    _check_present(names, block.column_names)
    return block.drop_columns(list(names))


def _rename(names: dict[str, str] | tuple[str, ...], block: pa.Table, index: int) -> pa.Table:
    return block.rename_columns(_new_names(names, block.column_names))


def _new_names(names: dict[str, str] | Sequence[str], there: list[str]) -> list[str]:
    """Return the names of the columns after renaming."""
    if not isinstance(names, dict):
        if len(names) != len(there):
            raise ValueError(f"rename_columns got {len(names)} names for {len(there)} columns: {there}")
        return list(names)
    missing = [name for name in names if name not in there]
    if missing:
        raise KeyError(f"cannot rename the missing columns {missing}: the dataset has {there}")
    found = [names.get(name, name) for name in there]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"rename_columns would make several columns {twice}: the dataset has {there}")
    return found


def _check_present(names: Sequence[str], there: list[str]) -> None:
    missing = [name for name in names if name not in there]
    if missing:
        raise KeyError(f"drop_columns cannot drop {missing}, not found in dataset schema. There are {there}")


def _names(call: str, cols: Any) -> list[str]:
    if isinstance(cols, str) or not isinstance(cols, Iterable):
        if call == "select_columns" and isinstance(cols, str):
            return [cols]
        words = "a string or a list of strings" if call == "select_columns" else "a list of strings"
        raise ArgumentTypeError(f"{call} requires 'cols' to be {words}, got {shown(cols)}.")
    names = list(cols)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{call} takes names of columns, which are strings: got {names!r}")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{call} expects unique column names in 'cols', got {twice} more than once")
    return names


def _check_renaming(names: Any) -> None:
    if isinstance(names, dict):
        if not names:
            raise ValueError("rename_columns received 'names' with no entries.")
        if not all(isinstance(key, str) and isinstance(value, str) for key, value in names.items()):
            raise ValueError(
                f"rename_columns takes a dict from old to new names, all of them strings, not {names}."
            )
        if len(set(names.values())) != len(names):
            raise ValueError(
                f"rename_columns received duplicate values: the new names {list(names.values())} are not unique."
            )
    elif isinstance(names, list):
        if not names:
            raise ValueError("rename_columns got an empty list: give the new name of each column.")
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"rename_columns takes a list of strings, not {names}.")
        if len(set(names)) != len(names):
            raise ValueError(
                f"rename_columns received duplicate values: the new names {names} are not unique."
            )
    else:
        raise TypeError(
            f"rename_columns takes a list of new names, or a dict from old to new names, not {type(names).__name__}."
        )
