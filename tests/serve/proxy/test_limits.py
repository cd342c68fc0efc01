"""Limits of the proxy: defaults, options and environment variables."""

from __future__ import annotations

import resource
import sys
from typing import Any

import pytest

from skate.serve._proxy.http_server import make_protocol
from skate.serve._proxy.limits import Limits
from skate.serve.config import HTTPOptions
from skate.serve.schema import HTTPOptionsSchema


def test_options_win_over_the_environment_and_both_over_defaults() -> None:
    environ = {"SKATE_SERVE_MAX_BODY_BYTES": "100", "SKATE_SERVE_BODY_TIMEOUT_S": "1.5"}
    found = Limits.of(HTTPOptions(max_body_bytes=50, request_timeout_s=3).model_dump(), environ)
    assert (found.body_bytes, found.body_timeout_s, found.timeout_s) == (50, 1.5, 3)
    assert found.header_bytes == Limits.header_bytes


def test_files_have_the_same_limits_as_programs() -> None:
    given = {"max_header_bytes": 1000, "max_connections": 7, "header_timeout_s": 2.5}
    found = Limits.of(HTTPOptionsSchema(**given).model_dump(), {})
    assert (found.header_bytes, found.connections, found.header_timeout_s) == (1000, 7, 2.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_BODY_BYTES", "much"),
        ("MAX_CONNECTIONS", "-1"),
        ("HEADER_TIMEOUT_S", "0"),
        ("BODY_TIMEOUT_S", "nan"),
    ],
)
def test_a_variable_that_is_no_limit_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"SKATE_SERVE_{name} is '{value}'"):
        Limits.of({}, {f"SKATE_SERVE_{name}": value})


def test_there_are_never_more_connections_than_descriptors() -> None:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    try:
        assert Limits.of({}, {}).connections < 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


@pytest.mark.parametrize(
    ("headers", "is_too_long", "is_short"),
    [
        ([], False, False),
        ([(b"content-length", b"10")], False, True),
        ([(b"content-length", b"2000000")], False, False),
        ([(b"content-length", b"20000000")], True, False),
        ([(b"transfer-encoding", b"chunked")], False, False),
    ],
)
def test_bodies_are_judged_by_what_is_announced(
    headers: list[tuple[bytes, bytes]], is_too_long: bool, is_short: bool
) -> None:
    limits = Limits(body_bytes=10_000_000)
    assert (limits.is_too_long(headers), limits.is_short(headers)) == (is_too_long, is_short)


def test_h11_steps_in_where_httptools_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    assert issubclass(make_protocol(Limits()), HttpToolsProtocol)
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert issubclass(make_protocol(Limits()), H11Protocol)


@pytest.mark.parametrize(
    ("options", "environ", "allowed", "refused"),
    [
        ({"host": "0.0.0.0"}, {}, "any.example", None),
        ({"host": "::1"}, {}, "localhost", "any.example"),
        (
            {"host": "127.0.0.1"},
            {"SKATE_SERVE_ALLOWED_HOSTS": "a.example, *.b.example"},
            "x.b.example:80",
            "b.example",
        ),
        ({"host": "0.0.0.0", "allowed_hosts": ["a.example"]}, {}, "A.example.", "127.0.0.1"),
        (
            {"host": "127.0.0.1", "allowed_hosts": ["*"]},
            {"SKATE_SERVE_ALLOWED_HOSTS": "a"},
            "any.example",
            None,
        ),
    ],
)
def test_names_of_the_server_are_options(
    options: dict[str, Any], environ: dict[str, str], allowed: str, refused: str | None
) -> None:
    hosts = Limits.of(options, environ).hosts
    assert hosts.refusal([allowed.encode()]) is None
    if refused is not None:
        assert (hosts.refusal([refused.encode()]) or (0,))[0] == 421
