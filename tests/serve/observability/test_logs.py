"""The logs of Serve, and the request that each line belongs to."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import skate
from skate import serve
from skate.serve._observability import access_log as access
from skate.serve._observability.access_log import AccessLog
from skate.serve._observability.logs import Component, ServeLogs
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve.schema import LoggingConfig
from tests.serve.conftest import light
from tests.serve.waiting import until

logger = logging.getLogger("skate.serve")


@light
class Logs:
    """Logs under a request, and says where."""

    async def __call__(self, request: Any) -> dict[str, str]:
        logger.info("from a coroutine")
        logger.debug("in detail")
        logging.getLogger("ray.serve").info("by another name")
        logging.getLogger("skate.serve.mine").info("from below", extra={"model": "small"})
        return await self.where()

    def in_a_thread(self) -> None:
        logger.info("from a thread %s", threading.current_thread().name)

    async def fail(self) -> None:
        raise LookupError("nothing there")

    async def where(self) -> dict[str, str]:
        file = logger.handlers[1].target  # type: ignore[attr-defined]  # as programs for Ray find their file
        return {"file": file.baseFilename, "replica": serve.get_replica_context().replica_tag}


def get(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=60) as response:
        return json.load(response)


def until_lines(path: str, *wanted: str) -> list[str]:
    """Wait until a file has lines in which these expressions are found."""

    def lines() -> list[str] | None:
        found = Path(path).read_text().splitlines()
        return found if all(any(re.search(each, line) for line in found) for each in wanted) else None

    found: list[str] = until(lines, lambda: f"{wanted} not in:\n{Path(path).read_text()}")
    return found


def test_each_request_is_a_line_in_the_file_of_its_replica(run: Callable[..., Any], url: str) -> None:
    handle = run(Logs.bind(), name="lines", route_prefix="/lines")
    found = get(f"{url}/lines/below", **{"x-request-id": "my-request"})
    session = skate.get_runtime_context().get_session_dir()
    assert found["file"] == f"{session}/logs/serve/replica_lines_Logs_{found['replica']}.log"
    handle.in_a_thread.remote().result()
    with pytest.raises(LookupError):
        handle.fail.remote().result()
    head = rf"INFO \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} lines_Logs {found['replica']} "
    until_lines(
        found["file"],
        head + r"my-request -- GET /lines 200 \d+\.\dms$",
        head + r"[-0-9a-f]{36} -- CALL in_a_thread OK \d+\.\dms$",
        r"ERROR .* -- CALL fail ERROR \d+\.\dms: ",
        r"LookupError: nothing there",
    )


def test_records_of_users_say_which_request_they_belong_to(run: Callable[..., Any], url: str) -> None:
    handle = run(Logs.bind(), name="users", route_prefix="/users")
    found = get(f"{url}/users", **{"x-request-id": "theirs"})
    response = handle.in_a_thread.remote()
    response.result()
    lines = until_lines(
        found["file"],
        "theirs -- from a coroutine$",
        "theirs -- by another name$",
        "theirs -- from below$",
        rf"{response.request_id} -- from a thread",
    )
    assert not any("in detail" in line for line in lines)


def test_lines_may_be_json(run: Callable[..., Any], url: str) -> None:
    run(
        Logs.options(
            logging_config={"encoding": "JSON", "additional_log_standard_attrs": ["funcName"]}
        ).bind(),
        name="json",
        route_prefix="/json",
    )
    found = get(f"{url}/json", **{"x-request-id": 'with "quotes"'})
    lines = [json.loads(line) for line in until_lines(found["file"], "GET /json 200")]
    by_message = {line["message"].rpartition(" ")[0] or line["message"]: line for line in lines}
    of_request = {
        "request_id": 'with "quotes"',
        "route": "/json",
        "application": "json",
        "deployment": "json_Logs",
        "replica": found["replica"],
        "component_name": "replica",
        "levelname": "INFO",
    }
    assert of_request.items() <= by_message["from a"].items()
    assert by_message["from a"]["funcName"] == "__call__"
    assert by_message["from"]["model"] == "small"
    access_line = by_message["GET /json 200"]
    assert {**of_request, "method": "GET", "status": "200"}.items() <= access_line.items()
    assert access_line["latency_ms"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", access_line["asctime"])


def test_the_deployments_own_settings_go_before_those_of_the_application(
    run: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    config = LoggingConfig(log_level="DEBUG", logs_dir=str(tmp_path))
    run(Logs.bind(), name="given", route_prefix="/given", logging_config=config)
    found = get(f"{url}/given")
    assert Path(found["file"]).parent == tmp_path
    until_lines(found["file"], "in detail$")
    own = Logs.options(logging_config={"log_level": "INFO", "logs_dir": str(tmp_path)})
    run(own.bind(), name="own", route_prefix="/own", logging_config=config)
    found = get(f"{url}/own")
    assert not any("in detail" in line for line in until_lines(found["file"], "from a coroutine$"))


def test_running_replicas_take_other_settings(run: Callable[..., Any], url: str) -> None:
    app = Logs.options(_internal=True, version="1")
    run(app.bind(), name="change", route_prefix="/change")
    before = get(f"{url}/change")
    run(app.options(logging_config={"log_level": "DEBUG"}).bind(), name="change", route_prefix="/change")

    def in_detail() -> bool:
        found = get(f"{url}/change")
        assert found == before
        return "in detail" in Path(found["file"]).read_text()

    until(in_detail)


def test_the_access_log_can_be_turned_off(run: Callable[..., Any], url: str) -> None:
    run(Logs.options(logging_config={"enable_access_log": False}).bind(), name="off", route_prefix="/off")
    found = get(f"{url}/off")
    get(f"{url}/off")
    lines = until_lines(found["file"], "from a coroutine$")
    assert not any(" 200 " in line for line in lines)


def test_a_configuration_that_makes_no_sense_is_refused(run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="log_level"):
        run(Logs.bind(), logging_config={"log_level": "LOUD"})


class _Here:
    """An access log in this process, on a loop of the test."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.logs = ServeLogs(Component("replica", ReplicaID("r1", DeploymentID("d", "a"))))
        self.access = AccessLog(self.logs)
        self.logs.configure({"logs_dir": str(folder), **config})
        self.file = folder / "replica_a_d_r1.log"

    def request(self, number: int = 0) -> None:
        self.access.add(f"id{number}", "/", "GET", "/", "200", 0.0015)


