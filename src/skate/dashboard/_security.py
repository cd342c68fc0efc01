"""Who may use the dashboard: a token, the Host and Origin of requests, and headers that protect the page.

A web page from anywhere can make the user's browser send requests to this machine. It does not know the token. It
cannot send the cookie, which is restricted to the same site; and with a name of its own that resolves to this machine
(DNS rebinding), it cannot pass the check of the Host.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Gate", "new_token", "page_url"]

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_LOGIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Skate dashboard</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}</style>
</head><body><h1>Skate dashboard</h1><p>{reason}</p>
<p>Open the URL with the token: <code>skate dashboard</code> prints it, and a program that starts the dashboard with
<code>skate.init(include_dashboard=True)</code> has it in <code>context.dashboard_url</code>.</p></body></html>
"""


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def page_url(host: str, port: int, token: str) -> str:
    """Return the URL that opens the page."""
    shown = "127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/?{urlencode({'token': token})}"


class Gate:
    """An ASGI application that lets authorized requests pass to another one.

    Args:
        app: The application.
        token: The token.
        host: The address that the server is bound to.
        port: Its port.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._host = host.lower()
        # Browsers send a cookie to all ports of a host: two dashboards must not overwrite each other's.
        self._cookie = f"skate_token_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not authorized, and pass on all others."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._check(scope)
        if refusal is None:
            await self._app(scope, receive, send_protected)
        elif scope["type"] == "websocket":
            # Before the handshake is accepted, servers answer this with the status 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "not authorized"})
        else:
            await refusal(scope, receive, send_protected)

    def _check(self, scope: Scope) -> Response | None:
        """Return the response for a request that must not pass."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own_host(host):
            return _refuse(
                HTTPStatus.FORBIDDEN,
                f"The host {host!r} is not this dashboard: use the URL that it printed, with 127.0.0.1 or localhost.",
            )
        origin = headers.get("origin")
        changes_state = scope["type"] == "websocket" or scope["method"] not in _READING
        if origin is not None and changes_state and not _is_same_origin(origin, host):
            return _refuse(
                HTTPStatus.FORBIDDEN, f"Requests that change something may not come from {origin!r}."
            )
        query = QueryParams(scope.get("query_string", b""))
        if scope["type"] == "http" and scope["method"] == "GET" and "token" in query:
            return self._log_in(scope["path"], query)
        if self._is_authorized(headers):
            return None
        return self._ask_for_token(headers, "This page needs a token.")

    def _is_own_host(self, host: str) -> bool:
        # The port is not compared: a forwarded port (`ssh -L 9000:localhost:8265`) has another number, and a page of
        # another site cannot choose the name in the header.
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            urlsplit(f"//{host}").port  # noqa: B018 - raises if it is not a number
        except ValueError:
            return False
        if name in _LOOPBACK or name == self._host:
            return True
        if self._host in ("", "0.0.0.0", "::"):  # all addresses of this machine, and its name
            try:
                ipaddress.ip_address(name)
                return True
            except ValueError:
                return name == socket.gethostname().lower()
        return False

    def _is_authorized(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _log_in(self, path: str, query: QueryParams) -> Response:
        """Store the token of the URL in a cookie, and remove it from the address bar."""
        if not self._is_token(query["token"]):
            return self._ask_for_token(
                Headers({"accept": "text/html"}), "The token in this URL is not valid."
            )
        rest = urlencode([(key, value) for key, value in query.multi_items() if key != "token"])
        # A path with two slashes at its start would lead to another host.
        target = "/" + path.lstrip("/\\") + (f"?{rest}" if rest else "")
        response = RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER)
        response.set_cookie(
            self._cookie, self._token.decode(), path="/", httponly=True, samesite="strict", secure=False
        )
        return response

    def _ask_for_token(self, headers: Headers, reason: str) -> Response:
        advice = {"WWW-Authenticate": 'Bearer realm="skate"'}
        if "text/html" in headers.get("accept", ""):
            return HTMLResponse(_LOGIN.format(reason=reason), HTTPStatus.UNAUTHORIZED, advice)
        detail = (
            f"{reason} Send the header 'Authorization: Bearer TOKEN' with the token in the dashboard's URL."
        )
        return JSONResponse({"detail": detail}, HTTPStatus.UNAUTHORIZED, advice)


def _is_same_origin(origin: str, host: str) -> bool:
    return urlsplit(origin).netloc.lower() == host.lower()


def _refuse(status: HTTPStatus, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status)
