"""Expressions that Hypothesis generates give what Python computes from the same rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._expressions.evaluate import mask, project
from skate.data._expressions.predicates import parse
from skate.data.expressions import Expr, ExpressionValueError, col, lit

Row = dict[str, Any]

SCHEMA = pa.schema({"i": pa.int64(), "j": pa.int32(), "x": pa.float64(), "s": pa.string(), "t": pa.bool_()})

INTEGERS = st.integers(-1000, 1000)
SMALL = st.integers(-20, 20)  # five of them multiplied fit into 32 bits, where integers would wrap around
FLOATS = st.floats(-1e6, 1e6, allow_nan=False)
TEXTS = st.text("abAB éß", max_size=5)


def rows(*, nulls: bool) -> st.SearchStrategy[list[Row]]:
    def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | values if nulls else values

    columns = {
        "i": maybe(INTEGERS),
        "j": maybe(SMALL),
        "x": maybe(FLOATS),
        "s": maybe(TEXTS),
        "t": maybe(st.booleans()),
    }
    return st.lists(st.fixed_dictionaries(columns), max_size=8)


def block_of(rows: Sequence[Row], cut: int = 0) -> pa.Table:
    """Return the rows as a block, cut in two chunks somewhere."""
    block = pa.Table.from_pylist(list(rows), SCHEMA)
    return pa.concat_tables([block.slice(0, cut), block.slice(cut)])


@dataclass(frozen=True)
class Twin:
    """An expression, and the function of a row that it has to agree with."""

    expr: Expr
    of: Callable[[Row], Any]

    def __repr__(self) -> str:
        return repr(self.expr)


def column(name: str) -> Twin:
    return Twin(col(name), operator.itemgetter(name))


def literal(value: Any) -> Twin:
    return Twin(lit(value), lambda row: value)


def binary(op: Callable[[Any, Any], Any]) -> Callable[[tuple[Twin, Twin]], Twin]:
    """Return what combines two twins by an operator that is null if one of its sides is."""

    def combined(sides: tuple[Twin, Twin]) -> Twin:
        left, right = sides

        def of(row: Row) -> Any:
            a, b = left.of(row), right.of(row)
            return None if a is None or b is None else op(a, b)

        return Twin(op(left.expr, right.expr), of)

    return combined


def pairs(of: st.SearchStrategy[Twin], ops: Sequence[Callable[[Any, Any], Any]]) -> st.SearchStrategy[Twin]:
    return st.one_of(*[st.tuples(of, of).map(binary(op)) for op in ops])


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]

integer_trees = st.recursive(
    st.sampled_from([column("i"), column("j")]) | INTEGERS.map(literal),
    lambda children: pairs(children, ARITHMETIC),
    max_leaves=5,
)
exact_integer_trees = st.recursive(
    st.sampled_from([column("i"), column("j")]) | INTEGERS.map(literal),
    lambda children: pairs(children, [operator.add, operator.sub, operator.mul]),
    max_leaves=4,
)
text_trees = st.recursive(
    st.just(column("s")) | TEXTS.map(literal), lambda children: pairs(children, [operator.add]), max_leaves=3
)


def negation(twin: Twin) -> Twin:
    def of(row: Row) -> Any:
        value = twin.of(row)
        return None if value is None else not value

    return Twin(~twin.expr, of)


def conjunction(sides: tuple[Twin, Twin]) -> Twin:
    left, right = sides

    def of(row: Row) -> Any:
        values = (left.of(row), right.of(row))
        return False if False in values else None if None in values else True

    return Twin(left.expr & right.expr, of)


def disjunction(sides: tuple[Twin, Twin]) -> Twin:
    left, right = sides

    def of(row: Row) -> Any:
        values = (left.of(row), right.of(row))
        return True if True in values else None if None in values else False

    return Twin(left.expr | right.expr, of)


def membership(twin: Twin, values: list[Any]) -> Twin:
    return Twin(twin.expr.is_in(values), lambda row: twin.of(row) in values)


def absence(twin: Twin, values: list[Any]) -> Twin:
    return Twin(twin.expr.not_in(values), lambda row: twin.of(row) not in values)


def missing(twin: Twin) -> Twin:
    return Twin(twin.expr.is_null(), lambda row: twin.of(row) is None)


INTEGER_LISTS = st.lists(st.none() | INTEGERS, max_size=4)
TEXT_LISTS = st.lists(st.none() | TEXTS, max_size=4)

predicate_trees = st.recursive(
    st.one_of(
        st.just(column("t")),
        st.booleans().map(literal),
        pairs(exact_integer_trees, COMPARISONS),
        pairs(text_trees, COMPARISONS),
        exact_integer_trees.map(missing),
        st.builds(membership, st.sampled_from([column("i"), column("j")]), INTEGER_LISTS),
        st.builds(absence, st.just(column("s")), TEXT_LISTS),
    ),
    lambda children: st.one_of(
        children.map(negation),
        st.tuples(children, children).map(conjunction),
        st.tuples(children, children).map(disjunction),
    ),
    max_leaves=6,
)


def evaluated(twin: Twin, block: pa.Table) -> list[Any]:
    found: list[Any] = project(block, [twin.expr.alias("value")]).column("value").to_pylist()
    return found


@settings(max_examples=150, deadline=None)
@given(rows(nulls=True).filter(bool), integer_trees, st.integers(0, 8))
def test_arithmetic_of_integers_is_pythons(rows: list[Row], tree: Twin, cut: int) -> None:
    block = block_of(rows, cut)
    try:
        expected = [tree.of(row) for row in rows]
    except ZeroDivisionError:
        with pytest.raises(ExpressionValueError, match="divide by zero"):
            evaluated(tree, block)
        return
    assert evaluated(tree, block) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS.filter(bool)), min_size=1, max_size=8))
def test_division_of_floats_rounds_as_pythons(numbers: list[tuple[float, float]]) -> None:
    block = pa.table({"a": [a for a, _ in numbers], "b": [b for _, b in numbers]})
    exprs = [
        (col("a") // col("b")).alias("quotient"),
        (col("a") % col("b")).alias("remainder"),
        (col("a") / col("b")).alias("ratio"),
    ]
    found = project(block, exprs).to_pydict()
    assert found == {
        "quotient": [a // b for a, b in numbers],
        "remainder": [a % b for a, b in numbers],
        "ratio": [a / b for a, b in numbers],
    }


@settings(max_examples=150, deadline=None)
@given(rows(nulls=True), predicate_trees, st.integers(0, 8))
def test_predicates_follow_three_valued_logic(rows: list[Row], tree: Twin, cut: int) -> None:
    block = block_of(rows, cut)
    expected = [tree.of(row) for row in rows]
    assert evaluated(tree, block) == expected
    assert mask(block, tree.expr).to_pylist() == [value is True for value in expected]


@settings(max_examples=100, deadline=None)
@given(rows(nulls=True), predicate_trees)
def test_a_reader_that_is_given_the_predicate_keeps_the_same_rows(rows: list[Row], tree: Twin) -> None:
    block = block_of(rows)
    read = pads.dataset(block).to_table(filter=tree.expr.to_pyarrow(SCHEMA))
    assert read.equals(block.filter(mask(block, tree.expr)).combine_chunks())


@settings(max_examples=100, deadline=None)
@given(rows(nulls=True), predicate_trees, integer_trees)
def test_the_type_is_known_beforehand(rows: list[Row], predicate: Twin, tree: Twin) -> None:
    block = block_of(rows)
    assert predicate.expr.get_type(SCHEMA) == pa.bool_()
    try:
        found = project(block, [tree.expr.alias("value")]).schema.field("value").type
    except ExpressionValueError:
        return
    assert tree.expr.get_type(SCHEMA) in (found, None)


@settings(max_examples=100, deadline=None)
@given(rows(nulls=True), integer_trees)
def test_fusing_two_projections_by_substitution_changes_nothing(rows: list[Row], tree: Twin) -> None:
    block = block_of(rows)
    inner = [(col("j") + 1).alias("i"), (col("i") - col("j")).alias("j")]
    outer = tree.expr.alias("value")
    fused = outer.substitute({expr.name: expr for expr in inner})
    try:
        stepwise = project(project(block, inner), [outer])
    except ExpressionValueError:
        with pytest.raises(ExpressionValueError):
            project(block, [fused])
        return
    assert project(block, [fused]).equals(stepwise)


PREDICATES = [
    "i > 3 and s == 'a'",
    "i > j or t",
    "not t and x <= 10.5",
    "-10 < i <= 10 < j + 20",
    "i % 7 == 3 or i // 7 != 2",
    "s in ['a', 'b', 'ab'] or i not in (1, 2, -3)",
    "(i + j) * 2 - -1 >= x",
    "s + 'a' == 'aa' or s != s",
    "i ** 2 < 100",
    "t == True and i != 0",
    "abs(i) > 5 and round(x) == 0",
]


@settings(max_examples=100, deadline=None)
@given(rows(nulls=False), st.sampled_from(PREDICATES))
def test_a_string_means_what_it_means_in_python(rows: list[Row], predicate: str) -> None:
    expected = [bool(eval(predicate, {"abs": abs, "round": round}, row)) for row in rows]
    assert mask(block_of(rows), parse(predicate)).to_pylist() == expected


UNARY: dict[str, Callable[[float], float]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": round,
    "exp": lambda x: math.exp(x),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "atan": math.atan,
    "abs": abs,
    "negate": operator.neg,
    "sign": lambda x: (x > 0) - (x < 0),
}


@pytest.mark.parametrize("method", UNARY)
@settings(max_examples=30, deadline=None)
@given(number=st.floats(-100, 100))
def test_functions_of_numbers_are_pythons(method: str, number: float) -> None:
    block = pa.table({"x": [number, None]})
    found = project(block, [getattr(col("x"), method)().alias("y")]).column("y").to_pylist()
    assert found[0] == pytest.approx(UNARY[method](number), rel=1e-12, abs=1e-300)
    assert found[1] is None


@pytest.mark.parametrize(
    ("method", "function"), [("ln", math.log), ("log10", math.log10), ("log2", math.log2)]
)
@settings(max_examples=30, deadline=None)
@given(number=st.floats(1e-6, 1e6))
def test_logarithms_are_pythons(method: str, function: Callable[[float], float], number: float) -> None:
    block = pa.table({"x": [number]})
    found = project(block, [getattr(col("x"), method)().alias("y")]).column("y").to_pylist()
    assert found == pytest.approx([function(number)], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("method", "function"), [("asin", math.asin), ("acos", math.acos)])
@settings(max_examples=30, deadline=None)
@given(number=st.floats(-1, 1))
def test_arc_functions_are_pythons(method: str, function: Callable[[float], float], number: float) -> None:
    block = pa.table({"x": [number]})
    found = project(block, [getattr(col("x"), method)().alias("y")]).column("y").to_pylist()
    assert found == pytest.approx([function(number)])


STRINGS: dict[str, Callable[[str], Any]] = {
    "len": len,
    "byte_len": lambda s: len(s.encode()),
    "upper": str.upper,
    "lower": str.lower,
    "swapcase": str.swapcase,
    "reverse": lambda s: s[::-1],
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
    "is_alpha": str.isalpha,
    "is_alnum": str.isalnum,
    "is_digit": str.isdigit,
    "is_space": str.isspace,
    "is_lower": str.islower,
    "is_upper": str.isupper,
    "is_ascii": str.isascii,
}


@pytest.mark.parametrize("method", STRINGS)
@settings(max_examples=30, deadline=None)
@given(text=st.text("abcXYZ 012é", max_size=8))
def test_functions_of_text_are_pythons(method: str, text: str) -> None:
    block = pa.table({"s": [text, None]})
    found = project(block, [getattr(col("s").str, method)().alias("y")]).column("y").to_pylist()
    assert found == [STRINGS[method](text), None]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.none() | st.lists(st.none() | INTEGERS, max_size=4), max_size=5),
    st.sampled_from(["ascending", "descending"]),
    st.sampled_from(["at_start", "at_end"]),
    st.integers(0, 3),
)
def test_lists_sort_as_pythons(lists: list[Any], order: Any, nulls: Any, skipped: int) -> None:
    block = pa.table({"l": pa.array(lists, pa.list_(pa.int64()))}).slice(skipped)

    def sort(values: list[int | None] | None) -> list[int | None] | None:
        if values is None:
            return None
        there = sorted([value for value in values if value is not None], reverse=order == "descending")
        gone = [None] * (len(values) - len(there))
        return [*gone, *there] if nulls == "at_start" else [*there, *gone]

    found = project(block, [col("l").list.sort(order, nulls).alias("y")]).column("y").to_pylist()
    assert found == [sort(values) for values in lists[skipped:]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.none() | st.lists(st.none() | st.lists(INTEGERS, max_size=3), max_size=3), max_size=5),
    st.integers(0, 3),
    st.booleans(),
)
def test_lists_of_lists_flatten(lists: list[Any], skipped: int, large: bool) -> None:
    make = pa.large_list if large else pa.list_
    block = pa.table({"l": pa.array(lists, make(pa.list_(pa.int64())))}).slice(skipped)
    column = project(block, [col("l").list.flatten().alias("y")]).column("y")
    assert column.type == make(pa.int64())
    assert column.to_pylist() == [
        None if values is None else [value for inner in values for value in inner or []]
        for values in lists[skipped:]
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.none() | st.dictionaries(TEXTS, st.none() | INTEGERS, max_size=3), max_size=5),
    st.integers(0, 3),
    st.booleans(),
)
def test_maps_give_their_keys_and_values(maps: list[Any], skipped: int, physical: bool) -> None:
    column_type = pa.map_(pa.string(), pa.int64())
    items = [None if entries is None else list(entries.items()) for entries in maps]
    column = pa.array(items, column_type)
    if physical:
        column = column.cast(pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64())])))
    block = pa.table({"m": column}).slice(skipped)
    found = project(block, [col("m").map.keys().alias("k"), col("m").map.values().alias("v")]).to_pydict()
    kept = maps[skipped:]
    assert found == {
        "k": [None if entries is None else list(entries) for entries in kept],
        "v": [None if entries is None else list(entries.values()) for entries in kept],
    }
