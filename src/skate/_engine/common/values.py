"""Constants of values that all engines of this machine share."""

from __future__ import annotations

INLINE_LIMIT = 100 * 1024
"""Bytes: a value up to this size travels inside messages; a larger one lies in shared memory."""

# Kinds of generators, in place of a number of results.
STREAMING = -1
DYNAMIC = -2
