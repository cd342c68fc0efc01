"""OpenTelemetry spans of tasks, actors and the libraries, with a startup hook."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import skate
from skate.exceptions import RuntimeEnvSetupError

pytest.importorskip("opentelemetry.sdk.trace")

from tests.conftest import ENGINES
from tests.plugins.command_line import Cli
from tests.span_files import FOLDER, HOOK, SpanTree
from tests.test_extras import said


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SpanTree]:
    """End the session, so that its processes have written all spans, and return them."""
    folder = tmp_path / "spans"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))

    def read() -> SpanTree:
        skate.shutdown()
        return SpanTree(folder)

    return read


@pytest.fixture(params=ENGINES)
def traced(request: pytest.FixtureRequest, spans: Callable[[], SpanTree]) -> Iterator[Callable[[], SpanTree]]:
    """Start a session with tracing on each engine; return the function that ends it and reads the spans."""
    skate.init(engine=request.param, num_cpus=2, _tracing_startup_hook=HOOK)
    yield spans
    skate.shutdown()


def call(name: str) -> list[str]:
    """Return the names of a call's two spans."""
    return [f"{name} ray.remote", f"{name} ray.remote_worker"]


@skate.remote
def double(x: int) -> int:
    return 2 * x


@skate.remote
def nested(x: int) -> int:
    return skate.get(double.remote(x))


@skate.remote
def count(number: int) -> Iterator[int]:
    for x in range(number):
        yield skate.get(double.remote(x))


@skate.remote
class Counter:
    def __init__(self, start: int, *, step: int = 1) -> None:
        self.value = start
        self.step = step

    def add(self, x: int, *, times: int = 1) -> int:
        self.value += skate.get(double.remote(x)) * times
        return self.value

    def items(self, number: int) -> Iterator[int]:
        for x in range(number):
            yield skate.get(double.remote(x))

    def fail(self) -> None:
        raise LookupError("nothing there")


@skate.remote
class Async:
    async def double(self, x: int) -> int:
        return await double.remote(x)

    async def items(self, number: int) -> AsyncIterator[int]:
        for x in range(number):
            yield await double.remote(x)


DOUBLE, NESTED, COUNT = (f"{__name__}.{name}" for name in ("double", "nested", "count"))


def test_a_task_runs_under_the_span_of_its_submission(traced: Callable[[], SpanTree]) -> None:
    assert skate.get(nested.remote(double.remote(1))) == 4
    found = traced()
    submitted, ran = (found.one(name) for name in call(NESTED))
    assert (submitted["kind"], ran["kind"]) == ("SpanKind.PRODUCER", "SpanKind.CONSUMER")
    assert submitted["parent_id"] is None
    assert found.path(ran) == call(NESTED)
    assert found.paths(call(DOUBLE)[1]) == [call(DOUBLE), [*call(NESTED), *call(DOUBLE)]]
    assert ran["attributes"]["ray.function"] == NESTED
    assert ran["attributes"]["ray.remote"] == "function"
    assert len(ran["attributes"]["ray.task_id"]) == 48
    assert ran["attributes"]["ray.job_id"] == submitted["attributes"]["ray.job_id"]


def test_the_spans_of_a_program_are_parents(traced: Callable[[], SpanTree]) -> None:
    from opentelemetry import trace

    with trace.get_tracer("mine").start_as_current_span("mine"):
        skate.get(double.remote(1))
    assert traced().paths(call(DOUBLE)[1]) == [["mine", *call(DOUBLE)]]


def test_the_spans_of_a_task_are_children(traced: Callable[[], SpanTree]) -> None:
    @skate.remote
    def work() -> None:
        from opentelemetry import trace

        with trace.get_tracer("theirs").start_as_current_span("theirs"):
            pass

    skate.get(work.remote())
    found = traced()
    assert found.paths("theirs") == [[*call(f"{__name__}.work"), "theirs"]]


def test_a_generator_is_one_span_until_its_end(traced: Callable[[], SpanTree]) -> None:
    assert [skate.get(each) for each in count.remote(2)] == [0, 2]
    found = traced()
    assert found.paths(call(DOUBLE)[1]) == [[*call(COUNT), *call(DOUBLE)]] * 2
    assert (
        max(span["end_time"] for span in found.named(call(DOUBLE)[1])) < found.one(call(COUNT)[1])["end_time"]
    )


