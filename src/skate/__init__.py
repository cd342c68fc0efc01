"""Skate: Ray's programming model, embedded in one machine.

>>> import skate
>>> @skate.remote
... def square(x):
...     return x * x
>>> skate.get([square.remote(i) for i in range(4)])
[0, 1, 4, 9]
"""

from skate import actor, exceptions, remote_function, runtime_context
from skate._api.cluster import available_resources, cluster_resources, get_gpu_ids, nodes, timeline
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
from skate._base.object_ref import ObjectRef
from skate._version import __version__
from skate.actor import get_actor, method
from skate.runtime_context import get_runtime_context

ObjectID = ObjectRef

_LAZY = {
    "ClientBuilder": "client_builder",
    "LoggingConfig": "_base.logging_config",
    "client": "client_builder",
}
_SUBMODULES = frozenset(
    (
        "air",
        "client_builder",
        "cloudpickle",
        "dag",
        "data",
        "experimental",
        "job_config",
        "job_submission",
        "llm",
    )
) | frozenset(("runtime_env", "serve", "train", "tune", "types", "util"))


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _LAZY:
        value: object = getattr(import_module(f"skate.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        try:
            return import_module(f"skate.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"skate.{name}":
                raise
    raise AttributeError(f"module 'skate' has no attribute {name!r}")


__all__ = [
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
