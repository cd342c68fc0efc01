"""Report gradient boosting to Tune."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skate.train import Checkpoint
from skate.train._frameworks.boosting import Reports
from skate.tune.trainable.trainable_fn_utils import report


class TrialReports(Reports):
    """Reports rounds to Tune, in a trainable function."""

    def report(self, log: dict[str, Any], save: Callable[[str], object] | None) -> None:
        """Report a round, with the model if `save` is given."""
        values = self.select(log)
        if save is None:
            report(values)
            return
        with tempfile.TemporaryDirectory(prefix="skate_checkpoint_") as folder:
            save(str(Path(folder, self.filename)))
            report(values, checkpoint=Checkpoint.from_directory(folder))
