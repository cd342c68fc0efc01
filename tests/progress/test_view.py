"""Views: the numbers and lines of running work."""

from __future__ import annotations

import io

import pytest

from skate._api.progress import Bar, Column, Table, View
from skate._api.progress.notebook import to_html
from skate._api.progress.terminal import render_lines

TABLE = Table(
    (Column("step", is_number=False), Column("rows")),
    (("ReadParquet->MapBatches(embed)->Write", "1,000"), ("Sort", "20")),
)


def test_a_bar_knows_its_share_and_the_time_left() -> None:
    bar = Bar(4700, 10_000, "rows", rate=940.0)
    assert bar.share == 0.47
    assert bar.text() == "4,700 of 10,000 rows  940 rows/s  5s left"


def test_a_bar_without_a_total_only_counts() -> None:
    bar = Bar(12, unit="rows", rate=0.5)
    assert bar.share is None
    assert bar.text() == "12 rows  0.5 rows/s"


@pytest.mark.parametrize(("done", "share"), [(12, 1.0), (0, 0.0)])
def test_the_share_stays_between_0_and_1(done: int, share: float) -> None:
    assert Bar(done, 10, "rows").share == share
    assert Bar(done, 10, "rows", rate=0.0).seconds_left is None


def test_a_log_line_is_one_line_without_control_characters() -> None:
    view = View(
        "my\nrun", 64, ("2 workers train",), ("failures: 1",), Bar(1, 4, "trials"), summary="loss 0.5"
    )
    assert view.line() == "my run: 1m 04s, 2 workers train, failures: 1, 1 of 4 trials (25%), loss 0.5"
    assert view.last_line() == "my run: ended after 1m 04s, failures: 1, 1 of 4 trials, loss 0.5"


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_lines_are_narrower_than_the_terminal(columns: int) -> None:
    view = View("a name of some length" * 5, 3, ("fact",) * 20, bar=Bar(1e9, 2e9, "rows", 1e6), table=TABLE)
    lines = render_lines([view], io.StringIO(), columns)
    assert len(lines) == 5
    assert all(width == len(line) < columns for line, width in lines)


def test_a_narrow_terminal_shortens_names_and_keeps_numbers() -> None:
    *_, read, order = (line for line, _ in render_lines([View("dataset", 3, table=TABLE)], io.StringIO(), 24))
    assert "…" in read
    assert read.endswith("  1,000")
    assert order.endswith("  20")


def test_html_escapes_all_texts() -> None:
    row = ("<td>", "&")
    view = View(
        "<a>", 1, ("<b>",), ("<c>",), Bar(1, 2, "<d>"), Table((Column("<e>"), Column("f")), (row,)), "<g>"
    )
    text = to_html(view)
    for name in ("a", "b", "c", "d", "e", "g"):
        assert f"&lt;{name}&gt;" in text
    assert "&lt;td&gt;" in text
    assert '<progress value="0.5000" max="1">' in text
