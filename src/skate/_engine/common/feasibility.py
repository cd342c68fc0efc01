"""Requests that can never be met: detected when they are made, not by waiting.

Each function returns the reason as the rest of a sentence whose subject is the task, actor or group, and an empty
string for a request that can be met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from skate._engine.common import failures
from skate._engine.common.resources import Pool, Request, to_floats


class Spec(Protocol):
    """The placement and resources that a task or an actor requests."""

    @property
    def node(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def label_choices(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def resources(self) -> Mapping[str, float]: ...


class Group(Protocol):
    """A placement group."""

    @property
    def bundles(self) -> list[dict[str, float]]: ...
    @property
    def requests(self) -> Sequence[Request]: ...
    @property
    def strategy(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def impossible(self) -> str: ...


def why_not_on_node(spec: Spec, node: bytes, labels: Mapping[str, str]) -> str:
    """Return why a task or an actor can never run on the node because of its id or labels."""
    if spec.node and spec.node != node.hex():
        return f"must run on node {spec.node}, which does not exist; this node is {node.hex()}."
    choices = [spec.labels, *spec.label_choices]
    if not any(_match(choice, labels) for choice in choices):
        return f"asks for a node with labels {' or '.join(map(str, choices))}; this node has {labels}."
    return ""


def why_not_in_pool(spec: Spec, request: Request, pool: Pool) -> str:
    """Return why the resources of the node can never meet a request."""
    if pool.could_fit(request):
        return ""
    return failures.cannot_fit(spec.resources, to_floats(pool.total))


def why_not_in_group(group: Group | None, bundle: int, request: Request) -> str:
    """Return why a request can never run in a placement group; `bundle` is -1 for any bundle."""
    if group is None or group.state == "REMOVED":
        return "asks for a placement group that has been removed."
    if group.impossible:
        return f"is in a placement group that can never be reserved: {group.impossible}"
    if bundle >= len(group.requests):
        return f"asks for bundle {bundle} of a placement group with {len(group.requests)} bundles."
    choices = group.requests if bundle < 0 else group.requests[bundle : bundle + 1]
    for choice in choices:
        if all(choice.get(name, 0) >= amount for name, amount in request.items()):
            return ""
    asked = failures.asks_for(to_floats(request))
    return f"{asked}, but no bundle of its placement group has that: {group.bundles}."


def why_not_reserved(
    group: Group, selectors: Sequence[Mapping[str, str]], labels: Mapping[str, str], pool: Pool
) -> str:
    """Return why the node can never reserve a placement group, whose bundles have these label selectors."""
    if group.strategy == "STRICT_SPREAD" and len(group.bundles) > 1:
        return (
            f"STRICT_SPREAD puts each of the {len(group.bundles)} bundles on a node of its own, and this is one "
            "machine. Use SPREAD here, or run on a cluster with the ray engine."
        )
    for selector in selectors:
        if selector and not _match(selector, labels):
            return f"a bundle asks for a node with labels {selector}; this node has {dict(labels)}."
    total = add_requests(group.requests)
    if not pool.could_fit(total):
        return failures.cannot_fit(to_floats(total), to_floats(pool.total))
    return ""


def add_requests(requests: Sequence[Request]) -> dict[str, int]:
    """Return the sum of several requests."""
    total: dict[str, int] = {}
    for request in requests:
        for name, amount in request.items():
            total[name] = total.get(name, 0) + amount
    return total


def _match(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    if not selector:
        return True
    from skate._base.labels import selector_matches  # few programs have labels

    return selector_matches(selector, labels)
