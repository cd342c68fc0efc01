"""Wait-for graphs, and their reduction: which waits can never end.

A node of the graph is something that may or may not go on: a process, a task, an object that is not there yet, a
request for resources. The graph is one of the AND-OR model of deadlocks, with three kinds of nodes:

- An *active* node goes on by itself: it runs code, or ends a wait when a time is up.
- A *wait* goes on when at least `need` of the nodes that it waits `on` do. One of several is an OR, all of them an AND.
- A *demand* goes on when a request fits into what is free together with what those of its holders give back that go on.

The reduction is the least fixed point: active nodes go on, and so does every node whose condition those that go on
meet. All others are *stuck*: none of them can go on before another one of them does, so that none ever will. A node
that somebody waits for and that nobody has described counts as active, so that a gap in what is known hides a deadlock
and never invents one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

Key = Hashable
Amounts = Mapping[str, int]


class _Node:
    """One node: what it waits for, and how much of that is missing until it goes on."""

    __slots__ = ("missing", "need", "on", "shares")

    def __init__(
        self, on: Sequence[Key], need: int, missing: dict[str, int], shares: Sequence[Amounts]
    ) -> None:
        self.on = on
        self.need = need
        self.missing = missing  # of a demand: what has yet to be given back
        self.shares = shares  # of a demand: what each of `on` gives back

    def advance(self, position: int) -> bool:
        """Count one of `on` as going on; return whether the node goes on now."""
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
        """Describe a node that goes on by itself."""
        self._nodes[key] = None

    def add_wait(self, key: Key, on: Iterable[Key], need: int = 1) -> None:
        """Describe a node that goes on when `need` of the different nodes in `on` do."""
        self._nodes[key] = _Node(list(dict.fromkeys(on)), need, {}, ())

    def add_demand(
        self, key: Key, request: Amounts, free: Amounts, holders: Sequence[tuple[Amounts, Key]]
    ) -> None:
        """Describe a node that goes on when `request` fits into `free` and what its holders give back."""
        missing = {name: amount - free.get(name, 0) for name, amount in request.items()}
        missing = {name: amount for name, amount in missing.items() if amount > 0}
        relevant = [(held, key) for held, key in holders if any(name in missing for name in held)]
        shares, on = [held for held, _ in relevant], [key for _, key in relevant]
        # Without holders there is nothing to count: the request fits now, or never will.
        self._nodes[key] = _Node(on, 1 if missing else 0, missing, shares)

    def reduce(self) -> set[Key]:
        """Return the nodes that can never go on; nothing may be described afterwards."""
        if self._stuck is not None:
            return self._stuck
        waiting: dict[
            Key, list[tuple[Key, int]]
        ] = {}  # node -> those that wait for it, and where it stands there
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
        """Return the nodes that one waits for."""
        node = self._nodes[key]
        return () if node is None else node.on

    def follow(self, key: Key) -> tuple[list[Key], list[Key]]:
        """Follow stuck nodes from one to the first that it waits for; return the way to a cycle, and the cycle.

        A demand that no holder could meet has no next node: the cycle is empty then.
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
