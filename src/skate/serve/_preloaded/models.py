"""The models of configurations, for those who have to do with one."""

from __future__ import annotations

import skate.serve.config  # noqa: F401  # for its import of pydantic
