"""The resources of a trial: one bundle for the trainable, and more for the work that it starts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from skate.air import _arguments as arguments
from skate.util.placement_group import PlacementGroup, placement_group

__all__ = ["PlacementGroupFactory", "resource_dict_to_pg_factory"]

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class PlacementGroupFactory:
    """The resource bundles of a trial.

    The first bundle belongs to the trainable itself; further bundles belong to the tasks and actors that it starts. A
    trial starts when all of them are free.

    Args:
        bundles: Resources by name, for each bundle. An empty first bundle means that the trainable needs none.
        strategy: How bundles are placed on nodes: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        args: Additional positional arguments of `skate.util.placement_group`.
        kwargs: Additional keyword arguments of `skate.util.placement_group`.

    Raises:
        ValueError: There is no bundle, or an amount is negative.

    Example:
        >>> PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}, {"CPU": 2}]).required_resources
        {'CPU': 5.0}
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any
    ) -> None:
        if not bundles:
            raise ValueError("Cannot initialize a PlacementGroupFactory with an empty list of bundles.")
        arguments.choice("strategy", strategy, STRATEGIES)
        checked = [_checked(bundle) for bundle in bundles]
        if not any(checked):
            raise ValueError(
                f"Cannot initialize a PlacementGroupFactory with empty bundles only: {list(bundles)}."
            )
        self._bundles = checked
        self._strategy = strategy
        self._args = args
        self._kwargs = kwargs

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the trainable itself needs no resources."""
        return not self._bundles[0]

    @property
    def head_cpus(self) -> float:
        """The CPUs of the trainable itself."""
        return self._bundles[0].get("CPU", 0.0)

    @property
    def head_bundle(self) -> dict[str, float]:
        """The resources of the trainable itself."""
        return dict(self._bundles[0])

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The bundles that are not empty."""
        return [dict(bundle) for bundle in self._bundles if bundle]

    @property
    def strategy(self) -> str:
        """How bundles are placed on nodes."""
        return self._strategy

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def to_placement_group(self) -> PlacementGroup:
        """Create the placement group."""
        return placement_group(self.bundles, self._strategy, *self._args, **self._kwargs)

    def __call__(self) -> PlacementGroup:
        """Create the placement group."""
        return self.to_placement_group()

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return (
            type(self),
            tuple(tuple(sorted(bundle.items())) for bundle in self._bundles),
            self._strategy,
            self._args,
            tuple(sorted(self._kwargs.items())),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, PlacementGroupFactory) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"PlacementGroupFactory(bundles={self._bundles!r}, strategy={self._strategy!r})"


class TrainerResources(PlacementGroupFactory):
    """The resources of a trainer, which reserves a placement group for its workers itself."""


def resource_dict_to_pg_factory(spec: Mapping[str, Any] | None = None) -> PlacementGroupFactory:
    """Return the bundle of a dictionary such as `{"cpu": 2, "gpu": 0.5}`; one CPU by default.

    Args:
        spec: Amounts by name. `cpu` and `gpu` may be in lower case; `custom_resources` may contain other resources.
    """
    given = dict(spec or {"CPU": 1})
    named = {**given.pop("custom_resources", {}), **given}
    bundle: dict[str, float] = {}
    for name, amount in named.items():
        name = name.upper() if name in ("cpu", "gpu") else name
        bundle[name] = bundle.get(name, 0.0) + amount
    return PlacementGroupFactory([bundle])


def _checked(bundle: Mapping[str, float]) -> dict[str, float]:
    """Return the positive amounts of a bundle."""
    for name, amount in arguments.mapping("bundles", bundle).items():
        if not isinstance(amount, int | float) or isinstance(amount, bool) or not 0 <= amount < math.inf:
            raise ValueError(
                f"the bundle {dict(bundle)} has {amount!r} for {name!r}: it must be a number of at least 0."
            )
    return {name: float(amount) for name, amount in bundle.items() if amount}
