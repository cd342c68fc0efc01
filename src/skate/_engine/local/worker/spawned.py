"""The program of a worker that is started from nothing instead of being forked.

It is run by its path, because that is what every way to start Python takes, `uv run` among them.
"""

import sys

if __name__ == "__main__":
    sys.path[0] = sys.argv[1]  # in place of this file's folder, whose modules are not the program's
    from skate._engine.local.worker.main import main_of_spawned

    main_of_spawned(sys.argv[2])
