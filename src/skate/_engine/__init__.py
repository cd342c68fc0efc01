"""The running engine of this process, and how one is chosen.

`current()` is what everything above uses: it returns the running engine and starts the default one
when there is none, as Ray does at the first call that needs it.
"""

from skate._engine.holder import adopt, current, leave, running

__all__ = ["adopt", "current", "leave", "running"]
