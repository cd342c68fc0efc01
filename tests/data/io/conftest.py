from __future__ import annotations

from tests.s3 import bucket, client_libraries, server, store  # noqa: F401  # fixtures: they are used by their names
