"""Which executions of a compiled graph are in flight, and whose results are still wanted.

Only counts: it knows neither values nor time, so every order of events is a plain test.
"""

from __future__ import annotations

from skate.exceptions import RayCgraphCapacityExceeded


class InflightExecutions:
    """Keeps count of executions, which are numbered from 0.

    An execution is in flight from `submit` until one of its results, or of a later execution, is fetched.
    From then on, results that are still wanted count as buffered.

    Args:
        max_inflight: How many executions may be in flight.
        max_buffered: How many executions may have buffered results.
        num_outputs: How many results each execution has.
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
        """Say whether one more execution would be too many."""
        return self.inflight >= self.max_inflight

    def check_room(self) -> None:
        """Raise RayCgraphCapacityExceeded when one more execution would be too many."""
        if self.is_full:
            raise RayCgraphCapacityExceeded(
                f"The compiled graph can't have more than {self.max_inflight} in-flight executions, and you "
                f"currently have {self.inflight} in-flight executions. Retrieve an output using ray.get "
                "before submitting more requests or increase `_max_inflight_executions`. "
                "`dag.experimental_compile(_max_inflight_executions=...)`"
            )

    def submit(self) -> int:
        """Count a new execution and return its number."""
        self.check_room()
        index = self._submitted
        self._submitted += 1
        self._wanted[index] = set(range(self._num_outputs))
        return index

    def check_fetch(self, index: int) -> None:
        """Raise RayCgraphCapacityExceeded when fetching a result would leave too many others buffered."""
        overtaken = sum(self._fetched <= other <= index for other in self._wanted)
        room = self.max_buffered - self.buffered
        if overtaken > room:
            raise RayCgraphCapacityExceeded(
                f"The compiled graph can't have more than {self.max_buffered} buffered results, and you "
                f"currently have {self.buffered + max(room, 0)} buffered results. Call `ray.get()` on "
                "CompiledDAGRef's (or await on CompiledDAGFuture's) to retrieve results, or increase "
                "`_max_buffered_results` if buffering is desired, note that this will increase driver "
                "memory usage."
            )

    def fetch(self, index: int) -> None:
        """Count an execution, and all before it, as no longer in flight."""
        self._fetched = max(self._fetched, index + 1)

    def settle(self, index: int, output: int) -> None:
        """Note that a result has been handed out or will never be asked for."""
        wanted = self._wanted.get(index, set())
        wanted.discard(output)
        if not wanted:
            self._wanted.pop(index, None)

    def is_over(self, index: int) -> bool:
        """Say whether an execution is no longer in flight and nobody wants its results."""
        return index < self._fetched and index not in self._wanted

    def abandoned(self) -> int | None:
        """Return the oldest execution in flight if nobody wants its results any more, else None."""
        if self.inflight and self._fetched not in self._wanted:
            return self._fetched
        return None
