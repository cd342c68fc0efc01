"""The module `ray` in a child process of a program on Skate: it installs the alias and replaces itself."""

import importlib
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))

del sys.modules[__name__]  # else the alias would mistake this module for the real Ray
try:
    import skate.as_ray  # noqa: F401 - importing it turns the alias on
except ModuleNotFoundError as error:
    if error.name != "skate":
        raise
    # The child's environment lacks Skate: `ray` keeps its usual meaning.
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
importlib.import_module(__name__)  # the import system returns that module in place of this one
