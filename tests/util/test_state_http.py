"""The state API with the URL of a dashboard: the same answers as from the node, and servers that do not answer so."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import skate
from skate._api import nodes
from skate._api.dashboard_client import RefusedError
from skate.util import state
from skate.util.state import StateApiClient
from skate.util.state.common import ListApiOptions, StateResource
from skate.util.state.exception import InvalidQueryError, RayStateApiException, ServerUnavailable
from tests.dashboard.processes import running
from tests.plugins.command_line import Cli


@skate.remote(num_cpus=0.1)
class Speaker:
    def say(self, text: str) -> None:
        print(text, flush=True)


@pytest.fixture
def url(cli: Cli, node: nodes.NodeRecord) -> Iterator[str]:
    """The URL of a dashboard, with its token."""
    with running("--port", "0") as (client, _):
        yield f"{client.base}/?token={client.headers['Authorization'].removeprefix('Bearer ')}"


@pytest.fixture
def actor(url: str, node: nodes.NodeRecord) -> Iterator[str]:
    """The id of an actor that has printed two lines."""
    skate.init(node.folder, log_to_driver=False)
    made = Speaker.remote()
    skate.get(made.say.remote("first\nsecond"))
    yield made._actor_id.hex()
    skate.shutdown()


def test_lists_rows_and_summaries_are_those_of_the_node(url: str, actor: str) -> None:
    for detail in (False, True):
        assert state.list_actors(url, detail=detail) == state.list_actors(detail=detail)
        assert state.list_jobs(url, detail=detail) == state.list_jobs(detail=detail)
        assert state.list_nodes(url, detail=detail) == state.list_nodes(detail=detail)
    assert state.list_placement_groups(url) == []
    assert state.list_runtime_envs(url) == []
    assert state.list_cluster_events(url) == []
    finished = [("state", "=", "FINISHED")]
    tasks = state.list_tasks(url, filters=finished)
    assert tasks == state.list_tasks(filters=finished)
    assert [task.task_id for task in state.list_tasks(url, filters=finished, limit=1)] == [tasks[0].task_id]
    assert state.get_actor(actor, url) == state.get_actor(actor)
    assert state.get_task(tasks[0].task_id, url) == state.get_task(tasks[0].task_id)
    assert state.get_node(skate.nodes()[0]["NodeID"], url).state == "ALIVE"  # type: ignore[union-attr]
    (job,) = state.list_jobs()
    assert state.get_job(str(job.job_id), url) == state.get_job(str(job.job_id))
    assert state.get_actor("00", url) is None
    assert state.get_objects("00", url) == []
    assert state.summarize_tasks(url) == state.summarize_tasks()
    assert state.summarize_actors(url) == state.summarize_actors()
    assert state.summarize_objects(url)["cluster"]["summary_by"] == "callsite"


def test_memory_and_explanations_are_those_of_the_node(url: str, actor: str) -> None:
    kept = skate.put(bytes(1_000_000))
    (largest,) = state.memory(url, limit=1)["objects"]
    assert largest["id"] == kept.hex()
    assert state.why(kept, url) == state.why(kept)


def test_logs_are_read_and_followed(url: str, actor: str, node: nodes.NodeRecord) -> None:
    assert state.list_logs(url) == state.list_logs()
    assert state.list_logs(url, glob_filter="worker-*").keys() == {"worker_out"}
    assert "".join(state.get_log(url, actor_id=actor)) == "first\nsecond\n"
    assert "".join(state.get_log(url, actor_id=actor, tail=1)) == "second\n"
    assert b"".join(state.get_log(url, actor_id=actor, encoding=None)) == b"first\nsecond\n"  # type: ignore[arg-type]
    with pytest.raises(InvalidQueryError, match=r"There is no log 'missing\.log'"):
        next(state.get_log(url, filename="missing.log"))
    followed = state.get_log(url, actor_id=actor, follow=True, tail=1)
    assert next(followed) == "second\n"
    nodes.stop()
    assert "".join(followed) == ""


def test_queries_that_the_server_refuses_are_invalid(url: str) -> None:
    with pytest.raises(InvalidQueryError, match="Cannot filter by 'colour'"):
        state.list_actors(url, filters=[("colour", "=", "red")])
    with pytest.raises(InvalidQueryError, match="A filter must be"):
        state.list_actors(url, filters=[("colour", "red")])  # type: ignore[list-item]
    with pytest.raises(InvalidQueryError, match="The limit must be"):
        state.list_actors(url, limit=0)
    with pytest.raises(InvalidQueryError, match="cannot be looked up by id"):
        StateApiClient(url).get(StateResource.RUNTIME_ENVS, "00")
    skate.init("auto")
    skate.get(Speaker.remote().say.remote("x"))
    with pytest.warns(UserWarning, match="1 of 2 workers are shown"):
        StateApiClient(url).list(StateResource.WORKERS, ListApiOptions(limit=1), True, _explain=True)


def test_a_request_needs_the_token(url: str) -> None:
    base, _, token = url.partition("/?token=")
    client = StateApiClient(url)
    assert client.get_address() == base
    headers = {"Authorization": f"Bearer {token}"}
    options = ListApiOptions()
    assert len(StateApiClient(base, headers=headers).list(StateResource.NODES, options)) == 1
    port = base.rpartition(":")[2]
    cookies = {f"skate_token_{port}": token}
    assert len(StateApiClient(base, cookies=cookies).list(StateResource.NODES, options)) == 1
    with pytest.raises(RayStateApiException, match=r"status 401.*Pass the URL with its token"):
        state.list_nodes(base)
    with pytest.raises(RayStateApiException, match="status 401"):
        next(state.get_log(f"{base}/?token=wrong", filename="node.log"))


def test_the_default_url_of_rays_dashboard_is_the_node_on_this_machine(node: nodes.NodeRecord) -> None:
    assert StateApiClient("http://127.0.0.1:8265").get_address() == node.folder
    assert len(state.list_nodes("http://localhost:8265")) == 1
    skate.init(node.folder)
    assert len(state.list_nodes("http://localhost:8265")) == 1


def test_the_environment_may_have_the_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_ADDRESS", url)
    assert StateApiClient().get_address() == url.partition("/?")[0]
    assert len(state.list_nodes()) == 1


def test_the_command_line_takes_the_url(cli: Cli, url: str, actor: str) -> None:
    done = cli("list", "actors", "--address", url, "--format", "json")
    assert [row["actor_id"] for row in json.loads(done.out)] == [actor]
    assert actor in cli("get", "actors", actor, "--address", url).out
    assert "Speaker" in cli("summary", "actors", "--address", url).out
    assert "node.log" in cli("logs", "--address", url).out
    assert cli("logs", "--actor", actor, "--address", url).out == "first\nsecond\n"
    assert "No log matches" in cli("logs", "missing", "--address", url, status=1).err
    assert "status 401" in cli("list", "actors", "--address", url.partition("/?")[0], status=1).err


def test_commands_that_need_the_node_say_so(cli: Cli, url: str) -> None:
    said = cli("status", "--address", url, status=1).err
    assert "the address is that of a dashboard" in said
    assert url.partition("token=")[2] not in said


def test_a_url_without_a_server_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ServerUnavailable, match=f"127.0.0.1:{port} does not answer"):
        state.list_nodes(f"http://127.0.0.1:{port}")


@contextmanager
def server_with(status: int, body: bytes) -> Iterator[str]:
    """A server that answers everything in the same way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"<html>", "something other than JSON"),
        (200, b"[1]", "did not answer /api/v0/nodes"),
        (200, b'{"result": false, "msg": "on fire", "data": {}}', "on fire"),
        (500, b'{"result": false, "msg": "on fire", "data": {}}', "on fire"),
        (502, b"bad gateway", "status 502: bad gateway"),
    ],
)
def test_another_answer_is_explained(status: int, body: bytes, says: str) -> None:
    with server_with(status, body) as url, pytest.raises(RayStateApiException, match=says):
        state.list_nodes(url)


