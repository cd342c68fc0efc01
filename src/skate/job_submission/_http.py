"""Jobs over HTTP: a client of Ray's Jobs API, which the dashboard of a node serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from typing import Any, Final
from urllib.parse import quote

from skate._api.dashboard_client import TOKEN_ADVICE, DashboardClient
from skate.job_submission._records import DriverInfo, JobDetails, JobErrorType, JobStatus, JobType

__all__ = ["HttpJobs"]

_TOKEN_ADVICE: Final = f"{TOKEN_ADVICE}; on the command line, --headers or RAY_JOB_HEADERS."
_WITHOUT_SERVER: Final = (
    '`skate dashboard` serves jobs over HTTP; without it, the address "auto" is the node of `skate start` on this '
    "machine."
)


class HttpJobs:
    """Jobs of the node behind a URL.

    Args:
        url: The URL of a dashboard; a token in its query is sent in a header.
        cookies: Cookies of each request.
        headers: Headers of each request.
        verify: Whether to verify the server's certificate, or the path of trusted certificates.

    Raises:
        ConnectionError: The server does not answer.
        FileNotFoundError: The path of certificates does not exist.
        RuntimeError: The server does not accept the request.
    """

    def __init__(
        self,
        url: str,
        cookies: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        verify: str | bool | None = True,
    ) -> None:
        self._server = DashboardClient(
            url, cookies, headers, verify, without_server=_WITHOUT_SERVER, token_advice=_TOKEN_ADVICE
        )
        self.address = self._server.address
        self.version()

    def version(self) -> str:
        """Return the version of the Jobs API of the server."""
        return str(self._server.call("GET", "/api/version").get("version", ""))

    # ------------------------------------------------------------ jobs

    def submit(self, id: str, job: dict[str, Any]) -> str:
        """Start a job; its local folders and files are uploaded first."""
        given = {name: value for name, value in job.items() if value is not None}
        given["runtime_env"] = self._server.uploaded(job["runtime_env"])
        answer = self._server.call("POST", "/api/jobs/", {**given, "submission_id": id})
        return str(answer["submission_id"])

    def status(self, id: str) -> JobStatus:
        """Return the status of a job."""
        return self.find(id).status

    def find(self, id: str) -> JobDetails:
        """Return a submitted job, or the job of a driver."""
        return _details(self._server.call("GET", _path(id)))

    def list_all(self) -> list[JobDetails]:
        """Return all jobs."""
        return [_details(row) for row in self._server.call("GET", "/api/jobs/")]

    def logs(self, id: str) -> str:
        """Return the output of a job so far."""
        return str(self._server.call("GET", _path(id, "/logs"))["logs"])

    async def tail(self, id: str) -> AsyncIterator[str]:
        """Yield the output of a job until it ends."""
        try:
            from websockets.asyncio.client import connect
        except ImportError as error:
            raise ImportError(
                "Following a job over HTTP needs websockets: pip install 'skate[dashboard]'"
            ) from error
        self.find(id)  # an unknown job is an error that names it
        url = "ws" + self.address.removeprefix("http") + _path(id, "/logs/tail")
        async with connect(
            url, additional_headers=self._server.headers, ssl=self._server.ssl, max_size=None
        ) as socket:
            async for message in socket:
                yield message if isinstance(message, str) else message.decode(errors="replace")

    def stop(self, id: str) -> bool:
        """Stop a job; return whether it was running."""
        return bool(self._server.call("POST", _path(id, "/stop"))["stopped"])

    def delete(self, id: str) -> bool:
        """Delete a job that has ended."""
        return bool(self._server.call("DELETE", _path(id))["deleted"])


def _path(id: str, rest: str = "") -> str:
    return f"/api/jobs/{quote(id, safe='')}{rest}"


def _details(row: dict[str, Any]) -> JobDetails:
    """Return the job that a server has described; fields of newer servers are left out."""
    known = {field.name: row[field.name] for field in fields(JobDetails) if field.name in row}
    driver, error = known.get("driver_info"), known.get("error_type")
    return JobDetails(
        **{
            **known,
            "type": JobType(known["type"]),
            "status": JobStatus(known["status"]),
            "error_type": JobErrorType(error) if error else None,
            "driver_info": DriverInfo(
                **{name: str(driver.get(name)) for name in ("id", "node_ip_address", "pid")}
            )
            if driver
            else None,
        }
    )
