"""The names of segments: files that hold large objects, in shared memory or on disk."""

from __future__ import annotations

ON_DISK = "disk-"  # prefix of a segment among the spilled objects


def on_disk(name: str) -> str:
    """Return the name of the segment for a file among the spilled objects."""
    return ON_DISK + name


def is_on_disk(segment: str) -> bool:
    """Return whether a segment lies on disk."""
    return segment.startswith(ON_DISK)


def file_name(segment: str) -> str:
    """Return the file name of a segment."""
    return segment.removeprefix(ON_DISK)
