"""The worker group of a run for which Skate starts no workers: this process, or the processes of a launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from skate.train._storage.run_folder import RunRecord, Storage
from skate.train._workers.sessions import Ranks


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class LocalWorkerGroup:
    """This process as a member of a group that Skate did not start.

    Attributes:
        ranks: The ranks of this process.
        broadcast: Returns the argument of rank 0, once every process has called it.
    """

    ranks: Ranks = Ranks()  # noqa: RUF009  # it is frozen
    broadcast: Callable[[Any], Any] = _identity

    @property
    def is_alone(self) -> bool:
        """Whether this process is the only one."""
        return self.ranks.world_size == 1

    def storage(
        self, storage_path: str, name: str, filesystem: Any, first_checkpoint: int | None = None
    ) -> Storage:
        """Return the run's folder, the same in every process; only rank 0 writes the run's record there."""
        kind = Storage if self.ranks.world_rank == 0 else _SecondaryStorage
        return kind(storage_path, self.broadcast(name), filesystem, first_checkpoint)


class _SecondaryStorage(Storage):
    """The run's folder as ranks other than 0 use it: they only add their parts of checkpoints."""

    is_primary = False

    def prepare(self) -> None:
        """Do nothing: rank 0 does."""

    def drop_incomplete(self, kept: Iterable[str]) -> None:
        """Do nothing: rank 0 does."""

    def drop(self, names: Iterable[str]) -> None:
        """Do nothing: rank 0 does."""

    def write(self, record: RunRecord) -> None:
        """Do nothing: rank 0 does."""

    def append_history(self, index: int, rank: int, metrics: dict[str, Any], time: float) -> None:
        """Do nothing: rank 0 does."""

    def resume_history(self) -> None:
        """Do nothing: rank 0 does."""
