"""The pydantic models of configurations."""

from __future__ import annotations

import skate.serve.config  # noqa: F401  # imports pydantic
