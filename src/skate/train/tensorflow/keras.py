"""Reports what Keras tells of its progress, and keeps its models."""

from __future__ import annotations

import shutil
from typing import Any

from skate.air import _optional
from skate.train._workers import sessions
from skate.train._workers.context import report
from skate.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint

_Base: Any = _optional.load("tensorflow", "skate.train.tensorflow.keras").keras.callbacks.Callback

__all__ = ["RayReportCallback", "ReportCheckpointCallback"]

_PHASES = ("epoch", "train", "test", "predict", "train_batch", "test_batch", "predict_batch")
_EVENTS = [f"{phase}_{edge}" for phase in _PHASES for edge in ("begin", "end")]


class RayReportCallback(_Base):  # type: ignore[misc]  # Any: it is optional
    """A callback of Keras's that acts on some of its events.

    Args:
        checkpoint_on: The event, or events, at which the model is kept: "epoch_end", "train_end", "train_batch_end", …
        report_metrics_on: Those at which metrics are reported.
        metrics: Names of the metrics to report, or a dict of new names for them; all if not given.

    Raises:
        ValueError: There is no such event; says which there are.
    """

    def __init__(
        self,
        checkpoint_on: str | list[str] = "epoch_end",
        report_metrics_on: str | list[str] = "epoch_end",
        metrics: str | list[str] | dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._checkpoint_on = _events(checkpoint_on)
        self._report_metrics_on = _events(report_metrics_on)
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        for event in {*self._checkpoint_on, *self._report_metrics_on}:
            setattr(self, f"on_{event}", self._handler(event))

    def _handler(self, event: str) -> Any:
        if "batch" in event or "epoch" in event:
            return lambda number, logs=None: self._handle(logs or {}, event)
        return lambda logs=None: self._handle(logs or {}, event)

    def _handle(self, logs: dict[str, Any], when: str) -> None:
        raise NotImplementedError

    def _chosen(self, logs: dict[str, Any]) -> dict[str, Any]:
        if self._metrics is None:
            return dict(logs)
        named = self._metrics if isinstance(self._metrics, dict) else {name: name for name in self._metrics}
        for name in named.values():
            if name not in logs:
                known = ", ".join(map(repr, logs)) or "none"
                raise KeyError(f"there is no metric {name!r} to report: Keras gave {known}")
        return {shown: logs[name] for shown, name in named.items()}


class ReportCheckpointCallback(RayReportCallback):
    """A callback for `model.fit` that reports metrics, and the model as a checkpoint, at events of its training.

    Args:
        checkpoint_on: The event, or events, at which the model is kept: "epoch_end", "train_end", "train_batch_end", …
        report_metrics_on: Those at which metrics are reported.
        metrics: Names of the metrics to report, or a dict of new names for them; all if not given.
    """

    def _handle(self, logs: dict[str, Any], when: str) -> None:
        metrics = self._chosen(logs) if when in self._report_metrics_on else {}
        if when not in self._checkpoint_on:
            report(metrics)
            return
        # All workers save, because variables of several workers are read together; one has the file kept.
        checkpoint = TensorflowCheckpoint.from_model(self.model)
        try:
            first = sessions.current("ReportCheckpointCallback").place.world_rank == 0
            report(metrics, checkpoint=checkpoint if first else None)
        finally:
            shutil.rmtree(checkpoint.path, ignore_errors=True)


def _events(given: str | list[str]) -> list[str]:
    events = [given] if isinstance(given, str) else list(given)
    for event in events:
        if event not in _EVENTS:
            raise ValueError(f"there is no event {event!r}: there are {', '.join(_EVENTS)}")
    return events
