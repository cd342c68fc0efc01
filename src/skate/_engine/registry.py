"""Choosing an engine by name, environment or address."""

from __future__ import annotations

import os

from skate._base import variables

ENGINES = ("inline", "local", "ray")
FOUND_BY_NODE = "auto"


def choose(engine: str | None, address: str | None) -> tuple[str, str | None]:
    """Return the engine's name and the address of a running node to attach to, if any.

    Raises:
        ValueError: The name is no engine's, or name and address contradict each other.
    """
    name = engine or os.environ.get("SKATE_ENGINE") or None
    if name is not None and name not in ENGINES:
        import difflib

        close = difflib.get_close_matches(str(name), ENGINES, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"There is no engine {name!r}; the engines are {', '.join(ENGINES)}.{hint}")
    address = address or variables.text("ADDRESS")
    if address == "local":
        return name or "local", None
    if address and (address.startswith("ray://") or _is_host_and_port(address)):
        if name not in (None, "ray"):
            raise ValueError(
                f"The address {address!r} is of a Ray cluster, which the engine {name!r} cannot use."
            )
        return "ray", address
    return name or "local", address


def _is_host_and_port(address: str) -> bool:
    """Tell whether an address is of a Ray cluster's head, as its own machines use it: "10.0.0.7:6379"."""
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit() and os.sep not in host
