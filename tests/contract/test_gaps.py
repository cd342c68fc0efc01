"""The lists of gaps name tests that exist and give reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.gaps import GAPS
from tests.train.gaps import GAPS as GAPS_IN_TRAINING

HERE = Path(__file__).parent
LISTS = [(GAPS, HERE), (GAPS_IN_TRAINING, HERE.parent / "train")]


@pytest.mark.parametrize(("gaps", "folder"), LISTS, ids=["contract", "train"])
def test_every_gap_names_a_test_that_exists(gaps: dict[tuple[str, str], str], folder: Path) -> None:
    for _, name in gaps:
        file, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert re.search(rf"^(async )?def {function}\(", (folder / file).read_text(), re.MULTILINE), name


@pytest.mark.parametrize(("gaps", "folder"), LISTS, ids=["contract", "train"])
def test_every_gap_has_a_reason(gaps: dict[tuple[str, str], str], folder: Path) -> None:
    assert all(reason.strip() for reason in gaps.values())


def test_test_names_are_sentences() -> None:
    for file in HERE.glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE):
            assert name.count("_") >= 3, f"{file.name}::{name}"
