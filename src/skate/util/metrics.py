"""Counters, gauges and histograms recorded by tasks, actors and the driver, for Prometheus."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skate.util._metrics_store import Family, Kind, Tags, store

if TYPE_CHECKING:
    from skate.util._metrics_export import MetricsServer

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "prometheus_text", "start_server"]

PREFIX: Final = "skate_"
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

_Self = TypeVar("_Self", bound="Metric")


class Metric:
    """Base class of counters, gauges and histograms.

    Args:
        name: Letters, digits and underscores, not starting with a digit. Any other name causes a warning, and the
            records of the metric are discarded.
        description: Help text that Prometheus shows.
        tag_keys: Tags that every record must have a value for, given or by default.

    Raises:
        TypeError: If the name or the description is not a string, or `tag_keys` is not a tuple of strings.
        ValueError: If the name is empty.
    """

    _kind: Kind = "gauge"

    def __init__(
        self,
        name: str,
        description: str = "",
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        for role, text in (("name", name), ("description", description)):
            if not isinstance(text, str):
                raise TypeError(f"{role} must be a str, got {text!r}.")
        if not name:
            raise ValueError("A metric needs a name, and got an empty one.")
        keys = () if tag_keys is None else tag_keys
        if not isinstance(keys, tuple):
            raise TypeError(f"tag_keys must be a tuple of strings, got {keys!r}.")
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"Tag keys must be str, got {type(key)}.")
        level = 2 if type(self).__init__ is Metric.__init__ else 3
        self._discard = _NAME.fullmatch(name) is None
        if self._discard:
            warnings.warn(
                f"Invalid metric name: {name}. Its records are discarded. "
                "Use letters, digits and underscores, and do not start with a digit.",
                stacklevel=level,
            )
        elif ":" in name:
            warnings.warn(
                f"Metric name {name} contains a colon, which Prometheus reserves for recording rules; "
                "use an underscore.",
                FutureWarning,
                stacklevel=level,
            )
        self._name = name
        self._description = description
        self._tag_keys = keys
        self._default_tags: dict[str, str] = {}
        self._family = Family(self._kind, name, description)

    def set_default_tags(self: _Self, default_tags: Mapping[str, str]) -> _Self:
        """Set default tag values for records.

        Args:
            default_tags: Values for some or all of the declared tag keys; they replace earlier defaults.

        Returns:
            The metric itself.

        Raises:
            ValueError: If a tag key was not declared.
            TypeError: If a value is not a string.
        """
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}. The declared keys are: {self._tag_keys}.")
            _check_tag_value(value)
        self._default_tags = dict(default_tags)
        return self

    @property
    def info(self) -> dict[str, Any]:
        """The name, description, tag keys and default tags of this metric."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._default_tags),
        }

    def _final_tags(self, tags: Mapping[str, str] | None) -> Tags:
        """Return the default and given tags, sorted, after checking that they are complete."""
        final = self._default_tags
        if tags:
            if type(tags) is not dict and not isinstance(tags, Mapping):
                raise TypeError(f"tags must be a dict of str to str, got {tags!r}.")
            final = {**final, **tags}
            for value in final.values():
                if type(value) is not str:
                    _check_tag_value(value)
        for key in self._tag_keys:
            if key not in final:
                missing = [key for key in self._tag_keys if key not in final]
                raise ValueError(f"Missing value for tag key(s): {','.join(missing)}.")
        return tuple(sorted(final.items())) if len(final) > 1 else tuple(final.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._description, self._tag_keys), self._default_tags

    def __setstate__(self, default_tags: dict[str, str]) -> None:
        self._default_tags = default_tags

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, tag_keys={self._tag_keys!r})"


