"""The dictionary encoding of text that this process has decoded, so that it is not computed again.

A reader gets text whose values repeat as dictionary and indices, and passes it on as plain text. A conversion to Python
strings needs both again, to create one object per value and not one per row.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


class _Encoding:
    """The encoding of one array of text; the buffer of its offsets owns it, so it lives as long as the text."""

    __slots__ = ("__weakref__", "_encoded", "_strings", "offsets")

    def __init__(self, offsets: pa.Buffer, encoded: pa.DictionaryArray) -> None:
        self.offsets = offsets
        self._encoded = encoded
        self._strings: npt.NDArray[np.object_] | None = None

    def strings(self, start: int, rows: int) -> npt.NDArray[np.object_]:
        """Return some of the rows as strings."""
        if self._strings is None:
            # The last one stands for null.
            self._strings = np.array([*self._encoded.dictionary.to_pylist(), None], dtype=np.object_)
        indices = self._encoded.indices.slice(start, rows)
        if indices.null_count:
            indices = pc.fill_null(indices, len(self._strings) - 1)
        found: npt.NDArray[np.object_] = self._strings[indices.to_numpy()]
        return found


_encodings: WeakValueDictionary[int, _Encoding] = WeakValueDictionary()  # by the address of the offsets


def decode(encoded: pa.DictionaryArray) -> pa.Array:
    """Return dictionary-encoded text as plain text, and remember the encoding."""
    text = encoded.cast(pa.string())
    if text.offset:
        return text
    validity, offsets, data = text.buffers()
    encoding = _Encoding(offsets, encoded)
    owned = pa.foreign_buffer(offsets.address, offsets.size, encoding)
    _encodings[offsets.address] = encoding
    return pa.Array.from_buffers(pa.string(), len(text), [validity, owned, data], text.null_count)


def find_strings(text: pa.Array) -> npt.NDArray[np.object_] | None:
    """Return text, or a slice of it, as strings in which equal values are one object, if its encoding is known."""
    if text.type != pa.string() or not len(text):
        return None
    encoding = _encodings.get(text.buffers()[1].address)
    return None if encoding is None else encoding.strings(text.offset, len(text))
