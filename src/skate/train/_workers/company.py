"""Those who train together where Skate has started no workers: this process alone, or the processes of a launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from skate.train._storage.run_folder import Record, Storage
from skate.train._workers.sessions import Place


def _alone(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Company:
    """This process among those that train together.

    Attributes:
        place: Its ranks.
        share: Returns what rank 0 has given, when all have called it.
    """

    place: Place = Place()  # noqa: RUF009  # it is frozen
    share: Callable[[Any], Any] = _alone

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody else."""
        return self.place.world_size == 1

    def storage(self, storage_path: str, name: str, filesystem: Any) -> Storage:
        """Return the run's folder, which is the same for all: it is kept by rank 0."""
        kind = Storage if self.place.world_rank == 0 else _KeptByAnother
        return kind(storage_path, self.share(name), filesystem)


class _KeptByAnother(Storage):
    """The folder of a run that another process keeps: what goes there is this one's part of each checkpoint."""

    keeps = False

    def prepare(self) -> None:
        """Leave it to the other."""

    def drop_strays(self, kept: Iterable[str]) -> None:
        """Leave it to the other."""

    def drop(self, names: Iterable[str]) -> None:
        """Leave it to the other."""

    def write(self, record: Record) -> None:
        """Leave it to the other."""

    def note(self, index: int, rank: int, metrics: dict[str, Any], time: float) -> None:
        """Leave it to the other."""

    def begin_history(self) -> None:
        """Leave it to the other."""
