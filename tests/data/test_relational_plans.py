"""Random relational plans: threads of this process give exactly the result of the separate steps."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import event, given, settings
from hypothesis import strategies as st

import skate
from skate.data import DataContext
from skate.data.aggregate import AsList, Count, CountDistinct, Max, Mean, Min, Quantile, Std, Sum, Unique
from skate.data.expressions import col
from tests.data.kernels import support

Step = Callable[[Any], Any]

# Types that Polars decodes from Parquet, and types that stay with Arrow.
KINDS = [kind for kind in support.KEY_VALUES if kind != "null"]
NUMBERS = {"small int", "int", "unsigned", "float", "float32", "decimal"}
AGGREGATES = [Count(), Count("k1"), Min("k1"), Max("k1"), CountDistinct("k1"), Unique("k1"), AsList("row")]
OF_NUMBERS = [Sum("row"), Mean("row"), Std("row"), Quantile("row")]
JOINS = [
    *("inner", "left_outer", "right_outer", "full_outer"),
    *("left_semi", "right_semi", "left_anti", "right_anti"),
]


def sources(table: pa.Table, files: int, folder: Path) -> Step:
    """Return what makes a dataset of a table: from blocks in memory, or from so many files."""
    rows = max(1, math.ceil(table.num_rows / max(1, files)))
    parts = [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]
    if not files:
        return lambda _: skate.data.from_arrow(parts)
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=3)
    return lambda _: skate.data.read_parquet(str(folder))


@st.composite
def steps(draw: st.DrawFn, other: Step) -> list[Step]:
    """Draw a few operations; the keys "k0" and "k1" and the number "row" stay until a last one may change them."""
    falls = st.lists(st.booleans(), min_size=2, max_size=2)
    many: st.SearchStrategy[Step] = st.one_of(
        falls.map(lambda down: lambda ds: ds.sort(["k0", "k1"], descending=down)),
        st.integers(0, 12).map(lambda row: lambda ds: ds.filter(expr=col("row") >= row)),
        st.integers(0, 12).map(lambda rows: lambda ds: ds.limit(rows)),
        st.just(lambda ds: ds.with_column("twice", col("row") * 2)),
        st.just(lambda ds: ds.select_columns(["row", "k1", "k0"])),
        st.just(lambda ds: ds.union(other(None))),
        st.just(lambda ds: ds.random_shuffle(seed=3)),
    )
    aggregates = st.lists(st.sampled_from(AGGREGATES + OF_NUMBERS), min_size=1, max_size=3, unique=True)
    keys = st.sampled_from([["k0"], ["k1"], ["k0", "k1"]])
    last: st.SearchStrategy[Step] = st.one_of(
        st.just(lambda ds: ds.sort("row", descending=True)),
        st.builds(lambda by, aggs: lambda ds: ds.groupby(by).aggregate(*aggs), keys, aggregates),
        st.just(lambda ds: ds.aggregate(Count(), Sum("row"), Max("row"))),
        st.builds(
            lambda how, by: (
                lambda ds: ds.join(other(None), how, 2, on=tuple(by), left_suffix="_l", right_suffix="_r")
            ),
            st.sampled_from(JOINS),
            keys,
        ),
    )
    return [*draw(st.lists(many, max_size=3)), draw(last)]


def shown(value: Any) -> str:
    """Return rows as a text, numbers without their last digits: sums are rounded as they are put together."""
    match value:
        case float():
            return f"{value:.12g}"
        case list():
            return f"[{', '.join(map(shown, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {shown(each)}' for key, each in value.items())}}}"
        case _:
            return repr(value)


def outcome(first: Step, plan: list[Step], context: DataContext) -> tuple[Any, str]:
    """Return the schema and rows that a plan gives, or how it fails; NaN equals NaN there."""
    DataContext._set_current(context)
    try:
        dataset = first(None)
        for step in plan:
            dataset = step(dataset)
        if isinstance(dataset, dict):  # one row of all
            return "one row", shown(dataset)
        tables = list(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))
        schemas = {table.schema.remove_metadata() for table in tables}
        return schemas, shown([row for table in tables for row in table.to_pylist()])
    except Exception as error:  # whatever it is has to be the same in both places
        return type(error).__name__, str(error).splitlines()[0]
    finally:
        DataContext._set_current(DataContext())


@settings(deadline=None, max_examples=60)
@given(
    st.data(),
    support.tables(kinds=KINDS, max_rows=24),
    support.tables(kinds=KINDS, max_rows=8),
    st.sampled_from([0, 1, 3]),
)
def test_threads_give_what_one_step_after_another_gives(
    data: st.DataObject, table: pa.Table, second: pa.Table, files: int
) -> None:
    table, second = table.drop_columns(["image"]), second.select(["k0", "k1", "row"])
    if [field.type for field in table.schema][:2] != [field.type for field in second.schema][:2]:
        second = table.slice(0, 4).select(["k0", "k1", "row"])
    with tempfile.TemporaryDirectory() as folder:
        (left := Path(folder) / "left").mkdir()
        (right := Path(folder) / "right").mkdir()
        first = sources(table, files, left)
        plan = data.draw(steps(sources(second, files, right)))
        one_by_one = DataContext(small_plan_bytes=1 << 40)
        on_threads = DataContext(small_plan_bytes=-1)
        found = outcome(first, plan, on_threads)
        event(found[0] if isinstance(found[0], str) else "rows")
        assert found == outcome(first, plan, one_by_one)
    assert not skate.is_initialized()
