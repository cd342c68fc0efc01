"""What a plan is, and what it has done, in words."""

from __future__ import annotations

from skate.data._dataset.base import PlanHolder
from skate.data._exec.items import fetch_rows
from skate.data._execution import Execution
from skate.data._plan import explain
from skate.data._stats import stats_text


class ExplainMethods(PlanHolder):
    """The part of a dataset's API that explains."""

    def explain(self) -> None:
        """Print the plan as it was written, and as it will run, with what is known of its size."""
        print(explain.explained(self._node, self._context))  # noqa: T201  # that is what the user asks for

    def stats(self) -> str:
        """Return what the latest run has done, as text: rows, bytes, and where the time went, for each step."""
        if self._last is None or self._last.begun is None:
            return (
                "The dataset has not been executed yet: stats are there once somebody has taken rows from it."
            )
        return stats_text(self._last)

    def dead_letters(self) -> object:
        """Return the rows that the latest run has left out because user code failed, as a dataset.

        Each row has the columns `row` (what the function got), `step`, `error_type`, `error` and `traceback`. Steps
        with `on_error="dead_letter"` keep them.
        """
        from skate.data.dataset import materialized

        last: Execution | None = self._last
        blocks = [] if last is None else [fetch_rows(item) for item in last.dead_letters]
        return materialized(blocks, self._context)
