"""Spans of tasks and actor calls: where they are submitted, and where they run.

The class of an engine is chosen when a session starts, and the functions of a worker when they are loaded, so a call
without tracing does not check whether tracing is on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from types import GeneratorType
from typing import Any, TypeVar, cast

from skate._base import tracing
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.ids import worker_id
from skate._base.options import MethodOptions
from skate._engine import holder
from skate._engine.abc import CreatedActor, Engine, Handle, Returns

E = TypeVar("E", bound=Engine)

__all__ = ["choose_class", "traced_engine", "traced_function", "traced_method"]


def choose_class(kind: type[E], metadata: Mapping[str, Any]) -> type[E]:
    """Return the class of a driver's engine; if the metadata of its job names a startup hook, the hook runs first."""
    hook = metadata.get(tracing.HOOK)
    if not hook:
        return kind
    tracing.enable(hook)
    return traced_engine(kind)


@functools.cache
def traced_engine(kind: type[E]) -> type[E]:
    """Return a subclass of an engine that creates a span for each submitted task, actor and call."""

    def submit(engine: E, function: TaskFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returns:
        name, attributes = _describe_task(function.export.module, function.export.name)
        with _submission(engine, name, attributes, kwargs) as carried:
            return kind.submit(engine, function, args, carried)

    def create_actor(
        engine: E, template: ActorTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CreatedActor:
        name, attributes = _describe_method(template.export.name, "__init__")
        with _submission(engine, name, attributes, kwargs) as carried:
            return kind.create_actor(engine, template, args, carried)

    def call(
        engine: E,
        actor: bytes,
        method: MethodInfo,
        options: MethodOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        handle: Handle,
        **settings: Any,
    ) -> Returns:
        name, attributes = _describe_method(handle._ray_class_name, method.name)
        attributes["ray.actor_id"] = actor.hex()
        with _submission(engine, name, attributes, kwargs) as carried:
            return kind.call(engine, actor, method, options, args, carried, handle, **settings)

    def shutdown(engine: E) -> None:
        try:
            kind.shutdown(engine)
        finally:
            tracing.disable()

    members = {
        "submit": submit,
        "create_actor": create_actor,
        "call": call,
        "shutdown": shutdown,
        "__doc__": kind.__doc__,
    }
    return cast("type[E]", type(f"Traced{kind.__name__}", (kind,), members))


def _submission(engine: Engine, name: str, attributes: dict[str, str], kwargs: dict[str, Any]) -> Any:
    tracer = tracing.tracer()
    assert tracer is not None
    return tracer.submission(name, {**attributes, **_describe_process(engine)}, kwargs)


def traced_function(function: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    """Return a task's function with a span for each of its runs; the function itself without tracing."""
    tracer = tracing.tracer()
    return function if tracer is None else _traced(tracer, function, *_describe_task(module, name))


def traced_method(method: Callable[..., Any], class_name: str, name: str) -> Callable[..., Any]:
    """Return an actor's method with a span for each of its calls; the method itself without tracing."""
    tracer = tracing.tracer()
    return method if tracer is None else _traced(tracer, method, *_describe_method(class_name, name))


def _traced(
    tracer: tracing.Tracer, function: Callable[..., Any], name: str, attributes: dict[str, str]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        context = kwargs.pop(tracing.CONTEXT_KEYWORD, None)
        engine = holder.running()
        process = {} if engine is None else _describe_process(engine)
        span = tracer.start_execution(name, {**attributes, **process}, context)
        value = span.run(function, *args, **kwargs)
        if isinstance(value, GeneratorType):
            return span.generate(value)
        if isinstance(value, AsyncGenerator):
            return span.generate_async(value)
        if isinstance(value, Coroutine):
            return span.wait(value)
        span.end()
        return value

    return run


def _describe_task(module: str, name: str) -> tuple[str, dict[str, str]]:
    """Return the name of a task's spans, and the attributes that all of them have."""
    name = f"{module}.{name}"
    return name, {"ray.remote": "function", "ray.function": name}


def _describe_method(class_name: str, method: str) -> tuple[str, dict[str, str]]:
    """Return the name of a method's spans, and the attributes that all of them have."""
    name = f"{class_name}.{method}"
    return name, {
        "ray.remote": "actor",
        "ray.function": name,
        "ray.actor_class": class_name,
        "ray.actor_method": method,
    }


def _describe_process(engine: Engine) -> dict[str, str]:
    """Return the attributes of the process, the task and the actor that a span belongs to."""
    context = engine.context()
    found = {
        "ray.pid": str(os.getpid()),
        "ray.job_id": context.job.hex(),
        "ray.node_id": context.node.hex(),
        "ray.worker_id": worker_id(context.worker),
    }
    if context.task is not None:
        found["ray.task_id"] = context.task.id.hex()
    if context.actor is not None:
        found["ray.actor_id"] = context.actor.id.hex()
    return found