@pytest.fixture
def open_here(tmp_path: Path) -> Iterator[Callable[[], _Here]]:
    """Return what opens the logs: in the test itself, as pytest listens to loggers that were closed to it before."""
    opened: list[_Here] = []

    def go() -> _Here:
        opened.append(_Here(tmp_path))
        return opened[-1]

    yield go
    for each in opened:
        each.logs.close()


def test_lines_are_written_together_and_before_a_record(open_here: Callable[[], _Here]) -> None:
    here = open_here()

    async def go() -> None:
        here.request(1)
        here.request(2)
        assert here.file.read_text() == ""
        logger.info("a record")

    asyncio.run(go())
    assert [line.partition("r1 ")[2] for line in here.file.read_text().splitlines()] == [
        "id1 -- GET / 200 1.5ms",
        "id2 -- GET / 200 1.5ms",
        "-- a record",
    ]


def test_lines_are_written_when_a_moment_has_passed(open_here: Callable[[], _Here]) -> None:
    here = open_here()

    async def go() -> None:
        written = asyncio.Event()
        assert here.logs.file is not None
        write = here.logs.file.write

        def note(text: str) -> None:
            write(text)
            written.set()

        here.logs.file.write = note  # type: ignore[method-assign]  # to be told
        here.request()
        await written.wait()

    asyncio.run(asyncio.wait_for(go(), 60))
    assert "GET / 200" in here.file.read_text()


def test_requests_are_not_shown_on_standard_error_unless_asked_for(
    open_here: Callable[[], _Here], capsys: pytest.CaptureFixture[str]
) -> None:
    here = open_here()

    async def go() -> None:
        here.request()
        here.access.write()

    asyncio.run(go())
    assert capsys.readouterr().err == ""
    assert "GET / 200" in here.file.read_text()


def test_standard_error_shows_no_more_than_a_person_can_read(
    open_here: Callable[[], _Here], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_SERVE_LOG_TO_STDERR", "1")
    here = open_here()

    async def go() -> None:
        for number in range(access.MAX_LINES_ON_STDERR + 5):
            here.request(number)
        here.access.write()

    asyncio.run(go())
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == access.MAX_LINES_ON_STDERR + 1
    assert shown[-1] == f"… and 5 further requests: see {here.file}"
    assert len(here.file.read_text().splitlines()) == access.MAX_LINES_ON_STDERR + 5


def test_somebody_elses_handler_gets_records_of_requests(open_here: Callable[[], _Here]) -> None:
    here = open_here()

    heard: list[logging.LogRecord] = []

    class Listens(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    handler = Listens()
    logger.addHandler(handler)
    try:
        asyncio.run(_once(here.request))
    finally:
        logger.removeHandler(handler)
    assert [record.getMessage() for record in heard] == ["GET / 200 1.5ms"]


async def _once(function: Callable[[], None]) -> None:
    function()


def test_what_is_printed_may_go_to_the_file(
    open_here: Callable[[], _Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_SERVE_LOG_TO_STDERR", "0")
    here = open_here()
    print("printed\non two lines")
    sys.stderr.write("complained")
    here.logs.close()
    print("for the terminal")
    written = here.file.read_text()
    assert "-- printed\non two lines\n" in written
    assert "-- complained\n" in written
    assert "terminal" not in written


def test_a_line_may_end_with_the_address_of_the_client(open_here: Callable[[], _Here]) -> None:
    here = open_here()

    async def go() -> None:
        here.access.add("id", "/", "GET", "/", "200", 0.0015, " 10.0.0.1:2345")
        here.access.write()

    asyncio.run(go())
    assert here.file.read_text().endswith("-- GET / 200 1.5ms 10.0.0.1:2345\n")


def test_a_level_that_is_turned_up_silences_requests(open_here: Callable[[], _Here]) -> None:
    here = open_here()

    assert here.logs.logs_access
    logger.setLevel(logging.ERROR)
    assert not here.logs.logs_access


def test_a_file_that_is_full_is_put_aside(
    open_here: Callable[[], _Here], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKATE_ROTATION_MAX_BYTES", "100")
    monkeypatch.setenv("RAY_ROTATION_BACKUP_COUNT", "1")
    here = open_here()

    async def go() -> None:
        for number in range(3):
            here.request(number)
            here.access.write()

    asyncio.run(go())
    assert "id2" in here.file.read_text()
    assert "id1" in Path(f"{here.file}.1").read_text()


def test_names_of_files_have_no_odd_characters() -> None:
    id = ReplicaID("r1", DeploymentID("my deployment/1", "app:x"))
    assert Component("replica", id).file_stem == "replica_app_x_my_deployment_1_r1"
