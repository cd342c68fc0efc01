"""The interface between the API and the engines.

`Engine` is what `skate._engine.current()` returns; everything else here crosses the interface. References call back
into their engine through `skate._base.object_ref.ReferenceOwner`.
"""

from skate._engine.abc.engine import Engine, NativeState, Returns, WaitWatcher
from skate._engine.abc.values import (
    ActorDescription,
    ActorIdentity,
    CreatedActor,
    EngineContext,
    Handle,
    RunningTask,
    Table,
    View,
)

__all__ = [
    "ActorDescription",
    "ActorIdentity",
    "CreatedActor",
    "Engine",
    "EngineContext",
    "Handle",
    "NativeState",
    "Returns",
    "RunningTask",
    "Table",
    "View",
    "WaitWatcher",
]