def test_incomplete_output_is_an_error_unless_it_is_wanted() -> None:
    rows = {"total": 9, "num_after_truncation": 1, "num_filtered": 1, "result": [{"node_id": "aa", "new": 1}]}
    with server_with(200, json.dumps({"result": True, "msg": "", "data": {"result": rows}}).encode()) as url:
        with pytest.raises(RayStateApiException, match="The server knows 1 of 9 nodes"):
            state.list_nodes(url)
        (row,) = state.list_nodes(url, raise_on_missing_output=False)
    # A column that the server does not have is None, and one that only newer versions have is left out.
    assert (row.node_id, row["state"], "new" in row.columns()) == ("aa", None, False)


def test_an_answer_that_ends_early_is_an_error(url_of_a_torn_answer: str) -> None:
    with pytest.raises(ServerUnavailable, match="ended its answer early"):
        state.list_nodes(url_of_a_torn_answer)
    with pytest.raises(ServerUnavailable, match="ended its answer early"):
        list(state.get_log(url_of_a_torn_answer, filename="node.log"))


@pytest.fixture
def url_of_a_torn_answer() -> Iterator[str]:
    """A server that closes the connection before the end of a chunk."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                connection, _address = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_the_error_of_a_server_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(RefusedError(401, "no", "Pass the token.")))
    assert (str(error), error.status, error.text) == (
        "The server refused the request with status 401: no Pass the token.",
        401,
        "no",
    )
