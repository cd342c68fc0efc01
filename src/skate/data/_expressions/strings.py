"""Functions of text: `col("name").str`."""

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
    """The functions of text. Further arguments are those of the function of `pyarrow.compute` behind each.

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
        """Write in upper case."""
        return self._call("upper", pc.utf8_upper)

    def lower(self) -> PyArrowComputeUDFExpr:
        """Write in lower case."""
        return self._call("lower", pc.utf8_lower)

    def capitalize(self) -> PyArrowComputeUDFExpr:
        """Write the first character in upper case and the others in lower case."""
        return self._call("capitalize", pc.utf8_capitalize)

    def title(self) -> PyArrowComputeUDFExpr:
        """Write the first character of each word in upper case."""
        return self._call("title", pc.utf8_title)

    def swapcase(self) -> PyArrowComputeUDFExpr:
        """Swap upper and lower case."""
        return self._call("swapcase", pc.utf8_swapcase)

    def is_alpha(self) -> PyArrowComputeUDFExpr:
        """Tell whether there are letters only, and at least one."""
        return self._call("is_alpha", pc.utf8_is_alpha, _returns=_TRUTH)

    def is_alnum(self) -> PyArrowComputeUDFExpr:
        """Tell whether there are letters and digits only, and at least one."""
        return self._call("is_alnum", pc.utf8_is_alnum, _returns=_TRUTH)

    def is_digit(self) -> PyArrowComputeUDFExpr:
        """Tell whether there are digits only, and at least one."""
        return self._call("is_digit", pc.utf8_is_digit, _returns=_TRUTH)

    def is_decimal(self) -> PyArrowComputeUDFExpr:
        """Tell whether there are decimal digits only, and at least one."""
        return self._call("is_decimal", pc.utf8_is_decimal, _returns=_TRUTH)

    def is_numeric(self) -> PyArrowComputeUDFExpr:
        """Tell whether there are numeric characters only, and at least one."""
        return self._call("is_numeric", pc.utf8_is_numeric, _returns=_TRUTH)

    def is_space(self) -> PyArrowComputeUDFExpr:
        """Tell whether there is white space only, and some."""
        return self._call("is_space", pc.utf8_is_space, _returns=_TRUTH)

    def is_lower(self) -> PyArrowComputeUDFExpr:
        """Tell whether all letters are in lower case, and there are some."""
        return self._call("is_lower", pc.utf8_is_lower, _returns=_TRUTH)

    def is_upper(self) -> PyArrowComputeUDFExpr:
        """Tell whether all letters are in upper case, and there are some."""
        return self._call("is_upper", pc.utf8_is_upper, _returns=_TRUTH)

    def is_title(self) -> PyArrowComputeUDFExpr:
        """Tell whether each word begins in upper case and goes on in lower case."""
        return self._call("is_title", pc.utf8_is_title, _returns=_TRUTH)

    def is_printable(self) -> PyArrowComputeUDFExpr:
        """Tell whether all characters can be printed."""
        return self._call("is_printable", pc.utf8_is_printable, _returns=_TRUTH)

    def is_ascii(self) -> PyArrowComputeUDFExpr:
        """Tell whether all characters are ASCII."""
        return self._call("is_ascii", pc.string_is_ascii, _returns=_TRUTH)

    def starts_with(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Tell whether the text starts with another; `ignore_case=True` for any case."""
        return self._call("starts_with", pc.starts_with, pattern, *args, _returns=_TRUTH, **kwargs)

    def ends_with(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Tell whether the text ends with another; `ignore_case=True` for any case."""
        return self._call("ends_with", pc.ends_with, pattern, *args, _returns=_TRUTH, **kwargs)

    def contains(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Tell whether another text is in it; `ignore_case=True` for any case."""
        return self._call("contains", pc.match_substring, pattern, *args, _returns=_TRUTH, **kwargs)

    def match(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Tell whether the text is like an SQL pattern, in which `%` is any text and `_` any character."""
        return self._call("match", pc.match_like, pattern, *args, _returns=_TRUTH, **kwargs)

    def match_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Tell whether a regular expression is found in the text."""
        return self._call("match_regex", pc.match_substring_regex, pattern, *args, _returns=_TRUTH, **kwargs)

    def find(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Return at which byte another text first is; -1 if it is not there."""
        return self._call("find", pc.find_substring, pattern, *args, _returns=_COUNT, **kwargs)

    def find_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Return at which byte a regular expression first is found; -1 if it is not."""
        return self._call("find_regex", pc.find_substring_regex, pattern, *args, _returns=_COUNT, **kwargs)

    def count(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Count how often another text is in it."""
        return self._call("count", pc.count_substring, pattern, *args, _returns=_COUNT, **kwargs)

    def count_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Count how often a regular expression is found."""
        return self._call("count_regex", pc.count_substring_regex, pattern, *args, _returns=_COUNT, **kwargs)

    def reverse(self) -> PyArrowComputeUDFExpr:
        """Write the characters in reverse."""
        return self._call("reverse", pc.utf8_reverse)

    def slice(self, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Take the characters from `start` up to, and without, `stop`, every `step`th one."""
        return self._call("slice", pc.utf8_slice_codeunits, *args, **kwargs)

    def replace(self, pattern: str, replacement: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Put one text in place of another; `max_replacements=n` for the first n only."""
        return self._call("replace", pc.replace_substring, pattern, replacement, *args, **kwargs)

    def replace_regex(
        self, pattern: str, replacement: str, *args: Any, **kwargs: Any
    ) -> PyArrowComputeUDFExpr:
        r"""Put a text in place of what a regular expression finds; `\1` in it is the first group."""
        return self._call("replace_regex", pc.replace_substring_regex, pattern, replacement, *args, **kwargs)

    def replace_slice(
        self, start: int, stop: int, replacement: str, *args: Any, **kwargs: Any
    ) -> PyArrowComputeUDFExpr:
        """Put a text in place of the characters from `start` up to, and without, `stop`."""
        return self._call("replace_slice", pc.utf8_replace_slice, start, stop, replacement, *args, **kwargs)

    def split(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at another text into a list."""
        return self._call("split", pc.split_pattern, pattern, *args, _returns=UNKNOWN, **kwargs)

    def split_regex(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at what a regular expression finds into a list."""
        return self._call("split_regex", pc.split_pattern_regex, pattern, *args, _returns=UNKNOWN, **kwargs)

    def split_whitespace(self, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Split at white space into a list."""
        return self._call("split_whitespace", pc.utf8_split_whitespace, *args, _returns=UNKNOWN, **kwargs)

    def extract(self, pattern: str, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Take the named groups of a regular expression as the fields of a record; null if it is not found."""
        return self._call("extract", pc.extract_regex, pattern, *args, _returns=UNKNOWN, **kwargs)

    def repeat(self, n: int, *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Write the text n times."""
        return self._call("repeat", pc.binary_repeat, n, *args, **kwargs)

    def center(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on both sides up to a width."""
        return self._call("center", pc.utf8_center, width, padding, *args, **kwargs)

    def lpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on the left up to a width."""
        return self._call("lpad", pc.utf8_lpad, width, padding, *args, **kwargs)

    def rpad(self, width: int, padding: str = " ", *args: Any, **kwargs: Any) -> PyArrowComputeUDFExpr:
        """Pad on the right up to a width."""
        return self._call("rpad", pc.utf8_rpad, width, padding, *args, **kwargs)

    def pad(
        self, width: int, fillchar: str = " ", side: Literal["left", "right", "both"] = "right"
    ) -> PyArrowComputeUDFExpr:
        """Pad up to a width, on the side named."""
        functions = {"left": pc.utf8_lpad, "right": pc.utf8_rpad, "both": pc.utf8_center}
        if side not in functions:
            raise ValueError(f"str.pad: side must be 'left', 'right' or 'both', got {side!r}")
        return self._call(f"pad_{side}", functions[side], width, fillchar)

    def strip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove white space, or the characters given, from both ends."""
        return self._stripped("strip", pc.utf8_trim_whitespace, pc.utf8_trim, characters)

    def lstrip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove white space, or the characters given, from the start."""
        return self._stripped("lstrip", pc.utf8_ltrim_whitespace, pc.utf8_ltrim, characters)

    def rstrip(self, characters: str | None = None) -> PyArrowComputeUDFExpr:
        """Remove white space, or the characters given, from the end."""
        return self._stripped("rstrip", pc.utf8_rtrim_whitespace, pc.utf8_rtrim, characters)

    def _stripped(
        self,
        method: str,
        of_whitespace: Callable[..., Any],
        of_characters: Callable[..., Any],
        characters: str | None,
    ) -> PyArrowComputeUDFExpr:
        if characters is None:
            return self._call(method, of_whitespace)
        return self._call(method, of_characters, characters)
