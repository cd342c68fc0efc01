"""What may stand in `RunConfig(callbacks=[…])`."""

from __future__ import annotations

from typing import Any


class RunCallback:
    """Is told what happens to a run; a library says of what, and when."""

    def _run_ended(self, run_context: Any, error: BaseException | None) -> None:
        """The run has finished, or has ended with an error."""
