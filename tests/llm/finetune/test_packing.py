"""Packing: rows share sequences and do not see each other, and steps are the same for any division."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.llm._finetune.packing import Micro, Plan, collate, divide, pack
from skate.llm._finetune.store import Prepared


def prepared_of(lengths: list[int], *, vocabulary: int = 300) -> Prepared:
    """Return random rows, of which all tokens but the first two are trained."""
    rng = np.random.default_rng(0)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    mask = np.ones(starts[-1], np.bool_)
    for start in starts[:-1]:
        mask[start : start + 2] = False
    rows = np.arange(len(lengths))
    tokens = rng.integers(0, vocabulary, starts[-1], np.int32)
    return Prepared(tokens, mask, starts, rows, rows[:0], 1, {})


def plan_of(prepared: Prepared, **options: Any) -> Plan:
    settings = {
        "capacity": 16,
        "packed": True,
        "micro_batch_size": 1,
        "accumulation": 1,
        "workers": 1,
        "epochs": 2,
        "max_steps": None,
        "seed": 1,
    }
    return Plan(prepared, **{**settings, **options})


@given(st.lists(st.integers(1, 16), min_size=1, max_size=60))
def test_every_row_is_packed_once_and_no_sequence_is_too_long(lengths: list[int]) -> None:
    bins = pack(range(len(lengths)), lengths, 16)
    assert sorted(row for each in bins for row in each) == list(range(len(lengths)))
    assert all(sum(lengths[row] for row in each) <= 16 for each in bins)
    # Two sequences that fit into one would have been joined, so more than half of the space is used.
    assert len(bins) <= 1 or sum(lengths) * 2 > 16 * (len(bins) - 1)


@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4))
def test_a_division_has_every_sequence_once_and_as_many_parts_for_each_worker(
    number: int, size: int, workers: int
) -> None:
    bins = [(i,) for i in range(number)]
    parts = divide(bins, size, workers)
    assert len({len(part) for part in parts}) == 1
    found = [bin_ for part in parts for micro in part for bin_ in micro.bins]
    assert sorted(found) == bins
    assert all(len(micro.bins) <= size for part in parts for micro in part)


def test_steps_are_the_same_for_any_division_of_a_batch() -> None:
    prepared = prepared_of([3, 5, 7, 4, 9, 6, 2, 8, 5, 3, 16, 4])
    options = [(4, 1, 1), (2, 2, 1), (1, 4, 1), (1, 2, 2), (2, 1, 2)]
    plans = [
        plan_of(prepared, micro_batch_size=micro, accumulation=accumulation, workers=workers)
        for micro, accumulation, workers in options
    ]
    assert len({plan.steps for plan in plans}) == 1
    for step in range(plans[0].steps):
        assert len({tuple(plan.step_bins(step)) for plan in plans}) == 1


def test_every_epoch_has_every_row_once_in_another_order() -> None:
    plan = plan_of(prepared_of([3, 5, 7, 4, 9, 6, 2, 8] * 4), micro_batch_size=2)
    epochs: dict[int, list[int]] = {0: [], 1: []}
    for step in range(plan.steps):
        epochs[plan.epoch_of(step)].extend(row for each in plan.step_bins(step) for row in each)
    assert [sorted(rows) for rows in epochs.values()] == [list(range(32))] * 2
    assert epochs[0] != epochs[1]
    assert plan.progress(plan.steps) == 2


def test_a_run_has_at_most_max_steps_and_parts_of_epochs() -> None:
    prepared = prepared_of([16] * 10)
    assert plan_of(prepared, max_steps=3).steps == 3
    assert plan_of(prepared, epochs=0.5).steps == 5
    assert plan_of(prepared, epochs=1.5).steps == 15


def test_labels_are_the_next_tokens_of_the_same_row() -> None:
    prepared = prepared_of([4, 3, 5])
    batch = collate(prepared, Micro(((0, 1), (2,))))
    tokens = prepared.tokens.tolist()
    assert batch["input_ids"].tolist() == [tokens[:7], [*tokens[7:], 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6]]
    ignored = -100
    assert batch["labels"].tolist() == [
        [ignored, tokens[2], tokens[3], ignored, ignored, tokens[6], ignored],
        [ignored, tokens[9], tokens[10], tokens[11], ignored, ignored, ignored],
    ]
    assert int((batch["labels"] != ignored).sum()) == int(prepared.trained().sum())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_loss_of_a_packed_row_is_that_of_the_row_alone(base: Path, attention: str) -> None:
    import torch

    from skate.llm._finetune.base_model import load_base_model
    from skate.llm._finetune.loss import LanguageModelLoss

    module = LanguageModelLoss(load_base_model(str(base), attn_implementation=attention)).eval()
    prepared = prepared_of([9, 7, 5, 11])
    with torch.no_grad():
        alone = [float(module(**collate(prepared, Micro(((row,),))))) for row in range(4)]
        packed = float(module(**collate(prepared, Micro(((0, 1), (2, 3))))))
        flat = float(module(**collate(prepared, Micro(((0, 1), (2, 3))), flat=True)))
    assert packed == pytest.approx(sum(alone), rel=1e-5)
    assert flat == pytest.approx(sum(alone), rel=1e-5)


def test_a_leak_between_packed_rows_is_measured(base: Path) -> None:
    import torch

    from skate.llm._finetune.base_model import load_base_model
    from skate.llm._finetune.loss import LanguageModelLoss
    from skate.llm._finetune.packing import LARGEST_DIFFERENCE, packed_difference

    module = LanguageModelLoss(load_base_model(str(base)))
    device = torch.device("cpu")
    assert packed_difference(module, device) <= 1e-5
    decoder = module._parts[0]
    decoder.register_forward_pre_hook(  # a model that does not heed positions
        lambda _, args, given: (
            args,
            {**given, "position_ids": torch.arange(given["input_ids"].shape[1])[None]},
        ),
        with_kwargs=True,
    )
    assert packed_difference(module, device) > 10 * LARGEST_DIFFERENCE["float32"]
