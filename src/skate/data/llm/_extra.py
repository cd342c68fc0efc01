"""Report missing dependencies of `skate.data.llm`, instead of an ImportError of pydantic."""

from skate.air._optional import require_extra

require_extra("llm", "skate.data.llm", "pydantic")
