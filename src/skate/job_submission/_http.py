"""Jobs over HTTP: a client of Ray's Jobs API, which the dashboard of a node serves."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from http import HTTPStatus
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import Request, urlopen

from skate._api.starting import package_file, packed_environment
from skate.job_submission._records import DriverInfo, JobDetails, JobErrorType, JobStatus, JobType

__all__ = ["HttpJobs"]

TIMEOUT_S: Final = 60.0  # for a connection, and for each answer
_NONE: Final[Mapping[str, str]] = {}
_TOKEN_ADVICE: Final = (
    " Pass the URL with its token, or headers={'Authorization': 'Bearer TOKEN'}; "
    "on the command line, --headers or RAY_JOB_HEADERS."
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
        parts = urlsplit(url)
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {name: str(value) for name, value in (headers or {}).items()}
        token = parse_qs(parts.query).get("token")
        if token:
            self._headers.setdefault("Authorization", f"Bearer {token[0]}")
        if cookies:
            self._headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        self._ssl = _ssl_context(verify) if parts.scheme == "https" else None
        self.version()

    def version(self) -> str:
        """Return the version of the Jobs API of the server."""
        return str(self._call("GET", "/api/version").get("version", ""))

    # ------------------------------------------------------------ jobs

    def submit(self, id: str, job: dict[str, Any]) -> str:
        """Start a job; its local folders and files are uploaded first."""
        given = {name: value for name, value in job.items() if value is not None}
        given["runtime_env"] = self._uploaded(packed_environment(job["runtime_env"]))
        answer = self._call("POST", "/api/jobs/", {**given, "submission_id": id})
        return str(answer["submission_id"])

    def status(self, id: str) -> JobStatus:
        """Return the status of a job."""
        return self.find(id).status

    def find(self, id: str) -> JobDetails:
        """Return a submitted job, or the job of a driver."""
        return _details(self._call("GET", _path(id)))

    def list_all(self) -> list[JobDetails]:
        """Return all jobs."""
        return [_details(row) for row in self._call("GET", "/api/jobs/")]

    def logs(self, id: str) -> str:
        """Return the output of a job so far."""
        return str(self._call("GET", _path(id, "/logs"))["logs"])

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
        async with connect(url, additional_headers=self._headers, ssl=self._ssl, max_size=None) as socket:
            async for message in socket:
                yield message if isinstance(message, str) else message.decode(errors="replace")

    def stop(self, id: str) -> bool:
        """Stop a job; return whether it was running."""
        return bool(self._call("POST", _path(id, "/stop"))["stopped"])

    def delete(self, id: str) -> bool:
        """Delete a job that has ended."""
        return bool(self._call("DELETE", _path(id))["deleted"])

    # ------------------------------------------------------------ requests

    def _call(self, method: str, path: str, value: Any = None) -> Any:
        if value is None:
            return json.loads(self._send(method, path))
        return json.loads(
            self._send(method, path, json.dumps(value).encode(), {"Content-Type": "application/json"})
        )

    def _send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = _NONE) -> bytes:
        request = Request(self.address + path, body, {**self._headers, **headers}, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT_S, context=self._ssl) as response:
                return bytes(response.read())
        except HTTPError as error:
            raise _Refused(error.code, error.read().decode(errors="replace")) from None
        except (URLError, OSError) as error:
            raise ConnectionError(
                f"{self.address} does not answer: {getattr(error, 'reason', error)}. `skate dashboard` serves jobs "
                'over HTTP; without it, the address "auto" is the node of `skate start` on this machine.'
            ) from error

    # ------------------------------------------------------------ packages

    def _uploaded(self, environment: dict[str, Any]) -> dict[str, Any]:
        changed = dict(environment)
        if "working_dir" in changed:
            changed["working_dir"] = self._upload(changed["working_dir"])
        if "py_modules" in changed:
            changed["py_modules"] = [self._upload(each) for each in changed["py_modules"]]
        return changed

    def _upload(self, uri: str) -> str:
        """Return the URI under which the server knows a package, which is sent if the server does not have it."""
        file = package_file(uri)
        if file is None:
            return uri
        # The folder of a package is named after its contents. A wheel must keep its name, which does not tell them.
        is_wheel = file.suffix == ".whl"
        name = file.name if is_wheel else f"_ray_pkg_{file.parent.name}{file.suffix}"
        path = f"/api/packages/gcs/{quote(name)}"
        if is_wheel or not self._has(path):
            with open(file, "rb") as content:
                self._send("PUT", path, content, {"Content-Length": str(os.path.getsize(file))})
        return f"gcs://{name}"

    def _has(self, path: str) -> bool:
        try:
            self._send("GET", path)
        except _Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True


class _Refused(RuntimeError):
    def __init__(self, status: int, text: str) -> None:
        advice = _TOKEN_ADVICE if status == HTTPStatus.UNAUTHORIZED else ""
        super().__init__(f"The server refused the request with status {status}: {text.strip()}{advice}")
        self.status = status


def _path(id: str, rest: str = "") -> str:
    return f"/api/jobs/{quote(id, safe='')}{rest}"


def _ssl_context(verify: str | bool | None) -> ssl.SSLContext:
    if isinstance(verify, str):
        if not os.path.exists(verify):
            raise FileNotFoundError(
                f"verify is {verify!r}, which does not exist: pass a file or folder of certificates."
            )
        is_folder = os.path.isdir(verify)
        return ssl.create_default_context(
            cafile=None if is_folder else verify, capath=verify if is_folder else None
        )
    context = ssl.create_default_context()
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


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
