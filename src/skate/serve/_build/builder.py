"""Splits an application into its deployments.

Applications may be nested anywhere in the arguments of others. Pickling visits all of them, and replaces each by a
handle.
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
        # By id(), because an application that is used twice is deployed once.
        self._names: dict[int, str] = {}
        self._open: list[str] = []  # deployments whose arguments are being pickled, outermost first
        self._calls: dict[str, list[str]] = {}

    def add(self, app: Application, is_ingress: bool = False) -> str:
        """Build an application and those in its arguments; return the name of its deployment."""
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
        """Return the reduction of an application inside another's arguments: a handle."""
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
    """Return the reduction of an application during a build, or None outside of builds."""
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
    """Return the specification of an application.

    Raises:
        DeploymentSerializationError: If the code or an argument of a deployment cannot be pickled. It is a TypeError.
        ApplicationError: If the application contains itself. It is a ValueError.
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
    """Raise a TypeError if a deployment's code cannot be pickled, where it is defined instead of where it runs."""
    _pickled(target, f"the deployment {name!r}")


def _pickled(value: Any, what: str) -> bytes:
    register_reducers()
    try:
        data: bytes = cloudpickle.dumps(value)
    except (ApplicationError, DeploymentSerializationError):
        raise  # from a nested application
    except Exception as error:
        raise DeploymentSerializationError(
            f"Could not serialize {what}: {_culprits(value)} was found to be non-serializable ({error}). Create such "
            "objects in the deployment's constructor."
        ) from error
    return data


def _culprits(value: Any) -> str:
    """Return the paths of the parts of a value that cannot be pickled."""
    from skate.util import inspect_serializability

    _, failures = inspect_serializability(value, print_file=io.StringIO())
    paths = sorted({" → ".join(failure.path) for failure in failures if failure.path})
    return ", ".join(map(repr, paths)) or "it"
