"""The table at the end of a chaos run."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.chaos.conftest import summary


def report(
    name: str, when: Literal["setup", "call", "teardown"], *, failure: str | None = None, **counts: object
) -> pytest.TestReport:
    outcome: Any = "passed" if failure is None else "failed"
    return pytest.TestReport(
        name, (name, 1, name), {}, outcome, failure, when, duration=1.0, user_properties=list(counts.items())
    )


def test_a_row_adds_up_the_phases_of_all_cases_of_a_file() -> None:
    first, second, other = "tests/chaos/a.py::one", "tests/chaos/a.py::two", "tests/chaos/b.py::one"
    header, one, two = summary(
        [
            report(first, "setup"),
            report(first, "call"),
            report(first, "teardown", attacks=3, leftovers=0),
            report(second, "call", failure="AssertionError"),
            report(second, "teardown", attacks=2, leftovers=1),
            report(other, "call"),
            report(other, "teardown", failure="leaked:\n  process 1\n  thread 2"),
        ]
    )
    assert header.split() == ["file", "cases", "failed", "attacks", "seconds", "leftovers"]
    assert one.split() == ["tests/chaos/a.py", "2", "1", "5", "5", "1"]
    assert two.split() == ["tests/chaos/b.py", "1", "1", "0", "2", "2"]
