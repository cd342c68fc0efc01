"""Fixtures of the chaos tests; those marked `chaos` run only when asked for: `make chaos`.

A run of those ends with a table: cases, attacks, seconds and leftovers of each file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import attacks
from tests.chaos.arena import Arena

HERE = Path(__file__).parent
ATTACKS, LEFTOVERS = "attacks", "leftovers"  # properties of a test's reports

_passed = pytest.StashKey[bool]()


def _is_asked_for(config: pytest.Config) -> bool:
    return "chaos" in (config.option.markexpr or "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_asked_for(config):
        return
    long = [item for item in items if item.path.is_relative_to(HERE) and item.get_closest_marker("chaos")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture(autouse=True)
def attacks_are_counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Note in the test's last report how many attacks it has made."""
    attacks.take()
    yield
    request.node.user_properties.append((ATTACKS, attacks.take()))


@pytest.fixture
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A folder for sessions of its own; leftovers there are removed, and fail a test that has passed."""
    arena = Arena()
    yield arena
    left = arena.leftovers()
    arena.close()
    request.node.user_properties.append((LEFTOVERS, len(left)))
    if left and request.node.stash.get(_passed, False):
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


@dataclass
class Row:
    """The summary of a file."""

    cases: int = 0
    failed: int = 0
    attacks: int = 0
    seconds: float = 0.0
    leftovers: int = 0

    def add(self, report: pytest.TestReport) -> None:
        """Add what a report says of one phase of a test."""
        self.seconds += report.duration
        self.cases += report.when == "call"
        self.failed += report.failed
        if report.when == "teardown":
            counts = dict(report.user_properties)
            self.attacks += int(counts.get(ATTACKS, 0))  # type: ignore[call-overload]
            self.leftovers += int(counts.get(LEFTOVERS, 0))  # type: ignore[call-overload]
            # The watcher of all tests lists each leak on a line of its own.
            self.leftovers += report.longreprtext.count("\n  ") if "leaked:" in report.longreprtext else 0


def summary(reports: list[pytest.TestReport]) -> list[str]:
    """Return the lines of a table with a row for each file."""
    rows: dict[str, Row] = defaultdict(Row)
    for report in reports:
        rows[report.nodeid.partition("::")[0]].add(report)
    width = max(map(len, rows), default=0)
    lines = [f"{'file':{width}}  cases  failed  attacks  seconds  leftovers"]
    for name, row in sorted(rows.items()):
        lines.append(
            f"{name:{width}}  {row.cases:5}  {row.failed:6}  {row.attacks:7}  {row.seconds:7.0f}  {row.leftovers:9}"
        )
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what each file has done to the programs under test."""
    if not _is_asked_for(config):
        return
    known = (report for category in terminalreporter.stats.values() for report in category)
    reports = [each for each in known if isinstance(each, pytest.TestReport)]
    ours = [
        each for each in reports if (config.rootpath / each.nodeid.partition("::")[0]).is_relative_to(HERE)
    ]
    if ours:
        terminalreporter.section("chaos")
        for line in summary(ours):
            terminalreporter.line(line)
