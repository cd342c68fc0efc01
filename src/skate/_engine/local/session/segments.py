"""Names of segments, the files that hold large objects: in shared memory, or on disk."""

from __future__ import annotations

ON_DISK = "disk-"  # begins the name of a segment that lies among the spilled objects


def on_disk(name: str) -> str:
    """Return the segment that is a file with this name among the spilled objects."""
    return ON_DISK + name


def is_on_disk(segment: str) -> bool:
    """Return whether a segment lies on disk."""
    return segment.startswith(ON_DISK)


def file_name(segment: str) -> str:
    """Return the name of the file that a segment is."""
    return segment.removeprefix(ON_DISK)