def test_a_generator_that_nobody_reads_to_its_end_ends_its_span(traced: Callable[[], SpanTree]) -> None:
    counter = Counter.remote(1)
    items = counter.items.options(_generator_backpressure_num_objects=1).remote(100)
    assert skate.get(next(items)) == 0
    del items
    skate.get(counter.add.remote(1))  # runs after the generator
    found = traced()
    assert found.one(call("Counter.items")[1])["status"]["status_code"] == "UNSET"


def test_calls_of_an_actor_run_under_the_spans_of_their_submission(traced: Callable[[], SpanTree]) -> None:
    counter = Counter.remote(1, step=double.remote(1))
    assert skate.get(counter.add.remote(2, times=double.remote(1))) == 9
    assert [skate.get(each) for each in counter.items.remote(1)] == [0]
    assert skate.get(counter.__ray_ready__.remote()) is True
    found = traced()
    for name in ("__init__", "add", "items", "__ray_ready__"):
        assert found.paths(call(f"Counter.{name}")[1]) == [call(f"Counter.{name}")]
    inner = [path for path in found.paths(call(DOUBLE)[1]) if len(path) > 2]
    assert inner == [[*call(f"Counter.{name}"), *call(DOUBLE)] for name in ("add", "items")]
    attributes = found.one("Counter.add ray.remote_worker")["attributes"]
    assert (attributes["ray.actor_class"], attributes["ray.actor_method"]) == ("Counter", "add")
    assert attributes["ray.actor_id"] == found.one("Counter.add ray.remote")["attributes"]["ray.actor_id"]


def test_coroutines_that_overlap_keep_their_contexts(traced: Callable[[], SpanTree]) -> None:
    actor = Async.remote()
    assert sorted(skate.get([actor.double.remote(x) for x in range(4)])) == [0, 2, 4, 6]
    assert [skate.get(each) for each in actor.items.remote(2)] == [0, 2]
    found = traced()
    calls = [path for path in found.paths(call(DOUBLE)[1]) if "Async.double ray.remote" in path]
    assert calls == [[*call("Async.double"), *call(DOUBLE)]] * 4
    parents = {span["parent_id"] for span in found.named(call(DOUBLE)[0])}
    assert len(parents) == 5  # four calls, and one generator
    assert found.paths(call("Async.items")[1]) == [call("Async.items")]


def test_an_error_is_in_the_span_of_the_execution(traced: Callable[[], SpanTree]) -> None:
    counter = Counter.remote(1)
    with pytest.raises(LookupError):
        skate.get(counter.fail.remote())
    found = traced()
    ran = found.one("Counter.fail ray.remote_worker")
    assert ran["status"] == {"status_code": "ERROR", "description": "LookupError: nothing there"}
    assert [event["name"] for event in ran["events"]] == ["exception"]
    assert found.one("Counter.fail ray.remote")["status"]["status_code"] == "UNSET"


async def test_await_in_the_driver_has_the_context_of_its_task(traced: Callable[[], SpanTree]) -> None:
    from opentelemetry import trace

    async def under(name: str) -> int:
        with trace.get_tracer("mine").start_as_current_span(name):
            return await double.remote(1)

    await asyncio.gather(under("a"), under("b"))
    paths = traced().paths(call(DOUBLE)[1])
    assert sorted(paths) == [["a", *call(DOUBLE)], ["b", *call(DOUBLE)]]


def test_a_session_without_the_hook_has_no_spans(spans: Callable[[], SpanTree]) -> None:
    skate.init(num_cpus=1, _tracing_startup_hook=HOOK)
    skate.get(double.remote(1))
    skate.shutdown()
    skate.init(num_cpus=1)
    skate.get(nested.remote(1))
    assert spans().names() == call(DOUBLE)


PLAIN = """
import skate

@skate.remote(name="plain", namespace="n", lifetime="detached")
class Plain:
    def add(self, x, y=0):
        return x + y

skate.init(address="auto")
print(skate.get(Plain.remote().add.remote(1)))
"""


