"""The tests of Serve that an engine does not pass, with reasons, in the form of `tests/contract/gaps.py`."""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}
