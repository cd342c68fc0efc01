"""The process of a dashboard: `skate dashboard`, `init(include_dashboard=True)`, and nodes that end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import httpx
import psutil
import pytest

import skate
from skate._api import nodes
from tests.contract.support import eventually
from tests.dashboard.processes import Client, running
from tests.dashboard.support import EVENT_TIMEOUT_S
from tests.plugins.command_line import Cli


def test_a_client_sees_the_node_end_and_come_back(cli: Cli, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (client, _):
        assert client.get("/state/session")["address"] == node.folder
        with client.live("/state/session") as events, client.live("/state/overview") as overviews:
            assert next(events)[1]["data"]["connected"]
            assert next(overviews)[0] == "update"
            nodes.stop()
            _, data = next(event for event in events if not event[1]["data"]["connected"])
            assert "node" in data["data"]["problem"]
            _, data = next(event for event in overviews if event[0] == "gone")
            assert data["status"] == 503
            again = nodes.start(num_cpus=1)
            _, data = next(event for event in events if event[1]["data"]["connected"])
            assert data["data"]["address"] == again.folder
            _, data = next(event for event in overviews if event[0] == "update")
            assert {"name": "CPU", "total": 1.0, "used": 0.0} in data["data"]["resources"]


def test_the_command_ends_quietly_while_pages_are_open(cli: Cli, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (client, process):
        host, port = client.base.removeprefix("http://").split(":")
        # A page that reads, and one that does not.
        with client.live("/state/session") as events, socket.create_connection((host, int(port))) as stalled:
            authorization = f"Authorization: {client.headers['Authorization']}"
            stalled.sendall(
                f"GET /live?path=/state/nodes HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n\r\n".encode()
            )
            next(events)
            process.send_signal(signal.SIGINT)
            assert list(events) == []
        process.wait(EVENT_TIMEOUT_S)
        assert process.stderr is not None
        said = process.stderr.read()
        assert "Traceback" not in said
        assert "ERROR" not in said


def test_two_dashboards_of_one_node_use_two_ports_and_two_tokens(cli: Cli, node: nodes.NodeRecord) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running("--port", str(port)) as (first, _), running("--port", str(port)) as (second, process):
            assert first.base != second.base
            assert not first.base.endswith(f":{port}")
            assert first.get("/state/session")["address"] == second.get("/state/session")["address"]
            assert httpx.get(first.base + "/state/session", headers=second.headers).status_code == 401
            assert process.stderr is not None
            assert f"Port {port} is taken" in process.stderr.readline()


FIXED = "kept-between-runs_0123456789"


def test_the_environment_sets_the_token(
    cli: Cli, node: nodes.NodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_DASHBOARD_TOKEN", FIXED)
    with running("--port", "0") as (client, _):
        assert client.headers == {"Authorization": f"Bearer {FIXED}"}
        # As Prometheus does with `credentials`.
        scraped = httpx.get(client.base + "/metrics", headers=client.headers, timeout=EVENT_TIMEOUT_S)
        assert scraped.status_code == 200
        assert "# HELP" in scraped.text
        assert httpx.get(client.base + "/metrics").status_code == 401


@pytest.mark.parametrize("token", ["short", "with a space in it, long", "x" * 300, "pässword-of-someone"])
def test_a_token_that_is_not_safe_is_refused(
    token: str, cli: Cli, node: nodes.NodeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_DASHBOARD_TOKEN", token)
    done = cli.process("dashboard", "--port", "0", status=1)
    assert "SKATE_DASHBOARD_TOKEN must have 16 to 256" in done.err
    assert token not in done.err
    assert done.out == ""


def test_init_with_a_token_that_is_not_safe_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_DASHBOARD_TOKEN", "short")
    with pytest.raises(ValueError, match="SKATE_DASHBOARD_TOKEN must have 16 to 256"):
        skate.init(num_cpus=1, include_dashboard=True, dashboard_port=0)
    assert not skate.is_initialized()


def test_without_a_node_the_command_says_so(cli: Cli) -> None:
    done = cli.process("dashboard", "--port", "0", status=1)
    assert "No Skate node is running" in done.err
    assert done.out == ""


def test_an_address_that_cannot_be_used_is_an_error(cli: Cli, node: nodes.NodeRecord) -> None:
    done = cli.process("dashboard", "--host", "192.0.2.1", "--port", "0", status=1)
    assert "Cannot listen on 192.0.2.1" in done.err


def test_a_program_starts_a_dashboard_that_ends_with_its_session() -> None:
    with skate.init(num_cpus=1, include_dashboard=True, dashboard_port=0) as context:
        client = Client(context.dashboard_url)
        assert client.get("/state/session")["address"] == context["session_dir"]
        assert skate.get_runtime_context().dashboard_url == context.dashboard_url

        @skate.remote
        def url() -> str:
            return skate.get_runtime_context().dashboard_url

        assert skate.get(url.remote()) == context.dashboard_url
        (child,) = [
            each for each in psutil.Process().children() if "skate.dashboard" in " ".join(each.cmdline())
        ]
    assert not child.is_running()
    with pytest.raises(httpx.ConnectError):
        client.get("/state/session")


def test_a_session_without_a_dashboard_has_no_url() -> None:
    with skate.init(num_cpus=1) as context:
        assert context.dashboard_url == ""
        assert skate.get_runtime_context().dashboard_url == ""


def test_the_dashboard_of_a_killed_program_ends() -> None:
    program = """
import os, skate
context = skate.init(num_cpus=1, include_dashboard=True, dashboard_port=0, log_to_driver=False)
print(context.dashboard_url, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    client = Client(done.stdout.strip())

    def is_gone() -> bool:
        try:
            client.get("/state/session")
        except httpx.TransportError:
            return True
        return False

    eventually(is_gone)


def test_the_inline_engine_has_no_dashboard(caplog: pytest.LogCaptureFixture) -> None:
    with skate.init(engine="inline", num_cpus=1, include_dashboard=True, configure_logging=False) as context:
        assert context.dashboard_url == ""
    assert "include_dashboard=True has no effect" in caplog.text
