"""The table of a run, and what is wrong with it: failures without a reason, and reasons without a failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.compat.ray_documentation.reasons import CLASSES, Reason
from tests.compat.ray_documentation.running import Outcome

COLUMNS = ("area", "examples", "passed", *CLASSES, "unexplained", "share", "not run by Ray")


def table(outcomes: Iterable[Outcome], reasons: Mapping[str, Reason]) -> str:
    """Return a table with a row for each area, and for all of them.

    The share is that of the examples which pass among those which one machine can run: all but `needs` and `ray`.
    Examples that the page itself skips are not among the examples: Ray does not run them either.
    """
    outcomes = list(outcomes)
    areas = list(dict.fromkeys(outcome.area for outcome in outcomes))
    rows = [row(area, [outcome for outcome in outcomes if outcome.area == area], reasons) for area in areas]
    if len(areas) > 1:
        rows.append(row("all", outcomes, reasons))
    widths = [max(len(line[at]) for line in (COLUMNS, *rows)) for at in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in (COLUMNS, *rows)
    )


def row(area: str, outcomes: list[Outcome], reasons: Mapping[str, Reason]) -> tuple[str, ...]:
    """Return the cells of an area."""
    run = [outcome for outcome in outcomes if outcome.state != "skipped by the page"]
    passed = sum(outcome.state == "passed" for outcome in run)
    counts = dict.fromkeys((*CLASSES, "unexplained"), 0)
    for outcome in run:
        if outcome.state != "passed":
            reason = reasons.get(outcome.id)
            counts[reason.kind if reason else "unexplained"] += 1
    runnable = len(run) - counts["needs"] - counts["ray"]
    share = f"{100 * passed / runnable:.1f} %" if runnable else "-"
    numbers = (len(run), passed, *counts.values())
    return area, *map(str, numbers), share, str(len(outcomes) - len(run))


def faults(outcomes: Iterable[Outcome], reasons: Mapping[str, Reason], *, is_whole: bool) -> Iterator[str]:
    """Yield what does not agree between a run and the reasons.

    Args:
        is_whole: Whether the run was one of all examples, so that each reason must have its example.
    """
    seen = set()
    for outcome in outcomes:
        seen.add(outcome.id)
        reason = reasons.get(outcome.id)
        if outcome.state == "passed" and reason is not None:
            yield f"{outcome.id} passes, and has a reason not to: {reason.text}"
        elif outcome.state not in ("passed", "skipped by the page") and reason is None:
            yield f"{outcome.id} has no reason: {outcome.state}: {outcome.detail}"
    if is_whole:
        for id, reason in reasons.items():
            if id not in seen:
                yield f"there is no example {id}, and a reason for it: {reason.text}"
