"""Metrics of batched functions."""

from __future__ import annotations

from skate.serve.metrics import Counter, Gauge, Histogram

_MILLISECONDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000, 300_000, 600_000]
_PERCENT = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100]
_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


class BatchMetrics:
    """The metrics of one batched function, under the names that Ray Serve uses.

    Args:
        function_name: The value of the tag `function_name`.
    """

    def __init__(self, function_name: str) -> None:
        keys = ("function_name",)
        tags = {"function_name": function_name}
        self._processed = Counter("serve_batches_processed", "Processed batches.", keys).set_default_tags(
            tags
        )
        self._queued = Gauge("serve_batch_queue_length", "Items that wait for a batch.", keys)
        self._queued.set_default_tags(tags)
        self._waited, self._ran, self._filled, self._held = (
            Histogram(f"serve_{name}", description, boundaries, keys).set_default_tags(tags)
            for name, description, boundaries in (
                ("batch_wait_time_ms", "Time from the first item of a batch to its start.", _MILLISECONDS),
                ("batch_execution_time_ms", "Time from the start of a batch to its end.", _MILLISECONDS),
                ("batch_utilization_percent", "The size of a batch in percent of the maximum.", _PERCENT),
                ("actual_batch_size", "The size of a batch.", _SIZES),
            )
        )

    def started(self, waited: float, size: float, max_size: int, queued: int) -> None:
        """Record the start of a batch: its waiting time in seconds, its size, and the items still queued."""
        self._waited.observe(waited * 1000)
        self._filled.observe(100 * size / max_size)
        self._held.observe(size)
        self._queued.set(queued)

    def ended(self, ran: float) -> None:
        """Record the end of a batch and its running time in seconds."""
        self._processed.inc()
        self._ran.observe(ran * 1000)
