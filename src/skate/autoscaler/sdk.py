"""`request_resources`, with which a program asks an autoscaling cluster to grow ahead of its tasks."""

from __future__ import annotations

import logging
from typing import Any

import skate._engine as engines
from skate._api.cluster import cluster_resources
from skate._base.alias import real_ray

__all__ = ["request_resources"]

_logger = logging.getLogger(__name__)


def request_resources(
    num_cpus: int | None = None,
    bundles: list[dict[str, Any]] | None = None,
    bundle_label_selectors: list[dict[str, str]] | None = None,
) -> None:
    """Request that the cluster has room for these resources at the same time.

    On the ray engine, the request goes to Ray's autoscaler. A single machine cannot grow, so the call only logs a
    warning if the machine has fewer resources.

    Args:
        num_cpus: Number of CPUs.
        bundles: Further resources, one dictionary per bundle.
        bundle_label_selectors: Labels of the nodes for each bundle.

    Raises:
        TypeError: If an argument has a wrong type.
        ValueError: If the number of selectors differs from the number of bundles.
    """
    if num_cpus is not None and (not isinstance(num_cpus, int) or isinstance(num_cpus, bool)):
        raise TypeError(f"num_cpus must be an int, got {num_cpus!r}.")
    if bundles is not None and not (
        isinstance(bundles, list) and all(isinstance(bundle, dict) for bundle in bundles)
    ):
        raise TypeError(f"bundles must be a list of dictionaries, got {bundles!r}.")
    if bundle_label_selectors is not None and len(bundle_label_selectors) != len(bundles or ()):
        raise ValueError(
            f"bundle_label_selectors must have one entry per bundle, {len(bundles or ())} in all, "
            f"got {len(bundle_label_selectors)}."
        )
    if engines.current().name == "ray":
        real_ray("ray.autoscaler.sdk").request_resources(num_cpus, bundles, bundle_label_selectors)
        return
    wanted: dict[str, float] = {"CPU": num_cpus} if num_cpus else {}
    for bundle in bundles or ():
        for name, amount in bundle.items():
            wanted[name] = wanted.get(name, 0) + amount
    there = cluster_resources()
    short = {name: amount for name, amount in wanted.items() if amount > there.get(name, 0)}
    if short:
        _logger.warning(
            "request_resources requests %s, but this machine has %s and cannot grow.",
            short,
            {name: there.get(name, 0) for name in short},
        )
