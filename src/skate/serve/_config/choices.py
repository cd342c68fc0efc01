"""The words that an option of Serve may be chosen from."""

from __future__ import annotations

from enum import StrEnum


class AggregationFunction(StrEnum):
    """How measurements within the look-back period become one number."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


class ProxyLocation(StrEnum):
    """Where requests over HTTP and gRPC are taken."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"

    @classmethod
    def _normalize(cls, location: ProxyLocation | str | None) -> ProxyLocation | None:
        """Return the place that a user named; `NoServer` is an older word for `Disabled`."""
        if location is None or isinstance(location, ProxyLocation):
            return location
        if not isinstance(location, str):
            raise TypeError(f"Must be a `ProxyLocation` or str, got: {type(location)} ({location!r}).")
        if location == "NoServer":
            return cls.Disabled
        try:
            return cls(location)
        except ValueError:
            words = ", ".join(repr(each.value) for each in cls)
            raise ValueError(f"{location!r} is not a valid ProxyLocation: use one of {words}.") from None


class GangPlacementStrategy(StrEnum):
    """How the replicas of one gang are spread over nodes."""

    PACK = "PACK"
    SPREAD = "SPREAD"


class GangRuntimeFailurePolicy(StrEnum):
    """What happens to a gang when one of its replicas fails while it serves."""

    RESTART_GANG = "RESTART_GANG"
    RESTART_REPLICA = "RESTART_REPLICA"
