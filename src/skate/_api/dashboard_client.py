"""Requests to a dashboard over HTTP, for the clients of jobs, of the state API and of Serve."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from skate._api.starting import package_file, packed_environment

__all__ = ["DashboardClient", "RefusedError"]

TIMEOUT_S: Final = 60.0  # for a connection, and for each answer
CHUNK: Final = 1 << 16
TOKEN_ADVICE: Final = "Pass the URL with its token, or headers={'Authorization': 'Bearer TOKEN'}"
_NONE: Final[Mapping[str, str]] = {}


class RefusedError(RuntimeError):
    """The server answered with an error.

    Args:
        status: The HTTP status.
        text: The body of the answer.
        advice: What to do about a missing token.
    """

    def __init__(self, status: int, text: str, advice: str) -> None:
        hint = f" {advice}" if status == HTTPStatus.UNAUTHORIZED else ""
        super().__init__(f"The server refused the request with status {status}: {text.strip()}{hint}")
        self.status = status
        self.text = text
        self._advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.text, self._advice)


class DashboardClient:
    """Sends requests to the server behind a URL.

    Args:
        url: The URL of a dashboard; a token in its query is sent in a header.
        cookies: Cookies of each request.
        headers: Headers of each request.
        verify: Whether to verify the server's certificate, or the path of trusted certificates.
        without_server: What to do if no server answers, for the error.
        token_advice: How to pass the token, for the error of a request without it.

    Raises:
        FileNotFoundError: The path of certificates does not exist.
    """

    def __init__(
        self,
        url: str,
        cookies: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        verify: str | bool | None = True,
        *,
        without_server: str,
        token_advice: str = f"{TOKEN_ADVICE}.",
    ) -> None:
        parts = urlsplit(url)
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.headers = {name: str(value) for name, value in (headers or {}).items()}
        token = parse_qs(parts.query).get("token")
        if token:
            self.headers.setdefault("Authorization", f"Bearer {token[0]}")
        if cookies:
            self.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        self.ssl = _ssl_context(verify) if parts.scheme == "https" else None
        self._without_server = without_server
        self._token_advice = token_advice

    # ------------------------------------------------------------ requests

    def call(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        query: Sequence[tuple[str, Any]] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Send a request, with a value as JSON if there is one; return the JSON of the answer, None if it is empty.

        Raises:
            ConnectionError: The server does not answer.
            RefusedError: It answered with an error.
        """
        body, headers = None, _NONE
        if value is not None:
            body, headers = json.dumps(value).encode(), {"Content-Type": "application/json"}
        answer = self.send(method, path, body, headers, query=query, timeout_s=timeout_s)
        return json.loads(answer) if answer else None

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] = _NONE,
        *,
        query: Sequence[tuple[str, Any]] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        """Send a request; return the body of the answer. The errors are those of `call`."""
        with self._open(method, path, body, headers, query, timeout_s) as response:
            return self._read(response.read)

    def stream(
        self, path: str, *, query: Sequence[tuple[str, Any]] = (), timeout_s: float | None = TIMEOUT_S
    ) -> Iterator[bytes]:
        """Yield the body of an answer as it arrives. The errors are those of `call`.

        Args:
            path: The path.
            query: Its parameters.
            timeout_s: Seconds between two pieces; None for any time.
        """
        with self._open("GET", path, None, _NONE, query, timeout_s) as response:
            while piece := self._read(response.read1, CHUNK):
                yield piece

    def _read(self, read: Callable[..., bytes], *size: int) -> bytes:
        try:
            return read(*size)
        except (HTTPException, OSError) as error:
            raise ConnectionError(f"{self.address} ended its answer early: {error!r}") from error

    def _open(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str],
        query: Sequence[tuple[str, Any]],
        timeout_s: float | None,
    ) -> Any:
        target = self.address + path + (f"?{urlencode(query)}" if query else "")
        request = Request(target, body, {**self.headers, **headers}, method=method)
        try:
            return urlopen(request, timeout=timeout_s, context=self.ssl)
        except HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise RefusedError(error.code, text, self._token_advice) from None
        except (URLError, OSError) as error:
            raise ConnectionError(
                f"{self.address} does not answer: {getattr(error, 'reason', error)}. {self._without_server}"
            ) from error

    # ------------------------------------------------------------ packages

    def uploaded(self, runtime_env: dict[str, Any]) -> dict[str, Any]:
        """Return a runtime environment for the server, to which its local folders and files are sent."""
        changed = dict(packed_environment(runtime_env))
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
        # The folder of a package is named after its contents. A wheel keeps its name, which says nothing about them.
        is_wheel = file.suffix == ".whl"
        name = file.name if is_wheel else f"_ray_pkg_{file.parent.name}{file.suffix}"
        path = f"/api/packages/gcs/{quote(name)}"
        if is_wheel or not self._has(path):
            with open(file, "rb") as content:
                self.send("PUT", path, content, {"Content-Length": str(os.path.getsize(file))})
        return f"gcs://{name}"

    def _has(self, path: str) -> bool:
        try:
            self.send("GET", path)
        except RefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True


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
