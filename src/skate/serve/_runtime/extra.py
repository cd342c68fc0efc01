"""Checks that the packages of the extra `serve` are installed.

Ray's Serve imports `starlette.requests`, and programs written for it rely on `import starlette` alone. This module
imports it for such programs only, because the import is slow.
"""

import sys

from skate.air._optional import require_extra

require_extra("serve", "skate.serve", "pydantic", "starlette")

if not sys.modules.keys().isdisjoint(("ray", "starlette")):
    import starlette.requests  # noqa: F401  # sets the attribute of the package
