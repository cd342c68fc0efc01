"""The choice of the engine: by name, environment variable or address."""

from __future__ import annotations

import os

from skate._base import variables
from skate._base.suggestions import did_you_mean

ENGINES = ("inline", "local", "ray")


def choose(engine: str | None, address: str | None) -> tuple[str, str | None]:
    """Return the engine's name, and the address of the node or cluster to attach to, or None.

    Raises:
        ValueError: No engine has the name, or name and address contradict each other.
    """
    name = engine or os.environ.get("SKATE_ENGINE") or None
    if name is not None and name not in ENGINES:
        hint = did_you_mean(str(name), ENGINES)
        raise ValueError(f"There is no engine {name!r}; the engines are {', '.join(ENGINES)}.{hint}")
    address = address or variables.text("ADDRESS")
    if address == "local":
        return name or "local", None
    if address and (address.startswith("ray://") or _is_host_and_port(address)):
        if name not in (None, "ray"):
            raise ValueError(
                f"The address {address!r} is that of a Ray cluster, which the engine {name!r} cannot use."
            )
        return "ray", address
    return name or "local", address


def _is_host_and_port(address: str) -> bool:
    """Return whether an address has the form that the machines of a Ray cluster use: "10.0.0.7:6379"."""
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit() and os.sep not in host
