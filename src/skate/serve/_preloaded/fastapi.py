"""FastAPI, for replicas of FastAPI applications."""

from __future__ import annotations

from skate.serve._preloaded._installed import load_installed

load_installed("fastapi")
