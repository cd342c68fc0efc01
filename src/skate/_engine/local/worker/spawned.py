"""The program of a worker that is spawned instead of forked.

It is run by its path, which every way to start Python accepts, including `uv run`.
"""

import sys

if __name__ == "__main__":
    # Replaces this file's folder, whose modules must not be importable at the top level.
    sys.path[0] = sys.argv[1]
    from skate._engine.local.worker.main import main_of_spawned

    main_of_spawned(sys.argv[2])
