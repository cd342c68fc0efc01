"""Jobs over HTTP: Ray's REST paths, so that Ray's `JobSubmissionClient` and `ray job` work with a node."""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
import os
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from skate._version import ray_version
from skate.dashboard._node import Node
from skate.dashboard._packages import Packages
from skate.dashboard._rest import as_text, read_json
from skate.dashboard._topics import Problem
from skate.job_submission import JobDetails, JobSubmissionClient, JobType
from skate.job_submission._records import API_VERSION
from skate.job_submission._storage import JobStore

__all__ = ["Jobs"]

POLL_INTERVAL_S: Final = 0.2  # of a followed log: there is no event to wait for
CHUNK: Final = 1 << 18
_FIELDS: Final = (
    "entrypoint", "submission_id", "job_id", "runtime_env", "metadata", "entrypoint_num_cpus",
    "entrypoint_num_gpus", "entrypoint_memory", "entrypoint_resources", "entrypoint_label_selector",
)  # fmt: skip

T = TypeVar("T")


class Jobs:
    """The paths /api/version, /api/ray/version and /api/jobs/….

    Args:
        node: The node.
        packages: The packages that clients have uploaded.
    """

    def __init__(self, node: Node, packages: Packages) -> None:
        self._node = node
        self._packages = packages

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        job = "/api/jobs/{id}"
        return [
            Route("/api/version", as_text(self._version), methods=["GET"]),
            Route("/api/ray/version", as_text(self._version), methods=["GET"]),
            Route("/api/jobs/", as_text(self._list), methods=["GET"]),
            Route("/api/jobs/", as_text(self._submit), methods=["POST"]),
            Route(job, as_text(self._describe), methods=["GET"]),
            Route(job, as_text(self._delete), methods=["DELETE"]),
            Route(f"{job}/stop", as_text(self._stop), methods=["POST"]),
            Route(f"{job}/logs", as_text(self._logs), methods=["GET"]),
            WebSocketRoute(f"{job}/logs/tail", self._tail),
        ]

    def _session(self) -> str:
        return self._node.local_session("Submit jobs to Ray's own dashboard.")

    async def _ask(self, question: Callable[[JobSubmissionClient], T]) -> T:
        session = self._session()
        return await self._node.call(lambda: question(JobSubmissionClient(session)))

    async def _find(self, id: str) -> JobDetails:
        """Return the job with this id.

        Raises:
            Problem: It does not exist.
        """
        try:
            return await self._ask(lambda client: client.get_job_info(id))
        except RuntimeError:
            raise Problem(404, f"Job {id} does not exist") from None

    async def _find_submitted(self, id: str, verb: str) -> str:
        """Return the submission id of a job."""
        job = await self._find(id)
        if job.type is not JobType.SUBMISSION or job.submission_id is None:
            raise Problem(400, f"Can only {verb} submission type jobs")
        return job.submission_id

    # ------------------------------------------------------------ jobs

    async def _version(self, _: Request) -> Response:
        session = self._node.session or ""
        return JSONResponse(
            {
                "version": API_VERSION,
                "ray_version": ray_version,
                "ray_commit": "skate",
                "session_name": os.path.basename(session),
            }
        )

    async def _list(self, _: Request) -> Response:
        return JSONResponse([dataclasses.asdict(job) for job in await self._ask(lambda c: c.list_jobs())])

    async def _describe(self, request: Request) -> Response:
        return JSONResponse(dataclasses.asdict(await self._find(request.path_params["id"])))

    async def _submit(self, request: Request) -> Response:
        given = await read_json(request)
        # Newer clients send fields that are None here.
        given = {name: value for name, value in given.items() if value is not None}
        unknown = sorted(set(given) - set(_FIELDS))
        if unknown:
            raise Problem(400, f"Unknown field {unknown[0]!r}; the fields are {', '.join(_FIELDS)}.")
        if "entrypoint" not in given:
            raise Problem(400, "The field 'entrypoint' is missing: it is the command of the job.")
        given["runtime_env"] = self._packages.localized(given.get("runtime_env", {}))
        try:
            id = await self._ask(lambda client: client.submit_job(**given))
        except (RuntimeError, TypeError, ValueError) as error:
            raise Problem(400, str(error)) from error
        return JSONResponse({"job_id": id, "submission_id": id})

    async def _stop(self, request: Request) -> Response:
        id = await self._find_submitted(request.path_params["id"], "stop")
        return JSONResponse({"stopped": await self._ask(lambda client: client.stop_job(id))})

    async def _delete(self, request: Request) -> Response:
        id = await self._find_submitted(request.path_params["id"], "delete")
        try:
            deleted = await self._ask(lambda client: client.delete_job(id))
        except RuntimeError as error:
            raise Problem(500, str(error)) from error
        return JSONResponse({"deleted": deleted})

    # ------------------------------------------------------------ logs

    async def _logs(self, request: Request) -> Response:
        id = await self._find_submitted(request.path_params["id"], "get logs of")
        return JSONResponse({"logs": await self._ask(lambda client: client.get_job_logs(id))})

    async def _tail(self, socket: WebSocket) -> None:
        """Send the output of a job until it ends."""
        try:
            id = await self._find_submitted(socket.path_params["id"], "get logs of")
        except Problem as problem:
            await socket.send_denial_response(PlainTextResponse(problem.detail, problem.status))
            return
        await socket.accept()
        path = JobStore(self._session()).log(id)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        seen = 0
        try:
            while True:
                # The status first, so that the last lines are read.
                is_over = await self._ask(lambda client: client.get_job_status(id).is_terminal())
                while data := await self._node.run(_read_from, path, seen):
                    seen += len(data)
                    text = decoder.decode(data)
                    if text:
                        await socket.send_text(text)
                if is_over:
                    await socket.close()
                    return
                await asyncio.sleep(POLL_INTERVAL_S)
        except WebSocketDisconnect:
            return
        except Problem as problem:
            await socket.close(1011, problem.detail[:100])


def _read_from(path: str, start: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(CHUNK)
    except FileNotFoundError:
        return b""  # it has not started
