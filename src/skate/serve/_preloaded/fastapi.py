"""FastAPI, for replicas of applications that are made with it."""

from __future__ import annotations

from skate.serve._preloaded._installed import load_installed

load_installed("fastapi")
