"""Threads that show or record what a program does, for the libraries."""

from __future__ import annotations

from skate._base.background_threads import make_background_thread

__all__ = ["make_background_thread"]
