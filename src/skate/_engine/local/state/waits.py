"""Wait-for graphs, and their reduction to the waits that can never end.

A node of the graph is something that may continue: a process, a task, a pending object, a request for resources. The
graph follows the AND-OR model of deadlocks, with three kinds of nodes:

- An *active* node continues by itself: it runs code, or its wait has a time-out.
- A *wait* continues when at least `need` of the nodes in `on` do. One of several is an OR, all of them an AND.
- A *demand* continues when its request fits into the free resources and those of its holders that continue.

The reduction is the least fixed point: active nodes continue, and so does every node whose condition the continuing
nodes meet. All others are *stuck*: none of them can continue before another one does, so none ever will. A node that
is waited for but not described counts as active, so that missing information hides a deadlock and never invents one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

Key = Hashable
Amounts = Mapping[str, int]


class _Node:
    """One node: what it waits for, and what is missing until it continues."""

    __slots__ = ("missing", "need", "on", "shares")

    def __init__(
        self, on: Sequence[Key], need: int, missing: dict[str, int], shares: Sequence[Amounts]
    ) -> None:
        self.on = on
        self.need = need
        self.missing = missing  # of a demand: the resources to be returned
        self.shares = shares  # of a demand: the resources that each of `on` returns

    def advance(self, position: int) -> bool:
        """Count one of `on` as continuing; return whether the node continues now."""
        if not self.shares:
            self.need -= 1
            return self.need <= 0
        for name, amount in self.shares[position].items():
            if name in self.missing:
                self.missing[name] -= amount
                if self.missing[name] <= 0:
                    del self.missing[name]
        return not self.missing


class Graph:
    """A wait-for graph, described node by node and then reduced."""

    def __init__(self) -> None:
        self._nodes: dict[Key, _Node | None] = {}  # None: active
        self._stuck: set[Key] | None = None

    def __contains__(self, key: Key) -> bool:
        return key in self._nodes

    def add_active(self, key: Key) -> None:
        """Describe a node that continues by itself."""
        self._nodes[key] = None

    def add_wait(self, key: Key, on: Iterable[Key], need: int = 1) -> None:
        """Describe a node that continues when `need` of the different nodes in `on` do."""
        self._nodes[key] = _Node(list(dict.fromkeys(on)), need, {}, ())

    def add_demand(
        self, key: Key, request: Amounts, free: Amounts, holders: Sequence[tuple[Amounts, Key]]
    ) -> None:
        """Describe a node that continues when `request` fits into `free` and the resources that its holders return."""
        missing = {name: amount - free.get(name, 0) for name, amount in request.items()}
        missing = {name: amount for name, amount in missing.items() if amount > 0}
        relevant = [(held, key) for held, key in holders if any(name in missing for name in held)]
        shares, on = [held for held, _ in relevant], [key for _, key in relevant]
        # Without holders, the request fits now, or never will.
        self._nodes[key] = _Node(on, 1 if missing else 0, missing, shares)

    def reduce(self) -> set[Key]:
        """Return the nodes that can never continue; no node may be described afterwards."""
        if self._stuck is not None:
            return self._stuck
        # Node -> the nodes that wait for it, and its positions in them.
        waiting: dict[Key, list[tuple[Key, int]]] = {}
        going = deque(key for key, node in self._nodes.items() if node is None or node.need <= 0)
        moving = set(going)
        for key, node in self._nodes.items():
            for position, other in enumerate(node.on if node is not None else ()):
                waiting.setdefault(other, []).append((key, position))
                if other not in self._nodes and other not in moving:
                    moving.add(other)
                    going.append(other)
        while going:
            for key, position in waiting.get(going.popleft(), ()):
                node = self._nodes[key]
                if key not in moving and node is not None and node.advance(position):
                    moving.add(key)
                    going.append(key)
        self._stuck = self._nodes.keys() - moving
        return self._stuck

    def waited_for(self, key: Key) -> Sequence[Key]:
        """Return the nodes that a node waits for."""
        node = self._nodes[key]
        return () if node is None else node.on

    def follow(self, key: Key) -> tuple[list[Key], list[Key]]:
        """Follow stuck nodes, each to the first that it waits for; return the path to a cycle, and the cycle.

        A demand that no holder could meet has no next node; the cycle is then empty.
        """
        stuck = self.reduce()
        path: list[Key] = []
        seen: dict[Key, int] = {}
        current: Key | None = key
        while current is not None and current not in seen:
            seen[current] = len(path)
            path.append(current)
            node = self._nodes[current]
            current = next((other for other in node.on if other in stuck), None) if node is not None else None
        if current is None:
            return path, []
        return path[: seen[current]], path[seen[current] :]
