"""Finding an actor of a node by its name or its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skate._base.suggestions import nearest

__all__ = ["ActorLookupError", "find_actor"]

_SHOWN = 5  # the most actors in an error message


class ActorLookupError(LookupError):
    """No living actor has the name or the id, or several have it."""


def find_actor(
    rows: Sequence[dict[str, Any]], name_or_id: str, namespace: str | None = None
) -> dict[str, Any]:
    """Return the row of the living actor with a name or an id.

    Args:
        rows: The node's table of actors.
        name_or_id: The name, or the id as hexadecimal digits.
        namespace: The namespace of the name; None for any.

    Raises:
        ActorLookupError: There is no such actor, or there are several.
    """
    for row in rows:
        if row["actor_id"].hex() == name_or_id:
            if row["state"] == "DEAD":
                raise ActorLookupError(f"The actor {_describe(row)} has already died.")
            return row
    living = [row for row in rows if row["state"] != "DEAD"]
    named = [row for row in living if row["name"] == name_or_id]
    found = [row for row in named if namespace in (None, row["namespace"])]
    if len(found) == 1:
        return found[0]
    if found:
        raise ActorLookupError(
            f"{len(found)} actors have the name {name_or_id!r}: {_listed(found)}. "
            "Select one by its namespace or its id."
        )
    if named:
        raise ActorLookupError(
            f"The namespace {namespace!r} has no living actor with the name {name_or_id!r}, but there is "
            f"{_listed(named)}."
        )
    raise ActorLookupError(_unknown(living, name_or_id))


def _unknown(living: Sequence[dict[str, Any]], text: str) -> str:
    about = f"No living actor has the name or the id {text!r}."
    same_class = [row for row in living if row["class_name"] == text]
    if same_class:
        return f"{about} Actors of the class {text!r} are {_listed(same_class)}."
    names = nearest(text, sorted({row["name"] for row in living if row["name"]}))
    if names:
        return f"{about} Did you mean {' or '.join(map(repr, names))}?"
    return f"{about} `skate list actors` shows all actors."


def _listed(rows: Sequence[dict[str, Any]]) -> str:
    left = len(rows) - _SHOWN
    return ", ".join(map(_describe, rows[:_SHOWN])) + (f" and {left} more" if left > 0 else "")


def _describe(row: dict[str, Any]) -> str:
    id = row["actor_id"].hex()
    return f"{row['name']!r} in the namespace {row['namespace']!r} ({id})" if row["name"] else id
