"""The executions of a compiled graph that are in flight or have buffered results.

This is a pure state machine without values and clocks, so that tests can cover every order of events.
"""

from __future__ import annotations

from skate.exceptions import RayCgraphCapacityExceeded


class InflightExecutions:
    """Count executions, which are numbered from 0.

    An execution is in flight from `submit` until one of its results, or of a later execution, is fetched. After that,
    results that have not been retrieved count as buffered.

    Args:
        max_inflight: Maximum number of executions in flight.
        max_buffered: Maximum number of executions with buffered results.
        num_outputs: Number of results per execution.
    """

    def __init__(self, max_inflight: int, max_buffered: int, num_outputs: int) -> None:
        self.max_inflight = max_inflight
        self.max_buffered = max_buffered
        self._num_outputs = num_outputs
        self._submitted = 0
        self._fetched = 0  # executions before this one are no longer in flight
        self._wanted: dict[int, set[int]] = {}

    @property
    def inflight(self) -> int:
        """The number of executions in flight."""
        return self._submitted - self._fetched

    @property
    def buffered(self) -> int:
        """The number of executions with buffered results."""
        return sum(index < self._fetched for index in self._wanted)

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of executions is in flight."""
        return self.inflight >= self.max_inflight

    def check_room(self) -> None:
        """Raise RayCgraphCapacityExceeded if the maximum number of executions is in flight."""
        if self.is_full:
            raise RayCgraphCapacityExceeded(
                f"{self.inflight} executions of the compiled graph are in flight, the most it allows. get() one of "
                "their results first, or raise the limit with "
                "experimental_compile(_max_inflight_executions=...)."
            )

    def submit(self) -> int:
        """Record a new execution and return its index."""
        self.check_room()
        index = self._submitted
        self._submitted += 1
        self._wanted[index] = set(range(self._num_outputs))
        return index

    def check_fetch(self, index: int) -> None:
        """Raise RayCgraphCapacityExceeded if fetching a result would exceed the maximum of buffered results."""
        overtaken = sum(self._fetched <= other <= index for other in self._wanted)
        room = self.max_buffered - self.buffered
        if overtaken > room:
            raise RayCgraphCapacityExceeded(
                f"Fetching this result would buffer those of {self.buffered + overtaken} executions in the driver's "
                f"memory, and the compiled graph allows {self.max_buffered}. get() or await the results in the order "
                "of their executions, or raise the limit with experimental_compile(_max_buffered_results=...)."
            )

    def fetch(self, index: int) -> None:
        """Record that an execution, and all before it, are no longer in flight."""
        self._fetched = max(self._fetched, index + 1)

    def settle(self, index: int, output: int) -> None:
        """Record that a result was retrieved or will never be requested."""
        wanted = self._wanted.get(index, set())
        wanted.discard(output)
        if not wanted:
            self._wanted.pop(index, None)

    def is_over(self, index: int) -> bool:
        """Return whether an execution is no longer in flight and has no results to retrieve."""
        return index < self._fetched and index not in self._wanted

    def find_abandoned(self) -> int | None:
        """Return the oldest execution in flight if none of its results can be requested, else None."""
        if self.inflight and self._fetched not in self._wanted:
            return self._fetched
        return None