class Counter(Metric):
    """A counter, which only increases. Prometheus shows it with the suffix ``_total``.

    Args:
        name: See `Metric`.
        description: Help text that Prometheus shows.
        tag_keys: Tags that every record must have a value for.

    Example:
        >>> requests = Counter("requests", description="Answered requests.", tag_keys=("route",))
        >>> requests.inc(tags={"route": "/"})
        >>> requests.inc(2, {"route": "/"})
        >>> 'skate_requests_total{route="/"} 3.0' in prometheus_text()
        True
    """

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Increase the counter.

        Args:
            value: The amount, greater than zero.
            tags: Tag values, which override the defaults. Undeclared keys are kept too.

        Raises:
            TypeError: If the value is not a number, or a tag value is not a string.
            ValueError: If the value is not positive or a declared tag has no value.
        """
        _check_number(value)
        if not value > 0:
            raise ValueError(f"value must be >0, got {value}")
        final = self._final_tags(tags)
        if not self._discard:
            store.increment(self._family, final, value)


class Gauge(Metric):
    """A gauge, which holds the latest value. Each process has its own, distinguished by a ``pid`` tag.

    Args:
        name: See `Metric`.
        description: Help text that Prometheus shows.
        tag_keys: Tags that every record must have a value for.
    """

    _kind = "gauge"

    def set(self, value: float | None, tags: Mapping[str, str] | None = None) -> None:
        """Set the gauge.

        Args:
            value: The new value; None leaves the gauge unchanged.
            tags: Tag values, which override the defaults. Undeclared keys are kept too.

        Raises:
            TypeError: If the value is not a number, or a tag value is not a string.
            ValueError: If a declared tag has no value.
        """
        if value is None:
            return
        _check_number(value)
        final = self._final_tags(tags)
        if not self._discard:
            store.set(self._family, final, value)


class Histogram(Metric):
    """A histogram of observed values.

    Args:
        name: See `Metric`.
        description: Help text that Prometheus shows.
        boundaries: Upper limits of the buckets, positive and increasing.
        tag_keys: Tags that every record must have a value for.

    Raises:
        ValueError: If there are no boundaries, or they are not positive and increasing.
        TypeError: If a boundary is not a number.
    """

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, description, tag_keys)
        if not boundaries:
            raise ValueError(
                f"The histogram {name!r} needs the upper limits of its buckets, for example boundaries=[0.1, 1, 10]."
            )
        for index, limit in enumerate(boundaries):
            _check_number(limit, "boundaries")
            if not limit > 0:
                raise ValueError(f"boundaries must be positive, got {boundaries}: see index {index}.")
            if index and limit <= boundaries[index - 1]:
                raise ValueError(f"boundaries must increase, got {boundaries}: see index {index}.")
        self._boundaries = boundaries
        finite = tuple(float(limit) for limit in boundaries if limit != float("inf"))
        self._family = Family(self._kind, name, description, finite)

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Record one value.

        Args:
            value: The value.
            tags: Tag values, which override the defaults. Undeclared keys are kept too.

        Raises:
            TypeError: If the value is not a number, or a tag value is not a string.
            ValueError: If a declared tag has no value, or a tag is named ``le``.
        """
        _check_number(value)
        final = self._final_tags(tags)
        if any(key == "le" for key, _ in final):
            raise ValueError(
                "A histogram cannot have a tag named 'le', which Prometheus uses for its buckets."
            )
        if not self._discard:
            store.observe(self._family, final, value)

    @property
    def info(self) -> dict[str, Any]:
        """The name, description, tag keys, default tags and boundaries of this metric."""
        return {**super().info, "boundaries": self._boundaries}

    def __reduce__(self) -> tuple[Any, ...]:
        args = (self._name, self._description, self._boundaries, self._tag_keys)
        return type(self), args, self._default_tags


def prometheus_text(*, prefix: str = PREFIX) -> str:
    """Return all metrics of this session, including those of its workers, in Prometheus' text format.

    Without a session, these are the metrics of this process.

    Args:
        prefix: Prefix of every name. Pass ``"ray_"`` to use dashboards made for Ray.
    """
    from skate.util._metrics_export import exposition

    return exposition(store.collect(), prefix)


def start_server(port: int = 0, *, prefix: str = PREFIX) -> MetricsServer:
    """Serve `prometheus_text` over HTTP, on the loopback interface only.

    Args:
        port: The port to listen on; 0 picks a free one.
        prefix: Prefix of every name.

    Returns:
        The server, with its `port` and `url`; `close` it, or use it in a ``with`` statement.

    Example:
        >>> from urllib.request import urlopen
        >>> with start_server() as server:
        ...     text = urlopen(server.url).read()
    """
    from skate.util._metrics_export import MetricsServer

    return MetricsServer(port, lambda: prometheus_text(prefix=prefix))


def _check_number(value: Any, role: str = "value") -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{role} must be int or float, got {type(value)}.")


def _check_tag_value(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"Tag values must be str, got {type(value)}.")
