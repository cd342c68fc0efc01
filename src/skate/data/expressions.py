"""Expressions over columns, for `Dataset.filter`, `Dataset.with_column` and similar methods.

>>> from skate.data.expressions import col, lit
>>> (col("price") * col("quantity") > lit(100)).columns() == {"price", "quantity"}
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air import _filesystems as filesystems
from skate.data._arguments import check_type, checked
from skate.data._expressions.calls import PyArrowComputeUDFExpr, UDFExpr
from skate.data._expressions.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionTypeError,
    ExpressionValueError,
    NotExpressibleError,
    PredicateSyntaxError,
)
from skate.data._expressions.expr import Expr
from skate.data._expressions.nodes import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    LiteralExpr,
    StarExpr,
    UnaryExpr,
    UnnestExpr,
)
from skate.data._expressions.operations import Operation
from skate.data._expressions.projection import (
    expand_projection_exprs,
    expand_star_exprs,
    exprlist_to_fields,
    is_rename_expr,
)
from skate.data._expressions.sources import (
    DownloadExpr,
    MonotonicallyIncreasingIdExpr,
    RandomExpr,
    UUIDExpr,
)
from skate.data._expressions.udfs import pyarrow_udf, udf
from skate.data.datatype import DataType

if TYPE_CHECKING:
    import pyarrow.fs

__all__ = [
    "AliasExpr",
    "BinaryExpr",
    "ColumnExpr",
    "ColumnNotFoundError",
    "DataType",
    "DownloadExpr",
    "Expr",
    "ExpressionError",
    "ExpressionTypeError",
    "ExpressionValueError",
    "LiteralExpr",
    "MonotonicallyIncreasingIdExpr",
    "NotExpressibleError",
    "Operation",
    "PredicateSyntaxError",
    "PyArrowComputeUDFExpr",
    "RandomExpr",
    "StarExpr",
    "UDFExpr",
    "UUIDExpr",
    "UnaryExpr",
    "UnnestExpr",
    "col",
    "download",
    "expand_projection_exprs",
    "expand_star_exprs",
    "exprlist_to_fields",
    "is_rename_expr",
    "lit",
    "monotonically_increasing_id",
    "pyarrow_udf",
    "random",
    "star",
    "udf",
    "unnest",
    "uuid",
]


@checked()
def col(name: str) -> ColumnExpr:
    """Read a column.

    >>> col("age") >= 18
    GE
        ├── left: COL('age')
        └── right: LIT(18)
    """
    return ColumnExpr(name)


def lit(value: Any) -> LiteralExpr:
    """A constant for all rows; operators also accept plain values."""
    return LiteralExpr(value)


def star() -> StarExpr:
    """All columns of the input, in a list of expressions."""
    return StarExpr()


@checked("expr")
def unnest(expr: Expr) -> UnnestExpr:
    """One column per field of a column of structs, in a list of expressions."""
    check_type("expr", expr, Expr, "an expression such as col('a')")
    return UnnestExpr(expr)


@checked()
def download(uri_column_name: str, *, filesystem: pyarrow.fs.FileSystem | None = None) -> DownloadExpr:
    """Download the content of the URIs in a column as bytes; null where that fails.

    Args:
        uri_column_name: The column of paths, or of URIs such as `file://`, `https://` and `s3://`.
        filesystem: The filesystem; derived from each URI by default.
    """
    if filesystem is not None:
        filesystems.wrap(filesystem)  # raises for anything but a filesystem
    return DownloadExpr(uri_column_name, filesystem)


def monotonically_increasing_id() -> MonotonicallyIncreasingIdExpr:
    """Number the rows with increasing integers, with gaps between the parts of a dataset."""
    return MonotonicallyIncreasingIdExpr()


@checked()
def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> RandomExpr:
    """Draw a number from the interval [0, 1) for each row.

    Args:
        seed: Seed of the numbers; without a seed, they differ for every execution.
        reseed_after_execution: Whether each execution of the dataset gives other numbers for the same seed.
    """
    return RandomExpr(seed, reseed_after_execution)


def uuid() -> UUIDExpr:
    """Generate a random UUID (version 4) for each row, as text."""
    return UUIDExpr()
