"""String functions: `col("name").str`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import checked_methods
from skate.data._expressions.calls import PyArrowComputeUDFExpr, compute
from skate.data._expressions.expr import UNKNOWN
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Callable

    from skate.data._expressions.expr import Expr

_TEXT = DataType(pa.string())
_TRUTH = DataType(pa.bool_())
_COUNT = DataType(pa.int32())


@checked_methods("side")
class StringNamespace:
    """String functions. Further arguments are passed to the underlying function of `pyarrow.compute`.

    >>> from skate.data.expressions import col
    >>> col("name").str.upper()
    UDF(str.upper)
        └── arg[0]: COL('name')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def _call(
        self,
        method: str,
        function: Callable[..., Any],
        *positional: Any,
        _returns: DataType = _TEXT,
        **options: Any,
    ) -> PyArrowComputeUDFExpr:
        return compute(
            f"str.{method}", function, self._expr, positional=positional, returns=_returns, **options
        )

    def len(self) -> PyArrowComputeUDFExpr:
        """Count the characters."""
        return self._call("len", pc.utf8_length, _returns=_COUNT)

    def byte_len(self) -> PyArrowComputeUDFExpr:
        """Count the bytes."""
        return self._call("byte_len", pc.binary_length, _returns=_COUNT)

    def upper(self) -> PyArrowComputeUDFExpr:
        """Convert to upper case."""
        return self._call("upper", pc.utf8_upper)

    def lower(self) -> PyArrowComputeUDFExpr:
        """Convert to lower case."""
        return self._call("lower", pc.utf8_lower)

    def capitalize(self) -> PyArrowComputeUDFExpr:
        """Capitalize the first character and convert the others to lower case."""
        return self._call("capitalize", pc.utf8_capitalize)

    def title(self) -> PyArrowComputeUDFExpr:
        """Capitalize each word."""
        return self._call("title", pc.utf8_title)

    def swapcase(self) -> PyArrowComputeUDFExpr:
        """Swap upper and lower case."""
        return self._call("swapcase", pc.utf8_swapcase)

    def is_alpha(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of letters, at least one."""
        return self._call("is_alpha", pc.utf8_is_alpha, _returns=_TRUTH)

    def is_alnum(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of letters and digits, at least one."""
        return self._call("is_alnum", pc.utf8_is_alnum, _returns=_TRUTH)

    def is_digit(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of digits, at least one."""
        return self._call("is_digit", pc.utf8_is_digit, _returns=_TRUTH)

    def is_decimal(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of decimal digits, at least one."""
        return self._call("is_decimal", pc.utf8_is_decimal, _returns=_TRUTH)

    def is_numeric(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of numeric characters, at least one."""
        return self._call("is_numeric", pc.utf8_is_numeric, _returns=_TRUTH)

    def is_space(self) -> PyArrowComputeUDFExpr:
        """Test whether the text consists of whitespace, at least one character."""
        return self._call("is_space", pc.utf8_is_space, _returns=_TRUTH)

    def is_lower(self) -> PyArrowComputeUDFExpr:
        """Test whether all letters are in lower case, and there is at least one."""
        return self._call("is_lower", pc.utf8_is_lower, _returns=_TRUTH)

    def is_upper(self) -> PyArrowComputeUDFExpr:
        """Test whether all letters are in upper case, and there is at least one."""
        return self._call("is_upper", pc.utf8_is_upper, _returns=_TRUTH)

    def is_title(self) -> PyArrowComputeUDFExpr:
        """Test whether the text is in title case."""
        return self._call("is_title", pc.utf8_is_title, _returns=_TRUTH)

    def is_printable(self) -> PyArrowComputeUDFExpr:
        """Test whether all characters are printable."""
        return self._call("is_printable", pc.utf8_is_printable, _returns=_TRUTH)

    def is_ascii(self) -> PyArrowComputeUDFExpr:
        """Test whether all characters are ASCII."""
        return self._call("is_ascii", pc.string_is_ascii, _returns=_TRUTH)

    def starts_with(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Test whether the text starts with a string; `ignore_case=True` ignores case."""
        return self._call("starts_with", pc.starts_with, pattern, *args, _returns=_TRUTH, **kwargs)

    def ends_with(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Test whether the text ends with a string; `ignore_case=True` ignores case."""
        return self._call("ends_with", pc.ends_with, pattern, *args, _returns=_TRUTH, **kwargs)

    def contains(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Test whether the text contains a string; `ignore_case=True` ignores case."""
        return self._call("contains", pc.match_substring, pattern, *args, _returns=_TRUTH, **kwargs)

    def match(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Test whether the text matches an SQL LIKE pattern, in which `%` is any text and `_` any character."""
        return self._call("match", pc.match_like, pattern, *args, _returns=_TRUTH, **kwargs)

    def match_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Test whether a regular expression matches anywhere in the text."""
        return self._call("match_regex", pc.match_substring_regex, pattern, *args, _returns=_TRUTH, **kwargs)

    def find(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Return the byte offset of the first occurrence of a string; -1 if there is none."""
        return self._call("find", pc.find_substring, pattern, *args, _returns=_COUNT, **kwargs)

    def find_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Return the byte offset of the first match of a regular expression; -1 if there is none."""
        return self._call("find_regex", pc.find_substring_regex, pattern, *args, _returns=_COUNT, **kwargs)

    def count(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Count the occurrences of a string."""
        return self._call("count", pc.count_substring, pattern, *args, _returns=_COUNT, **kwargs)

    def count_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Count the matches of a regular expression."""
        return self._call("count_regex", pc.count_substring_regex, pattern, *args, _returns=_COUNT, **kwargs)

    def reverse(self) -> PyArrowComputeUDFExpr:
        """Reverse the characters."""
        return self._call("reverse", pc.utf8_reverse)

    def slice(self, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Select the characters from `start` to `stop`, exclusive, with a step of `step`."""
        return self._call("slice", pc.utf8_slice_codeunits, *args, **kwargs)

    def replace(self, pattern: str, replacement: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Replace a string with another; `max_replacements=n` limits the number of replacements."""
        return self._call("replace", pc.replace_substring, pattern, replacement, *args, **kwargs)

    def replace_regex(
        self, pattern: str, replacement: str, *args: Any, **kwargs: Any
    ) -> PyArrowComputeUDFExpr:
        r"""Replace the matches of a regular expression; `\1` in the replacement is the first group."""
        return self._call("replace_regex", pc.replace_substring_regex, pattern, replacement, *args, **kwargs)

    def replace_slice(
        self, start: int, stop: int, replacement: str, *args: Any, **kwargs: Any
    ) -> PyArrowComputeUDFExpr:
        """Replace the characters from `start` to `stop`, exclusive."""
        return self._call("replace_slice", pc.utf8_replace_slice, start, stop, replacement, *args, **kwargs)

    def split(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at a separator into a list."""
        return self._call("split", pc.split_pattern, pattern, *args, _returns=UNKNOWN, **kwargs)

    def split_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at the matches of a regular expression into a list."""
        return self._call("split_regex", pc.split_pattern_regex, pattern, *args, _returns=UNKNOWN, **kwargs)

    def split_whitespace(self, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at whitespace into a list."""
        return self._call("split_whitespace", pc.utf8_split_whitespace, *args, _returns=UNKNOWN, **kwargs)

    def extract(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Return the named groups of a regular expression as the fields of a struct; null if there is no match."""
        return self._call("extract", pc.extract_regex, pattern, *args, _returns=UNKNOWN, **kwargs)

    def repeat(self, n: int, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Repeat the text n times."""
        return self._call("repeat", pc.binary_repeat, n, *args, **kwargs)

    def center(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on both sides to a width."""
        return self._call("center", pc.utf8_center, width, padding, *args, **kwargs)

    def lpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on the left to a width."""
        return self._call("lpad", pc.utf8_lpad, width, padding, *args, **kwargs)

    def rpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on the right to a width."""
        return self._call("rpad", pc.utf8_rpad, width, padding, *args, **kwargs)

    def pad(
        self, width: int, fillchar: str = " ", side: Literal["left", "right", "both"] = "right"
    ) -> PyArrowComputeUDFExpr:
        """Pad to a width, on the given side."""
        functions = {"left": pc.utf8_lpad, "right": pc.utf8_rpad, "both": pc.utf8_center}
        if side not in functions:
            raise ValueError(f"str.pad: side must be 'left', 'right' or 'both', got {side!r}")
        return self._call(f"pad_{side}", functions[side], width, fillchar)

    def strip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove whitespace, or the given characters, from both ends."""
        return self._strip("strip", pc.utf8_trim_whitespace, pc.utf8_trim, characters)

    def lstrip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove whitespace, or the given characters, from the start."""
        return self._strip("lstrip", pc.utf8_ltrim_whitespace, pc.utf8_ltrim, characters)

    def rstrip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove whitespace, or the given characters, from the end."""
        return self._strip("rstrip", pc.utf8_rtrim_whitespace, pc.utf8_rtrim, characters)

    def _strip(
        self,
        method: str,
        of_whitespace: Callable[..., Any],
        of_characters: Callable[..., Any],
        characters: str | None,
    ) -> PyArrowComputeUDFExpr:
        if characters is None:
            return self._call(method, of_whitespace)
        return self._call(method, of_characters, characters)