def test_an_actor_of_a_job_without_tracing_can_be_called(spans: Callable[[], SpanTree], cli: Cli) -> None:
    cli("start", "--num-cpus", "1")
    try:
        cli.program(PLAIN)
        skate.init(address="auto", _tracing_startup_hook=HOOK)
        plain = skate.get_actor("plain", namespace="n")
        assert skate.get(plain.add.remote(1, y=2)) == 3
        assert spans().names() == ["Plain.add ray.remote"]
    finally:
        skate.shutdown()
        cli("stop")


def test_the_hook_of_a_long_lived_node_runs_in_its_programs(spans: Callable[[], SpanTree], cli: Cli) -> None:
    cli("start", "--num-cpus", "1", "--tracing-startup-hook", HOOK)
    try:
        skate.init(address="auto")
        assert skate.get(double.remote(1)) == 2
    finally:
        skate.shutdown()
        cli("stop")
    assert spans().paths(call(DOUBLE)[1]) == [call(DOUBLE)]


def test_a_hook_is_checked_before_a_node_starts(cli: Cli) -> None:
    done = cli("start", "--tracing-startup-hook", "nothing", status=1)
    assert "must have the form 'module:function', not 'nothing'" in done.err


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("hook", "error", "text"),
    [
        (3, TypeError, "must be a string 'module:function', not 3"),
        ("module", ValueError, "must have the form 'module:function', not 'module'"),
        ("no.such.module:hook", ImportError, "put it in a folder of PYTHONPATH"),
        ("tests.span_files:missing", AttributeError, "'tests.span_files:missing' does not exist"),
        ("tests.span_files:not_callable", TypeError, "must name a function, not 3"),
        ("tests.span_files:fail", LookupError, "no collector"),
    ],
)
def test_a_wrong_hook_is_an_error(engine: str, hook: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        skate.init(engine=engine, num_cpus=1, _tracing_startup_hook=hook)
    assert not skate.is_initialized()
    with skate.init(engine=engine, num_cpus=1):
        assert skate.get(double.remote(1)) == 2


def test_a_hook_that_fails_in_a_worker_fails_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_IN_PROCESSES_OTHER_THAN", str(os.getpid()))
    skate.init(num_cpus=1, _tracing_startup_hook="tests.span_files:fail_elsewhere")
    try:
        with pytest.raises(RuntimeEnvSetupError, match=r"span_files:fail_elsewhere' failed in a worker"):
            skate.get(double.remote(1))
    finally:
        skate.shutdown()


def test_a_missing_sdk_is_told_with_the_extra_that_has_it() -> None:
    program = "import skate; skate.init(_tracing_startup_hook='a:b')"
    assert said(program, without="opentelemetry") == (
        "ImportError: The tracing startup hook 'a:b' needs OpenTelemetry's SDK: pip install 'skate[otel]'"
    )


NOT_IMPORTED = """
import sys
import skate

@skate.remote
def imported():
    return [name for name in sys.modules if name.startswith("opentelemetry")]

@skate.remote
class Actor:
    def imported(self):
        return [name for name in sys.modules if name.startswith("opentelemetry")]

skate.init(engine=sys.argv[1], num_cpus=1)
print(skate.get([imported.remote(), Actor.remote().imported.remote()]))
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_of_opentelemetry_is_imported_without_a_hook(engine: str) -> None:
    command = [sys.executable, "-c", NOT_IMPORTED, engine]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["[[], []]", "[]"]


def test_the_hook_of_rays_documentation_writes_lines_of_json(tmp_path: Path) -> None:
    program = """
import sys
import skate
from skate.util.tracing import setup_local_tmp_tracing as setup

setup.spans_dir = sys.argv[1]
skate.init(engine="inline", _tracing_startup_hook=f"{setup.__name__}:setup_tracing")
skate.get(skate.remote(abs).remote(-1))
"""
    folder = tmp_path / "spans"
    command = [sys.executable, "-c", program, str(folder)]
    subprocess.run(command, check=True, timeout=120)
    (file,) = folder.iterdir()
    names = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert names == call("builtins.abs")[::-1]


# ------------------------------------------------------------ the libraries


def test_the_tasks_of_a_dataset_are_under_their_operators(traced: Callable[[], SpanTree]) -> None:
    from skate import data

    class Twice:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            skate.get(double.remote(1))
            return {"id": batch["id"] * 2}

    dataset = data.range(8, override_num_blocks=2).map_batches(Twice, concurrency=1)
    dataset.set_name("numbers")
    assert sum(row["id"] for row in dataset.take_all()) == 56
    found = traced()
    run = found.one("dataset numbers")
    assert run["parent_id"] is None
    inner = found.paths(call(DOUBLE)[1])
    assert inner
    for path in inner:
        assert path[0] == "dataset numbers"
        assert path[1] == "MapBatches(Twice)"
        assert path[2:] == [*call("WorkerActor.run"), *call(DOUBLE)]
    assert found.one("MapBatches(Twice)")["attributes"]["rows"] == 8
    assert found.one("MapBatches(Twice)")["end_time"] <= run["end_time"]


def test_a_dataset_that_fails_ends_its_span_with_the_error(traced: Callable[[], SpanTree]) -> None:
    from skate import data

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("nothing there")

    dataset = data.range(8, override_num_blocks=2).map(fail)
    dataset.set_name("broken")
    with pytest.raises(LookupError):
        dataset.take_all()
    assert traced().one("dataset broken")["status"]["status_code"] == "ERROR"


def test_each_training_worker_has_a_span_under_its_run(
    traced: Callable[[], SpanTree], tmp_path: Path
) -> None:
    from skate import train
    from skate.train.data_parallel_trainer import DataParallelTrainer

    def work() -> None:
        skate.get(double.remote(1))
        train.report({"loss": 1.0})

    workers = 1 if skate.get_runtime_context()._engine.name == "inline" else 2
    DataParallelTrainer(
        work,
        scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(name="numbers", storage_path=str(tmp_path)),
    ).fit()
    found = traced()
    paths = found.paths(call(DOUBLE)[1])
    assert len(paths) == workers
    for rank, path in enumerate(sorted(paths)):
        assert path[0] == "train numbers"
        assert path[-3:] == [f"train worker {rank}", *call(DOUBLE)]


def test_trials_are_under_their_experiment(traced: Callable[[], SpanTree], tmp_path: Path) -> None:
    from skate import tune

    def work(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": skate.get(double.options(num_cpus=0).remote(config["x"]))}

    tune.Tuner(
        work,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(name="numbers", storage_path=str(tmp_path), verbose=0),
    ).fit()
    paths = traced().paths(call(DOUBLE)[1])
    assert len(paths) == 2
    assert {path[0] for path in paths} == {"tune numbers"}


def test_a_request_is_traced_from_its_client_to_the_last_deployment(traced: Callable[[], SpanTree]) -> None:
    from skate import serve
    from skate.serve._controller.client import connect

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Behind:
        async def __call__(self) -> int:
            return await double.remote(1)

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Front:
        def __init__(self, behind: Any) -> None:
            self.behind = behind

        async def __call__(self, request: Any) -> str:
            return str(await self.behind.remote())

    parent = "b7ad6b7169203331"
    try:
        serve.start(http_options={"port": 0})
        serve.run(Front.bind(Behind.bind()))
        client = connect()
        assert client is not None
        address = client.http_address()
        assert address is not None
        url = f"http://{address[0]}:{address[1]}"
        request = Request(url, headers={"traceparent": f"00-{'4' * 32}-{parent}-01"})
        with urlopen(request, timeout=60) as response:
            assert response.read() == b"2"
        assert serve.get_deployment_handle("Behind", "default").remote().result() == 2
    finally:
        serve.shutdown()
    found = traced()
    way = [
        "proxy_http_request Front GET /",
        "route_to_replica Front __call__",
        "replica_handle_request Front __call__",
        "route_to_replica Behind __call__",
        "replica_handle_request Behind __call__",
        *call(DOUBLE),
    ]
    assert found.one(way[0])["parent_id"] == f"0x{parent}"
    paths = found.paths(call(DOUBLE)[1])
    assert paths == [way, way[3:]]
