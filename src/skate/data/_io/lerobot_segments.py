"""Divide the episodes of LeRobot datasets into segments: consecutive rows that a task reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skate.data._io.lerobot_metadata import Episode


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of a dataset.

    Attributes:
        root: Number of the dataset.
        start: `index` of the first row.
        stop: End of the rows, exclusive.
        episodes: The episodes of the rows.
    """

    root: int
    start: int
    stop: int
    episodes: tuple[Episode, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    @property
    def data(self) -> list[str]:
        """The Parquet files, in the order of the rows."""
        return list(dict.fromkeys(episode.data for episode in self.episodes))

    @property
    def files(self) -> list[str]:
        """All files: Parquet files, and videos."""
        clips = (clip.file for episode in self.episodes for clip in episode.clips.values())
        return list(dict.fromkeys([*self.data, *clips]))

    def split(self, parts: int) -> list[Segment]:
        """Return segments of about the same number of rows."""
        bounds = [self.start + self.rows * part // parts for part in range(parts + 1)]
        return [
            Segment(self.root, start, stop, _overlapping(self.episodes, start, stop))
            for start, stop in itertools.pairwise(bounds)
            if start < stop
        ]


def select(loaded: list[list[Episode]], wanted: Sequence[int] | None) -> list[list[Episode]]:
    """Return the wanted episodes of each dataset, in the order of their rows."""
    if wanted is not None:
        known = {episode.number for episodes in loaded for episode in episodes}
        chosen = set(wanted)
        missing = sorted(chosen - known)
        if missing:
            raise ValueError(
                f"episodes {missing} are in none of the datasets, which have {len(known)} episodes"
            )
        loaded = [[each for each in episodes if each.number in chosen] for episodes in loaded]
    return [sorted(episodes, key=lambda episode: episode.start) for episodes in loaded]


def segments_of(root: int, episodes: list[Episode], granularity: str) -> Iterator[Segment]:
    """Yield each episode, or each run of episodes whose frames are in the same files."""
    run: list[Episode] = []
    for episode in episodes:
        joins = run and run[-1].stop == episode.start and run[-1].files == episode.files
        if run and not (joins and granularity == "file"):
            yield Segment(root, run[0].start, run[-1].stop, tuple(run))
            run = []
        run.append(episode)
    if run:
        yield Segment(root, run[0].start, run[-1].stop, tuple(run))


def split(segments: Sequence[Segment], parts: int) -> list[Segment]:
    """Split segments in proportion to their numbers of rows, into about as many parts."""
    total = sum(segment.rows for segment in segments)
    found: list[Segment] = []
    done = 0
    for number, segment in enumerate(segments):
        done += segment.rows
        share = round(parts * done / total) - len(found) if total else 1
        # Each segment that follows needs a part too.
        share = min(share, parts - len(found) - (len(segments) - number - 1))
        found += segment.split(max(1, min(share, segment.rows)))
    return found


def _overlapping(episodes: Sequence[Episode], start: int, stop: int) -> tuple[Episode, ...]:
    return tuple(episode for episode in episodes if episode.start < stop and start < episode.stop)
