"""Requests that change something: kill an actor, cancel a task."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from skate._api.actor_lookup import ActorLookupError
from skate.dashboard._node import Node
from skate.dashboard._topics import Problem, flag

__all__ = ["Actions"]


class Actions:
    """The paths below /actions.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/actions/actors/{id:path}/kill", self._kill, methods=["POST"]),
            Route("/actions/tasks/{id:path}/cancel", self._cancel, methods=["POST"]),
        ]

    async def _kill(self, request: Request) -> Response:
        self._node.local_session("Actors of a Ray cluster are killed with ray.kill() in a program.")
        id = request.path_params["id"]
        restart = flag(request.query_params, "restart")
        try:
            row = await self._node.ask(lambda node: node.kill_actor(id, no_restart=not restart))
        except ActorLookupError as error:
            raise Problem(404, str(error)) from error
        return JSONResponse({"killed": row["actor_id"].hex()})

    async def _cancel(self, request: Request) -> Response:
        self._node.local_session("Tasks of a Ray cluster are cancelled with ray.cancel() in a program.")
        id = request.path_params["id"]
        force = flag(request.query_params, "force")
        try:
            await self._node.ask(lambda node: node.cancel_task(id, force=force))
        except (ValueError, NotImplementedError) as error:
            raise Problem(400, str(error)) from error
        return JSONResponse({"cancelled": id})
