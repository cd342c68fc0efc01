"""What `import ray` finds in a child process of a program on Skate: it turns the alias on and steps aside."""

import importlib
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))

del sys.modules[__name__]  # else the alias would take this module for the real Ray
try:
    import skate.as_ray  # noqa: F401 - importing it turns the alias on
except ModuleNotFoundError as error:
    if error.name != "skate":
        raise
    # The child runs in an environment without Skate: `ray` means there what it means without this folder.
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
importlib.import_module(__name__)  # the import system hands that module out in place of this one
