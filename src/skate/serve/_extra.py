"""Says, in place of an ImportError of pydantic, what Serve cannot be imported without."""

from skate.air._optional import require_extra

require_extra("serve", "skate.serve", "pydantic", "starlette")
