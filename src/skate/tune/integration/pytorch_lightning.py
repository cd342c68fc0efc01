"""A callback for Lightning that reports to Tune, in a trainable function."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.air import _optional
from skate.train import Checkpoint
from skate.tune.trainable.trainable_fn_utils import report

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]

log = logging.getLogger("skate.tune")

_has_only_older = importlib.util.find_spec("lightning") is None and importlib.util.find_spec(
    "pytorch_lightning"
)
_Callback: Any = _optional.load(
    "pytorch_lightning" if _has_only_older else "lightning.pytorch",
    "skate.tune.integration.pytorch_lightning",
).Callback
_EVENTS = sorted(name.removeprefix("on_") for name in dir(_Callback) if name.startswith("on_"))


class TuneReportCheckpointCallback(_Callback):  # type: ignore[misc]  # Any: it is optional
    """A callback for Lightning's `Trainer` that reports the logged metrics, with a checkpoint, to Tune.

    Args:
        metrics: The names of the metrics to report, or a dictionary of new names and names; all metrics by default.
        filename: The file in a checkpoint, for `trainer.fit(…, ckpt_path=…)`.
        save_checkpoints: Whether reports have a checkpoint.
        on: The event after which to report, such as "validation_end" or "train_epoch_end", or several.

    Raises:
        ValueError: Lightning has no such event.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__()
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        self._filename = filename
        self._saves = save_checkpoints
        for event in [on] if isinstance(on, str) else on:
            if event not in _EVENTS:
                raise ValueError(
                    f"`on` has {event!r}, which is not an event of Lightning.{did_you_mean(event, _EVENTS)} "
                    f"Choose from {_EVENTS}."
                )
            setattr(self, f"on_{event}", self._report)

    def _report(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.sanity_checking:
            return  # of the validation, before the training
        metrics = self._select({name: value.item() for name, value in trainer.callback_metrics.items()})
        if not metrics:
            return
        if not self._saves:
            report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="skate_checkpoint_") as folder:
            trainer.save_checkpoint(str(Path(folder, self._filename)))
            report(metrics, checkpoint=Checkpoint.from_directory(folder))

    def _select(self, logged: dict[str, Any]) -> dict[str, Any]:
        if not self._metrics:
            return logged
        wanted = self._metrics
        names = dict(wanted) if isinstance(wanted, Mapping) else {name: name for name in wanted}
        missing = [name for name in names.values() if name not in logged]
        if missing:
            log.warning("the module has not logged %s; it has logged %s", missing, sorted(logged))
        return {shown: logged[name] for shown, name in names.items() if name in logged}


class TuneReportCallback(TuneReportCheckpointCallback):
    """The older form of `TuneReportCheckpointCallback(save_checkpoints=False)`."""

    def __init__(
        self,
        metrics: str | Sequence[str] | Mapping[str, str] | None = None,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        warnings.warn(
            "TuneReportCallback is deprecated: use TuneReportCheckpointCallback(save_checkpoints=False)",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(metrics, save_checkpoints=False, on=on)
