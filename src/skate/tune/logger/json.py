"""Write results as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.air._json import as_json
from skate.tune.logger.logger import LoggerCallback
from skate.tune.result import EXPR_PARAM_FILE

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["JsonLoggerCallback"]


class JsonLoggerCallback(LoggerCallback):
    """Accepted for programs written for Ray: every trial's folder has `params.json` and `result.json` anyway."""

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Replace the configuration in a trial's `params.json`."""
        if trial.local_path is not None:
            text = json.dumps(config, default=as_json)
            Path(trial.local_path, EXPR_PARAM_FILE).write_text(text, encoding="utf-8")
