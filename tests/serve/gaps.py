"""Where Serve on an engine falls short, and why: as `tests/contract/gaps.py` has it for the engines themselves."""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}
