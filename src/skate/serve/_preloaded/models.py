"""Imports of the configuration models."""

from __future__ import annotations

import skate.serve.config  # noqa: F401  # for its import of pydantic
