"""Metrics of multiplexed models."""

from __future__ import annotations

from skate.serve.metrics import Counter, Gauge, Histogram

_MILLISECONDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000, 300_000, 600_000]


class ModelMetrics:
    """The metrics of multiplexed models, under the names that Ray Serve uses."""

    def __init__(self) -> None:
        self._count = Gauge("serve_num_multiplexed_models", "Models that are loaded or being loaded.")
        self._loads = Counter("serve_multiplexed_models_load_counter", "Models that were loaded.")
        self._unloads = Counter("serve_multiplexed_models_unload_counter", "Models that were unloaded.")
        self._load_time = Histogram(
            "serve_multiplexed_model_load_latency_ms", "Time to load a model.", _MILLISECONDS
        )
        self._unload_time = Histogram(
            "serve_multiplexed_model_unload_latency_ms", "Time to unload a model.", _MILLISECONDS
        )

    def count(self, models: int) -> None:
        """Record the current number of models."""
        self._count.set(models)

    def was_loaded(self, seconds: float) -> None:
        """Record that a model was loaded."""
        self._loads.inc()
        self._load_time.observe(seconds * 1000)

    def was_unloaded(self, seconds: float) -> None:
        """Record that a model was unloaded."""
        self._unloads.inc()
        self._unload_time.observe(seconds * 1000)
