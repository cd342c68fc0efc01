"""User-defined metrics with the tags of their deployment, replica and application."""

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
    """Add the tags of the replica that creates the metric, and the route of the current request."""

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
            default_tags: Values for some or all of the declared tag keys. They replace earlier defaults.

        Returns:
            The metric itself.

        Raises:
            ValueError: If a tag key is not declared, or is reserved for Serve.
            TypeError: If a value is not a string.
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
    """A counter that only grows, as `skate.util.metrics.Counter`.

    In a replica, every record has the tags `deployment`, `replica` and `application`. A declared tag `route` without a
    value takes the route of the current request.

    Args:
        name: Letters, digits and underscores, not starting with a digit.
        description: Help text that Prometheus shows.
        tag_keys: The tags that every record must set, besides those.

    Raises:
        ValueError: If a tag is reserved for Serve.
    """

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._add_replica()


class Gauge(_TagsOfServe, metrics.Gauge):
    """A gauge that holds the latest value, as `skate.util.metrics.Gauge`.

    Args:
        name: Letters, digits and underscores, not starting with a digit.
        description: Help text that Prometheus shows.
        tag_keys: The tags that every record must set, besides those of `Counter`.

    Raises:
        ValueError: If a tag is reserved for Serve.
    """

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        self._add_replica()


class Histogram(_TagsOfServe, metrics.Histogram):
    """A histogram of observed values, as `skate.util.metrics.Histogram`.

    Args:
        name: Letters, digits and underscores, not starting with a digit.
        description: Help text that Prometheus shows.
        boundaries: The upper limits of the buckets, positive and increasing.
        tag_keys: The tags that every record must set, besides those of `Counter`.

    Raises:
        ValueError: If the boundaries are missing, not positive or not increasing, or a tag is reserved for Serve.
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
        raise ValueError(f"The tag '{key}' is reserved: Serve sets it in every replica. Use another name.")
