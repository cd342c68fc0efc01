"""The location of the package on disk."""

from __future__ import annotations

import os

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORT_ROOT = os.path.dirname(PACKAGE)  # the entry of `sys.path` that contains the package
