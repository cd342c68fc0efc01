"""What has to be installed, or imported, before Serve: an error names the missing extra.

Ray's Serve imports `starlette.requests`, and programs written for it say `import starlette` alone. It is imported here
for those programs only, since it takes longer than a good part of Serve.
"""

import sys

from skate.air._optional import require_extra

require_extra("serve", "skate.serve", "pydantic", "starlette")

if not sys.modules.keys().isdisjoint(("ray", "starlette")):
    import starlette.requests  # noqa: F401  # it is imported for the attribute of its package
