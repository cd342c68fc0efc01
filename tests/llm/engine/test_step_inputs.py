"""The shapes that steps are padded to, and what padding contains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.llm._engine.step_inputs import InputRow, StepInputs, StepShapes, fill_inputs

BLOCK_SIZE, QUERIES, SPARE_ROW, SPARE_SLOT = 4, 8, 99, 4000


@st.composite
def input_rows(draw: st.DrawFn) -> list[InputRow]:
    """Sequences with blocks of their own."""
    rows = []
    for number in range(draw(st.integers(1, 40))):
        start, count = draw(st.integers(0, 20)), draw(st.integers(1, 24))
        blocks = [100 * number + block for block in range(-(-(start + count) // BLOCK_SIZE))]
        tokens = [1000 * number + index for index in range(count)]
        rows.append(InputRow(number, tokens, start, blocks, samples=draw(st.booleans())))
    return rows


@given(input_rows(), st.booleans())
def test_inputs_contain_each_token_once_and_padding_of_no_sequence(rows: list[InputRow], pads: bool) -> None:
    shapes = StepShapes(40, QUERIES)
    shape = shapes.padded(rows) if pads else shapes.exact(rows)
    assert shape is not None
    array = fill_inputs(
        shape, rows, block_size=BLOCK_SIZE, queries=QUERIES, spare_row=SPARE_ROW, spare_slot=SPARE_SLOT
    )
    assert array.shape == (shape.size,)
    inputs = StepInputs.of(shape, array)

    expected = [
        (token, row.start + index, row.blocks[(row.start + index) // BLOCK_SIZE], row.row)
        for row in rows
        for index, token in enumerate(row.tokens)
    ]
    count = len(expected)
    found = zip(inputs.tokens, inputs.positions, inputs.slots, inputs.token_rows, strict=True)
    for (token, position, slot, row), wanted in zip(list(found)[:count], expected, strict=True):
        assert (token, position, slot // BLOCK_SIZE, row) == wanted
        assert slot % BLOCK_SIZE == position % BLOCK_SIZE
    assert set(inputs.slots[count:]) <= {SPARE_SLOT}
    assert set(inputs.token_rows[count:]) <= {SPARE_ROW}

    computed = []  # by the blocks of queries
    for sequence, start in zip(inputs.block_sequences, inputs.block_starts, strict=True):
        end = min(inputs.starts[sequence] + start + QUERIES, inputs.starts[sequence + 1])
        computed += range(inputs.starts[sequence] + start, end)
    assert sorted(computed) == list(range(count))

    sampling = [row for row in rows if row.samples]
    assert list(inputs.tokens[inputs.last[: len(sampling)]]) == [row.tokens[-1] for row in sampling]
    assert list(inputs.sampling_rows[: len(sampling)]) == [row.row for row in sampling]
    assert set(inputs.sampling_rows[len(sampling) :]) <= {SPARE_ROW}


@given(input_rows())
def test_a_padded_shape_is_one_of_the_few_and_has_room_for_an_empty_sequence(rows: list[InputRow]) -> None:
    shapes = StepShapes(40, QUERIES)
    exact, padded = shapes.exact(rows), shapes.padded(rows)
    assert padded in set(shapes.all())
    assert padded is not None
    assert padded.tokens >= exact.tokens
    assert padded.sequences > exact.sequences
    assert padded.blocks >= exact.blocks


def test_a_large_step_is_not_padded() -> None:
    shapes = StepShapes(4, QUERIES)
    assert shapes.padded([InputRow(0, [1] * 1024, 0, range(256), samples=True)]) is not None
    assert shapes.padded([InputRow(0, [1] * 1025, 0, range(257), samples=True)]) is None


@pytest.mark.parametrize("max_sequences", [1, 31, 32, 500])
def test_every_field_starts_at_a_multiple_of_16_bytes(max_sequences: int) -> None:
    for shape in StepShapes(max_sequences, QUERIES).all():
        assert all(each.start % 4 == 0 for each in shape.slices)
        assert shape.sequences <= max_sequences + 1
