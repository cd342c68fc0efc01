"""What the controller tells of applications and deployments: how they stand, how many replicas there should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate.serve._watch.tally import gauge
from skate.util._metrics_store import store

if TYPE_CHECKING:
    from skate.serve._controller.application import ApplicationKeeper

__all__ = ["tell_application"]

_APPLICATION = gauge(
    "application_status",
    "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 NOT_STARTED, 4 DELETING, 5 DEPLOYING, 6 RUNNING, 0 gone.",
)
_DEPLOYMENT = gauge(
    "deployment_status",
    "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 UPDATING, 4 UPSCALING, 5 DOWNSCALING, 6 HEALTHY, 0 gone.",
)
_TARGET = gauge("deployment_target_replicas", "How many replicas there should be.")
_SCALED = gauge("autoscaling_target_replicas", "How many replicas there should be, by the load.")


def tell_application(app: ApplicationKeeper) -> None:
    """Tell how an application and its deployments stand now."""
    of_app = ("application", app.spec.name)
    store.set(_APPLICATION, (of_app,), 0 if app.is_gone else app.status.to_numeric())
    for name, keeper in app.deployments.items():
        labels = (of_app, ("deployment", name))
        store.set(_DEPLOYMENT, labels, 0 if keeper.is_gone else keeper.status.to_numeric())
        store.set(_TARGET, labels, keeper.target)
        if keeper.spec.options.is_autoscaled:
            store.set(_SCALED, labels, keeper.target)
