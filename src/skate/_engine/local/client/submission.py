"""Messages of submissions: arguments, templates and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base import ids
from skate._base.exports import ActorTemplate, MethodInfo, TaskFunction
from skate._base.object_ref import ObjectRef
from skate._base.options import MethodOptions
from skate._base.serialization import Serialized, dumps
from skate._engine.common.calls import concurrency_groups, count_of, label_selectors, placement
from skate._engine.common.values import INLINE_LIMIT
from skate._engine.local.client.client import Client
from skate._engine.local.client.task_context import current_task
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import pack


class Packed:
    """Serialized arguments, and the references to keep alive until they are used."""

    __slots__ = ("args_object", "contains", "data", "keep")

    def __init__(self, client: Client, payload: Serialized) -> None:
        self.keep: list[Any] = payload.references
        self.contains: list[bytes] = []
        self.args_object = b""
        if payload.size <= INLINE_LIMIT:
            self.data = payload.to_bytes()
            if payload.references:
                self.contains = client.register_contained(payload)
        else:
            # Large arguments are written to shared memory once and mapped by the callee.
            reference = client.put_serialized(ids.object_id(client.ids.task(), 1), payload)
            self.data = b""
            self.args_object = reference._id
            self.keep = [reference]


def task_template(
    function: TaskFunction, environment: str, submitter: m.TaskTemplate | None
) -> m.TaskTemplate:
    """Return the template of a function with its options, for calls of a submitting task or actor."""
    options = function.options
    retry = options.effective_retry_exceptions
    group, bundle, capture, node = placement(options, submitter)
    labels, choices = label_selectors(options)
    export = function.export
    return m.TaskTemplate(
        function=export.key,
        name=options.name or export.name,
        resources=options.effective_resources,
        num_returns=count_of(options.num_returns, generator=function.is_generator),
        max_retries=options.effective_max_retries,
        retry_exceptions=dumps(retry) if retry else b"",
        environment=environment,
        group=group,
        bundle=bundle,
        capture_children=capture,
        max_calls=options.effective_max_calls,
        backpressure=max(0, options.effective_generator_backpressure_num_objects),
        per_yield=options.effective_num_objects_per_yield,
        labels=labels,
        label_choices=choices,
        node=node,
        events=options.effective_enable_task_events,
        module=export.module,
        qualname=export.name,
    )


def actor_template(
    template: ActorTemplate, environment: str, submitter: m.TaskTemplate | None
) -> m.TaskTemplate:
    """Return the template of an actor's creation by a task or another actor."""
    options = template.options
    group, bundle, capture, node = placement(options, submitter)
    labels, choices = label_selectors(options)
    export = template.export
    return m.TaskTemplate(
        function=export.key,
        name=export.name,
        resources=options.effective_resources,
        environment=environment,
        group=group,
        bundle=bundle,
        capture_children=capture,
        labels=labels,
        label_choices=choices,
        node=node,
        events=options.effective_enable_task_events,
        module=export.module,
        qualname=export.qualname,
    )


def actor_options(
    template: ActorTemplate, namespace: str, metadata: bytes, default_lifetime: str
) -> m.ActorOptions:
    """Return the options that the node and the actor's worker need."""
    options = template.options
    return m.ActorOptions(
        name=options.name or "",
        namespace=options.namespace or namespace,
        detached=(options.lifetime or default_lifetime) == "detached",
        max_restarts=options.effective_max_restarts,
        max_concurrency=options.effective_max_concurrency(is_async=template.is_async),
        is_async=template.is_async,
        groups=concurrency_groups(options),
        get_if_exists=options.effective_get_if_exists,
        out_of_order=bool(options.allow_out_of_order_execution),
        max_pending_calls=options.effective_max_pending_calls,
        max_task_retries=options.effective_max_task_retries,
        events=options.effective_enable_task_events,
        generator_cap=max(0, options.effective_actor_generator_backpressure_num_objects),
        metadata=metadata,
    )


def template_number(client: Client, spec: m.TaskTemplate) -> int:
    """Return the number of a template; equal templates have equal numbers."""
    return client.template(pack(spec), lambda: spec)


def begin_task(client: Client, stray_parent: Callable[[], bytes] | None) -> tuple[bytes, bytes, int]:
    """Return the id of a new task, that of the task that submits it, and its depth.

    `stray_parent` returns the submitting task of threads that user code has started.
    """
    task = client.ids.task()
    running = current_task.get()
    if running is not None:
        running.children.append(task)
        return task, running.task, running.depth + 1
    return task, b"" if stray_parent is None else stray_parent(), 0


def submit_private(
    client: Client, template: int, args: bytes, stray_parent: Callable[[], bytes] | None
) -> ObjectRef[Any]:
    """Submit a task that gets no references; this process keeps its result until others need it."""
    task, parent, depth = begin_task(client, stray_parent)
    reference = client.references.expect_result(task)
    client.channel.submit(template, task, args, parent, depth)
    return reference


_USUAL = {"retry", "window", "per_yield"}


def prepare_call(method: MethodInfo, options: MethodOptions) -> tuple[MethodOptions, int, int, str, bytes]:
    """Return the parts that all calls of a method with these options share."""
    count = count_of(options.num_returns, generator=method.is_generator)
    retry = options.effective_retry_exceptions
    window = max(0, options.effective_generator_backpressure_num_objects)
    rare: dict[str, Any] = {
        "retry": retry,
        "window": window,
        "per_yield": options.effective_num_objects_per_yield,
    }
    if options.name:
        rare["name"] = options.name
    if options.enable_task_events is not None:
        rare["events"] = options.enable_task_events
    plain = not (retry or window or rare.keys() > _USUAL or rare["per_yield"] != 1)
    return options, count, window, options.concurrency_group or "", b"" if plain else dumps(rare)
