"""`why`: what a task, an actor call or an object waits for."""

from __future__ import annotations

from typing import Any

from skate._base.ids import OBJECT_SIZE, TASK_SIZE, object_id
from skate._base.object_ref import ObjectRef
from skate.util.state._attachment import attached
from skate.util.state.exception import InvalidQueryError


def why(ref: ObjectRef[Any] | str, address: str | None = None) -> str:
    """Explain what a reference waits for, one step to a line, down to the cause.

    Not in Ray.

    Args:
        ref: A reference, or the id of an object or a task in hexadecimal digits.
        address: Of the node; see `list_actors`.

    Returns:
        Text to read.

    >>> import skate
    >>> from skate.util.state import why
    >>> context = skate.init(num_cpus=1)
    >>> print(why(skate.put(1)).partition(" ")[0])
    object
    >>> skate.shutdown()
    """
    subject = _object_id(ref) if isinstance(ref, str) else ref
    if not isinstance(ref, (str, ObjectRef)):
        raise TypeError(f"why() takes an ObjectRef or the id of a task or object, not {type(ref).__name__}")
    with attached(address) as engine:
        lines = engine.why(subject) if isinstance(subject, ObjectRef) else engine.why_by_id(subject)
        if lines is None:
            raise InvalidQueryError(
                f"The {engine.name} engine explains references, not ids: pass the reference."
            )
    return "\n".join(lines)


def _object_id(text: str) -> bytes:
    try:
        id = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidQueryError(f"{text!r} is not an id: ids are hexadecimal digits") from error
    if len(id) == TASK_SIZE:
        id = object_id(id, 1)
    if len(id) != OBJECT_SIZE:
        raise InvalidQueryError(
            f"{text!r} is no id of a task ({2 * TASK_SIZE} digits) or an object ({2 * OBJECT_SIZE} digits)"
        )
    return id
