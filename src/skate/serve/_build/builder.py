"""Take an application apart into its deployments.

Applications may lie anywhere in the arguments of others. They are found when those are pickled: that walks through
everything, and puts a handle where an application stood.
"""

from __future__ import annotations

import inspect
import io
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from skate import cloudpickle
from skate.serve._build.spec import ApplicationSpec, DeploymentSpec
from skate.serve._build.web_frameworks import register_reducers
from skate.serve._runtime.ids import DeploymentID, new_id
from skate.serve.exceptions import ApplicationError, DeploymentSerializationError

if TYPE_CHECKING:
    from skate.serve.deployment import Application

__all__ = ["build", "check_code", "reduce_application"]


class _Builder:
    """Builds one application."""

    def __init__(self, app_name: str) -> None:
        self.app_name = app_name
        self.specs: list[DeploymentSpec] = []
        self._names: dict[
            int, str
        ] = {}  # of applications, by identity: one that is used twice is deployed once
        self._open: list[str] = []  # those whose arguments are being pickled, from the outside in
        self._calls: dict[str, list[str]] = {}

    def add(self, app: Application, is_ingress: bool = False) -> str:
        """Build an application and all below it; returns the name of its deployment."""
        known = self._names.get(id(app))
        if known is not None:
            if known in self._open:
                circle = " → ".join([*self._open[self._open.index(known) :], known])
                raise ApplicationError(
                    f"The application contains itself: {circle}. A deployment cannot be its own argument."
                )
            return known
        deployment = app._bound_deployment
        name = self._unused(deployment.name)
        self._names[id(app)] = name
        self._calls[name] = []
        self._open.append(name)
        try:
            init = _pickled((app._args, app._kwargs), f"the arguments of deployment {name!r}")
        finally:
            self._open.pop()
        target = deployment.func_or_class
        if not inspect.isclass(target) and (app._args or app._kwargs):
            raise ApplicationError(
                f"Deployment {name!r} is a function, which has no constructor: call bind() without arguments."
            )
        options = deployment._options.merged({"name": name})
        self.specs.append(
            DeploymentSpec(
                id=DeploymentID(name, self.app_name),
                options=options,
                code=_pickled(target, f"the deployment {name!r}"),
                init=init,
                version=options.version or new_id(),
                is_ingress=is_ingress,
                calls=tuple(self._calls[name]),
                source=f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', '')}",
            )
        )
        return name

    def reduce(self, app: Application) -> Any:
        """Return how to pickle an application inside of another's arguments: as a handle."""
        from skate.serve.handle import DeploymentHandle

        name = self.add(app)
        if self._open:
            self._calls[self._open[-1]].append(name)
        return DeploymentHandle(name, self.app_name).__reduce__()

    def _unused(self, name: str) -> str:
        taken = set(self._names.values())
        number, found = 0, name
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        return found


_building: ContextVar[_Builder | None] = ContextVar("skate_serve_building", default=None)


def reduce_application(app: Application) -> Any:
    """Return how to pickle an application where one is being built; None elsewhere."""
    builder = _building.get()
    return None if builder is None else builder.reduce(app)


def build(
    app: Application,
    name: str,
    route_prefix: str | None = "/",
    *,
    logging_config: Any = None,
    external_scaler_enabled: bool = False,
) -> ApplicationSpec:
    """Return an application as what can be deployed.

    Raises:
        TypeError: If code or arguments of a deployment cannot be pickled.
        ValueError: If the application contains itself.
    """
    builder = _Builder(name)
    token = _building.set(builder)
    try:
        ingress = builder.add(app, is_ingress=True)
    finally:
        _building.reset(token)
    return ApplicationSpec(
        name=name,
        route_prefix=route_prefix,
        deployments=tuple(builder.specs),
        ingress=ingress,
        logging_config=logging_config,
        external_scaler_enabled=external_scaler_enabled,
    )


def check_code(target: Any, name: str) -> None:
    """Raise TypeError if what is to be deployed cannot be pickled: where it is written, not where it is run."""
    _pickled(target, f"the deployment {name!r}")


def _pickled(value: Any, what: str) -> bytes:
    register_reducers()
    try:
        data: bytes = cloudpickle.dumps(value)
    except (ApplicationError, DeploymentSerializationError):
        raise  # of an application inside of this one
    except Exception as error:
        raise DeploymentSerializationError(
            f"Could not serialize {what}: {_culprits(value)} was found to be non-serializable ({error}). Make such "
            "objects inside of the deployment's constructor."
        ) from error
    return data


def _culprits(value: Any) -> str:
    """Return the parts of a value that cannot be pickled, as the paths that lead to them."""
    from skate.util import inspect_serializability

    _, failures = inspect_serializability(value, print_file=io.StringIO())
    paths = sorted({" → ".join(failure.path) for failure in failures if failure.path})
    return ", ".join(map(repr, paths)) or "it"
