"""The dashboard: a page on the loopback interface that shows what a session does.

Start it with `skate dashboard`, or with `skate.init(include_dashboard=True)`.
"""

from __future__ import annotations

__all__: list[str] = []
