"""Text whose dictionary encoding is known."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa

from skate.data._block import encodings, tables, values


def encoded(items: list[Any]) -> pa.DictionaryArray:
    return pa.array(items, pa.string()).dictionary_encode()


def test_decoded_text_has_its_values() -> None:
    items = ["a", "bc", None, "a", ""]
    text = encodings.decode(encoded(items))
    text.validate(full=True)
    assert text.type == pa.string()
    assert text.to_pylist() == items
    assert text.null_count == 1


def test_the_strings_of_a_slice_share_objects() -> None:
    items = [f"item {number % 3}" for number in range(30)] + [None]
    text = encodings.decode(encoded(items).slice(1))
    for start, stop in ((0, 30), (3, 9), (29, 30)):
        found = encodings.find_strings(text.slice(start, stop - start))
        assert found is not None
        assert found.tolist() == items[1 + start : 1 + stop]
    found = values.to_ndarray(pa.chunked_array([text]))
    assert found[0] is found[3]


def test_an_array_of_strings_belongs_to_its_receiver() -> None:
    text = encodings.decode(encoded(["a", "b", "a"]))
    first = values.to_ndarray(pa.chunked_array([text]))
    first[:] = "changed"
    assert values.to_ndarray(pa.chunked_array([text])).tolist() == ["a", "b", "a"]


def test_only_text_that_was_decoded_here_has_a_known_encoding() -> None:
    text = encodings.decode(encoded(["a", "b", "a"]))
    assert encodings.find_strings(pa.array(["a", "b", "a"])) is None
    assert encodings.find_strings(text.cast(pa.large_string())) is None
    assert encodings.find_strings(text.slice(0, 0)) is None


def test_an_encoding_is_forgotten_with_its_text() -> None:
    block = pa.table({"text": encodings.decode(encoded(["a", "b"]))})
    rest = tables.slice_rows(block, 1, 2)
    del block
    gc.collect()
    before = len(encodings._encodings)
    assert np.array_equal(values.to_ndarray(rest.column("text")), ["b"])
    del rest
    gc.collect()
    assert len(encodings._encodings) == before - 1
