"""Metrics of your own that say which deployment, replica and application they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skate.serve.context import _get_replica, _get_request
from skate.util import metrics

if TYPE_CHECKING:
    from skate.util._metrics_store import Tags

__all__ = ["Counter", "Gauge", "Histogram"]

RESERVED: Final = ("deployment", "replica", "application")
ROUTE: Final = "route"

_Self = TypeVar("_Self", bound="_TagsOfServe")


class _TagsOfServe(metrics.Metric):
    """Adds the tags of the replica that a metric is made in, and the route of the request it records for."""

    def _add_replica(self) -> None:
        self._own_keys = self._tag_keys
        self._replica_tags: dict[str, str] = {}
        for key in self._tag_keys:
            _check_key(key)
        replica = _get_replica()
        if replica is not None:
            values = (replica.deployment, replica.replica_tag, replica.app_name)
            self._replica_tags = dict(zip(RESERVED, values, strict=True))
            self._tag_keys = (*RESERVED, *self._own_keys)
            self._default_tags = dict(self._replica_tags)

    def set_default_tags(self: _Self, default_tags: Mapping[str, str]) -> _Self:
        """Set the tag values for records that do not give their own.

        Args:
            default_tags: Values for some or all of the declared tag keys; they replace earlier defaults.

        Returns:
            The metric itself.

        Raises:
            ValueError: If a tag key was not declared, or is one that Serve sets.
            TypeError: If a value is no string.
        """
        for key in default_tags:
            _check_key(key)
        return super().set_default_tags({**default_tags, **self._replica_tags})

    def _final_tags(self, tags: Mapping[str, str] | None) -> Tags:
        if ROUTE in self._own_keys and ROUTE not in (tags or {}) and ROUTE not in self._default_tags:
            request = _get_request()
            if request is not None:
                tags = {**(tags or {}), ROUTE: request.full_route}
        return super()._final_tags(tags)

    def _own_defaults(self) -> dict[str, str]:
        return {key: value for key, value in self._default_tags.items() if key not in self._replica_tags}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._description, self._own_keys), self._own_defaults()

    def __setstate__(self, default_tags: dict[str, str]) -> None:
        self.set_default_tags(default_tags)


class Counter(_TagsOfServe, metrics.Counter):
    """Counts something that only grows, as `skate.util.metrics.Counter` does.

    In a replica every record has the tags `deployment`, `replica` and `application`. A declared tag `route` without a
    value gets that of the request that is being answered.

    Args:
        name: Name of the metric.
        description: What it counts.
        tag_keys: The tags that every record must have a value for, besides those.

    Raises:
        ValueError: If a tag is one that Serve sets.
    """

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._add_replica()


class Gauge(_TagsOfServe, metrics.Gauge):
    """Holds the latest of a value that goes up and down, as `skate.util.metrics.Gauge` does.

    Args:
        name: Name of the metric.
        description: What it measures.
        tag_keys: The tags that every record must have a value for, besides those that `Counter` tells of.

    Raises:
        ValueError: If a tag is one that Serve sets.
    """

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._add_replica()


class Histogram(_TagsOfServe, metrics.Histogram):
    """Counts observed values by size, as `skate.util.metrics.Histogram` does.

    Args:
        name: Name of the metric.
        description: What it measures.
        boundaries: The upper limits of the buckets, rising and above zero.
        tag_keys: The tags that every record must have a value for, besides those that `Counter` tells of.

    Raises:
        ValueError: If there are no boundaries, or they are not positive or do not rise, or a tag is one that Serve
            sets.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        metrics.Histogram.__init__(self, name, description, boundaries, tag_keys)
        self._add_replica()

    def __reduce__(self) -> tuple[Any, ...]:
        args = (self._name, self._description, self._boundaries, self._own_keys)
        return type(self), args, self._own_defaults()


def _check_key(key: str) -> None:
    if key in RESERVED:
        raise ValueError(
            f"The tag '{key}' is reserved: Serve sets it in every replica. Use another name for your own."
        )
