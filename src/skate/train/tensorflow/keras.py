"""Report callbacks for Keras."""

from __future__ import annotations

import shutil
from typing import Any

from skate.air import _optional
from skate.train._workers import sessions
from skate.train._workers.train_context import report
from skate.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint

_Base: Any = _optional.load("tensorflow", "skate.train.tensorflow.keras").keras.callbacks.Callback

__all__ = ["RayReportCallback", "ReportCheckpointCallback"]

_PHASES = ("epoch", "train", "test", "predict", "train_batch", "test_batch", "predict_batch")
_EVENTS = [f"{phase}_{edge}" for phase in _PHASES for edge in ("begin", "end")]


class RayReportCallback(_Base):  # type: ignore[misc]  # Any: it is optional
    """The base of callbacks that act on some events of Keras.

    Args:
        checkpoint_on: The events at which the model is saved: "epoch_end", "train_end", "train_batch_end", …
        report_metrics_on: The events at which metrics are reported.
        metrics: The names of the metrics to report, or a dict of new names for them; all metrics if not given.

    Raises:
        ValueError: An event is unknown; the error names the known ones.
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

    def _select(self, logs: dict[str, Any]) -> dict[str, Any]:
        if self._metrics is None:
            return dict(logs)
        named = self._metrics if isinstance(self._metrics, dict) else {name: name for name in self._metrics}
        for name in named.values():
            if name not in logs:
                known = ", ".join(map(repr, logs)) or "none"
                raise KeyError(f"cannot report metric {name!r}: the metrics of Keras are {known}")
        return {shown: logs[name] for shown, name in named.items()}


class ReportCheckpointCallback(RayReportCallback):
    """A callback for `model.fit` that reports metrics, and the model as a checkpoint, at some events.

    Args:
        checkpoint_on: The events at which the model is saved: "epoch_end", "train_end", "train_batch_end", …
        report_metrics_on: The events at which metrics are reported.
        metrics: The names of the metrics to report, or a dict of new names for them; all metrics if not given.
    """

    def _handle(self, logs: dict[str, Any], when: str) -> None:
        metrics = self._select(logs) if when in self._report_metrics_on else {}
        if when not in self._checkpoint_on:
            report(metrics)
            return
        # All workers must save, because reading distributed variables is a collective operation; rank 0 reports.
        checkpoint = TensorflowCheckpoint.from_model(self.model)
        try:
            first = sessions.current("ReportCheckpointCallback").ranks.world_rank == 0
            report(metrics, checkpoint=checkpoint if first else None)
        finally:
            shutil.rmtree(checkpoint.path, ignore_errors=True)


def _events(given: str | list[str]) -> list[str]:
    events = [given] if isinstance(given, str) else list(given)
    for event in events:
        if event not in _EVENTS:
            raise ValueError(f"unknown event {event!r}: the events are {', '.join(_EVENTS)}")
    return events
