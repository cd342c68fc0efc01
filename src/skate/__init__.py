"""Skate: Ray's programming model, embedded in one machine.

>>> import skate
>>> @skate.remote
... def square(x):
...     return x * x
>>> skate.get([square.remote(i) for i in range(4)])
[0, 1, 4, 9]
"""

from typing import TYPE_CHECKING

from skate._version import __version__

if TYPE_CHECKING:
    from skate import actor, exceptions, remote_function, runtime_context
    from skate._api.cluster import available_resources, cluster_resources, get_gpu_ids, nodes, timeline
    from skate._api.logs import logger as logger
    from skate._api.modes import SCRIPT_MODE, WORKER_MODE
    from skate._api.objects import cancel, get, kill, put, wait
    from skate._api.remote import remote
    from skate._api.session import init, is_initialized, shutdown
    from skate._base.generator import DynamicObjectRefGenerator, ObjectRefGenerator
    from skate._base.ids import (
        ActorClassID,
        ActorID,
        FunctionID,
        JobID,
        NodeID,
        PlacementGroupID,
        TaskID,
        UniqueID,
        WorkerID,
    )
    from skate._base.logging_config import LoggingConfig as LoggingConfig
    from skate._base.object_ref import ObjectRef
    from skate._base.object_ref import ObjectRef as ObjectID
    from skate.actor import get_actor, method
    from skate.client_builder import ClientBuilder as ClientBuilder
    from skate.client_builder import client as client
    from skate.cross_language import Language as Language
    from skate.cross_language import java_actor_class as java_actor_class
    from skate.cross_language import java_function as java_function
    from skate.runtime_context import get_runtime_context

# Names are imported at their first use: a node needs few of them, and starts while its driver imports the rest.
_HOMES = {
    "_api.cluster": ("available_resources", "cluster_resources", "get_gpu_ids", "nodes", "timeline"),
    "_api.logs": ("logger",),
    "_api.modes": ("SCRIPT_MODE", "WORKER_MODE"),
    "_api.objects": ("cancel", "get", "kill", "put", "wait"),
    "_api.remote": ("remote",),
    "_api.session": ("init", "is_initialized", "shutdown"),
    "_base.generator": ("DynamicObjectRefGenerator", "ObjectRefGenerator"),
    "_base.ids": (
        *("ActorClassID", "ActorID", "FunctionID", "JobID", "NodeID"),
        *("PlacementGroupID", "TaskID", "UniqueID", "WorkerID"),
    ),
    "_base.logging_config": ("LoggingConfig",),
    "_base.object_ref": ("ObjectRef",),
    "actor": ("get_actor", "method"),
    "client_builder": ("ClientBuilder", "client"),
    "cross_language": ("Language", "java_actor_class", "java_function"),
    "runtime_context": ("get_runtime_context",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = frozenset(
    (
        *("actor", "air", "autoscaler", "client_builder", "cloudpickle", "cross_language", "dag", "data"),
        *("exceptions", "experimental"),
        *("job_config", "job_submission", "llm", "remote_function", "runtime_context", "runtime_env"),
        *("serve", "train", "tune", "types", "util", "widgets"),
    )
)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "ObjectID":
        return __getattr__("ObjectRef")
    if name in _HOME_OF:
        value: object = getattr(import_module(f"skate.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        try:
            return import_module(f"skate.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"skate.{name}":
                raise
    raise AttributeError(f"module 'skate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "SCRIPT_MODE",
    "WORKER_MODE",
    "ActorClassID",
    "ActorID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "__version__",
    "actor",
    "available_resources",
    "cancel",
    "cluster_resources",
    "exceptions",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "remote_function",
    "runtime_context",
    "shutdown",
    "timeline",
    "wait",
]
