"""Serve over HTTP: Ray's paths, so that Ray's `serve deploy`, `serve status` and `serve config` work with a node."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from skate._api.observer import Observer
from skate.dashboard._node import Node
from skate.dashboard._packages import Packages
from skate.dashboard._rest import Handle, as_text, read_json
from skate.dashboard._serve import CONTROLLER
from skate.dashboard._topics import Problem
from skate.util.state._rows import rows
from skate.util.state.common import StateResource

if TYPE_CHECKING:
    from skate.serve._controller.client import Client

__all__ = ["ServeApi"]

TIMEOUT_S: Final = 120.0  # to start Serve, or to finish its open requests before it stops
_ELSEWHERE: Final = "The applications of a Ray cluster are deployed to Ray's own dashboard."

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ServeApi:
    """Serve's paths: /api/serve/applications/, and the one that sets the number of replicas of a deployment.

    Args:
        node: The node.
        packages: The packages that clients have uploaded.
    """

    def __init__(self, node: Node, packages: Packages) -> None:
        self._node = node
        self._packages = packages

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        applications = "/api/serve/applications/"
        return [
            Route(applications, as_text(self._describe), methods=["GET"]),
            Route(applications, as_text(self._deploy), methods=["PUT"]),
            Route(applications, as_text(self._shut_down), methods=["DELETE"]),
            Route(
                "/api/v1/applications/{app}/deployments/{deployment}/scale",
                _as_error(self._scale),
                methods=["POST"],
            ),
        ]

    async def _describe(self, request: Request) -> Response:
        source = _source(request.query_params.get("api_type"))
        if not await self._has_controller():
            return JSONResponse(
                {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
            )
        details = await self._call(lambda: _details(source))
        return JSONResponse(self._packages.with_uris(details))

    async def _deploy(self, request: Request) -> Response:
        self._node.local_session(_ELSEWHERE)
        config = self._with_packages(await read_json(request))
        ignored = await self._call(lambda: _deploy(config), as_ray=True)
        if ignored:
            logger.warning("Serve runs already, so these HTTP options have no effect: %s", ", ".join(ignored))
        return Response()

    async def _shut_down(self, _: Request) -> Response:
        if await self._has_controller():
            await self._call(_shut_down)
        return Response()

    async def _scale(self, request: Request) -> Response:
        given = await read_json(request)
        replicas = given.get("target_num_replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            raise Problem(
                400, f"target_num_replicas must be an integer that is not negative, got {replicas!r}."
            )
        if not await self._has_controller():
            raise Problem(503, "Serve does not run on this node.")
        app, deployment = request.path_params["app"], request.path_params["deployment"]
        await self._call(lambda: _scale(app, deployment, replicas))
        return JSONResponse({"message": f"{deployment} will have {replicas} replicas."})

    async def _has_controller(self) -> bool:
        """Return whether Serve runs; importing Serve takes long, so the table of actors is read first."""
        self._node.local_session(_ELSEWHERE)
        return await self._node.ask(_has_controller)

    async def _call(self, function: Callable[[], T], *, as_ray: bool = False) -> T:
        def explained() -> T:
            try:
                return function()
            except ImportError as error:
                raise Problem(501, str(error)) from error

        return await self._node.call(explained, as_ray=as_ray, timeout_s=TIMEOUT_S)

    def _with_packages(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a configuration with the paths of the packages that were uploaded for its applications."""
        applications = config.get("applications")
        if not isinstance(applications, list):
            return config  # the schema explains it
        return {
            **config,
            "applications": [
                {**app, "runtime_env": self._packages.localized(app["runtime_env"])}
                if isinstance(app, dict) and app.get("runtime_env") is not None
                else app
                for app in applications
            ],
        }


def _as_error(handle: Handle) -> Handle:
    """Return a handler that answers problems as an object with an `error`."""

    async def respond(request: Request) -> Response:
        try:
            return await handle(request)
        except Problem as problem:
            return JSONResponse({"error": problem.detail}, problem.status)

    return respond


def _has_controller(node: Observer) -> bool:
    return any(
        row["name"] == CONTROLLER and row["state"] != "DEAD"
        for row in rows(node.engine, StateResource.ACTORS)
    )


def _source(text: str | None) -> str | None:
    """Return the kind of applications that a request asks for; None for all."""
    if not text:
        return None
    kinds = ("imperative", "declarative")
    if text.lower() not in kinds:
        raise Problem(400, f"api_type must be one of {', '.join(kinds)}, got {text!r}.")
    return text.lower()


# ------------------------------------------------------------ calls, in the thread with the session


def _client() -> Client:
    from skate.serve._controller.client import connect

    client = connect()
    if client is None:
        raise Problem(503, "Serve does not run on this node.")
    return client


def _details(source: str | None) -> dict[str, Any]:
    client = _client()
    details = client.details()._get_user_facing_json_serializable_dict(exclude_unset=True)
    configs = json.loads(json.dumps(client.configs(), default=str))
    for name, app in details["applications"].items():
        app["deployed_app_config"] = configs.get(name)  # as it was given, without defaults
    if source is not None:
        details["applications"] = {
            name: app for name, app in details["applications"].items() if app["source"] == source
        }
    return details


def _deploy(config: dict[str, Any]) -> list[str]:
    """Deploy the applications of a configuration; return the names of HTTP options that have no effect."""
    from pydantic import ValidationError

    from skate.serve._controller.client import connect_for_config
    from skate.serve.schema import ServeDeploySchema

    try:
        file = ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        raise Problem(400, str(error)) from error
    try:
        client, ignored = connect_for_config(file)
        client.deploy_config(file)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise Problem(400, str(error)) from error
    return ignored


def _shut_down() -> None:
    from skate.serve._controller.client import connect, disconnect

    client = connect()
    if client is not None:
        client.shutdown()
        disconnect()


def _scale(app: str, deployment: str, replicas: int) -> None:
    from skate.serve.exceptions import ExternalScalerDisabledError

    client = _client()
    if deployment not in (client.deployments_of(app) or ()):
        raise Problem(404, f"Application {app!r} has no deployment {deployment!r}.")
    try:
        client.scale(app, deployment, replicas)
    except ExternalScalerDisabledError as error:
        raise Problem(412, _text(error)) from error
    except ValueError as error:
        raise Problem(400, _text(error)) from error


def _text(error: Exception) -> str:
    """Return the message of an error, without the traceback of the controller."""
    cause = getattr(error, "cause", None)
    return str(error if cause is None else cause)
