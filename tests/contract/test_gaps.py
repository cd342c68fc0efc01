"""The list of gaps names tests that exist and gives reasons."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.gaps import GAPS

HERE = Path(__file__).parent


def test_every_gap_names_a_test_that_exists() -> None:
    for _, name in GAPS:
        file, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert re.search(rf"^(async )?def {function}\(", (HERE / file).read_text(), re.MULTILINE), name


def test_every_gap_has_a_reason() -> None:
    assert all(reason.strip() for reason in GAPS.values())


def test_test_names_are_sentences() -> None:
    for file in HERE.glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE):
            assert name.count("_") >= 3, f"{file.name}::{name}"
