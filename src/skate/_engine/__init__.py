"""The running engine of this process, and how it is chosen.

The API reaches the engine through `current()`, which starts the default engine at the first call that needs one,
as Ray does. `skate._engine.abc` defines the interface.
"""

from skate._engine.holder import adopt, current, leave, running

__all__ = ["adopt", "current", "leave", "running"]
