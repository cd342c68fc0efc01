"""The benchmark harness: its arithmetic, table and picture on made-up figures, and one real program."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
# Harness and programs are no part of the package: scripts find them because they see their own folder.
sys.path.insert(0, str(BENCH))
sys.path.append(str(BENCH / "programs"))

import http_load  # noqa: E402
import server_rows  # noqa: E402

import run  # noqa: E402
from harness import environment, footprint, launcher, picture, table  # noqa: E402
from harness.figures import Results, RowResult, Samples, show, show_ratio  # noqa: E402
from harness.memory_picture import draw_memory  # noqa: E402
from harness.rows import IN_SERVING_VENV, PEERS, ROWS, Row, choose  # noqa: E402
from harness.runner import Settings  # noqa: E402


def row_named(name: str) -> Row:
    return choose([name])[0]


def result(name: str, skate: list[float], ray: list[float], **peers: list[float]) -> RowResult:
    systems = {"skate": skate, "ray": ray} | peers
    return RowResult(row_named(name), {system: Samples(values) for system, values in systems.items()})


@pytest.fixture
def results() -> Results:
    rows = [
        result("startup", [0.2, 0.21, 0.24], [6.0, 5.9, 6.1], mp=[0.12]),
        result("memory", [45.0], [620.0], dask=[150.0]),
        result("tasks_sync", [4_000, 5_000, 6_000], [450, 500, 550], mp=[15_000], loky=[1_700], dask=[100]),
        result("put_large", [13.0], [14.0]),
        result("fan_in", [9_000], [1_000]),
    ]
    rows[2].limits = {"socket ping-pong": Samples([54_000.0])}
    rows.append(
        RowResult(row_named("n_to_n"), {"skate": Samples(error="exit status 1: Boom"), "ray": Samples([1.0])})
    )
    return Results({"cpus": 2, "architecture": "test", "load": 0.0}, {"skate": "0", "ray": "2"}, rows)


def test_a_figure_is_found_between_other_lines() -> None:
    lines = ["(worker) hello\n", launcher.FIGURE_MARK + '{"system": "skate", "value": 12.5}\n', "bye\n"]
    assert launcher.parse_figure(lines) == 12.5
    assert launcher.parse_figure(["nothing here\n"]) is None


def test_a_failed_program_is_quoted_by_its_last_words() -> None:
    talk = io.StringIO("Traceback …\nValueError: no luck\n\n")
    assert launcher.last_words(talk, 1) == "exit status 1: ValueError: no luck"


def test_ratios_are_larger_when_skate_is_better_for_rates_and_for_costs() -> None:
    assert row_named("tasks_sync").ratio(5_000, 500) == 10
    assert row_named("startup").ratio(0.5, 5.0) == 10


def test_the_ratio_is_of_medians_and_its_range_of_rounds(results: Results) -> None:
    tasks = results.rows[2]
    assert tasks.ratio == 10
    assert tasks.ratio_range == (4_000 / 450, 6_000 / 550)
    assert tasks.systems["skate"].spread == pytest.approx(0.2)


def test_each_row_is_judged_by_its_own_bar(results: Results) -> None:
    assert [r.verdict for r in results.rows] == [
        "bar met",
        "moonshot",
        "bar met",
        "below bar",
        "faster",
        "failed",
    ]
    assert results.summary() == "3 of 4 rows with a bar reach it, 1 of them the moonshot"


def test_an_absolute_bar_needs_no_ray_and_a_relative_one_does() -> None:
    assert row_named("startup").verdict(0.3, None) == "below bar"
    assert row_named("startup").verdict(0.25, None) == "bar met"
    assert row_named("tasks_sync").verdict(1e9, None) == "not measured"
    assert row_named("memory").bar_ratios(640.0) == (8.0, 12.8)


def test_a_row_that_compares_skate_with_itself_is_not_run_on_ray() -> None:
    everyone = Settings(skate_python="python", ray_python="python", peer_python="python")
    assert everyone.systems(row_named("data_fast_consumer")) == ["skate"]
    assert row_named("data_fast_consumer").verdict(101.0, None) == "moonshot"
    assert row_named("data_fast_consumer").verdict(130.0, None) == "below bar"


def test_shared_memory_counts_once_whether_it_is_mapped_or_not() -> None:
    size = 32 << 20
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        shared = Path(name)
        before = footprint.tree_bytes(shared)
        (shared / "block").write_bytes(bytes(size))
        assert footprint.tree_bytes(shared) - before == pytest.approx(size, rel=0.1)
        code = (
            "import mmap, sys; file = open(sys.argv[1], 'r+b'); memory = mmap.mmap(file.fileno(), 0); "
            "print(memory.find(b'x'), flush=True); input()"
        )
        command = [sys.executable, "-c", code, str(shared / "block")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            mapped = footprint.tree_bytes(shared) - before
            other.communicate(b"\n")
        assert size < mapped < 2 * size, "and an interpreter"


def test_the_picture_of_memory_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    readings = footprint.Footprint([0.0, 1.0, 2.0], [10**8, 9 * 10**8, 10**8])
    draw_memory(row_named("data_slow_consumer"), {"skate": readings}, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert readings.peak == 9 * 10**8


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no such row: tasks_snyc; the rows are startup"):
        choose(["tasks_snyc"])


def test_figures_read_well() -> None:
    assert show(1350.4, "/s") == "1,350 /s"
    assert show(0.2134, "s") == "0.21 s"
    assert show(14.15, "GB/s") == "14.2 GB/s"
    assert show(None, "/s") == "–"
    assert show_ratio(21.3) == "21×"
    assert show_ratio(1.083) == "1.08×"


def test_the_plain_table_has_a_line_for_every_row(results: Results) -> None:
    lines = table.plain(results).splitlines()
    assert lines[0].split()[:3] == ["row", "Skate", "Ray"]
    assert len(lines) == 1 + len(results.rows)
    tasks = next(line for line in lines if line.startswith("tasks, sync"))
    for text in (
        "5,000 /s",
        "500 /s",
        "10×",
        "10× (20×)",
        "joblib/loky 1,700 /s",
        "ping-pong 54,000 /s",
        "bar met",
    ):
        assert text in tasks


@pytest.mark.parametrize("rich", [True, False])
def test_the_printed_table_names_the_failures_in_full(results: Results, rich: bool) -> None:
    stream = io.StringIO()
    table.print_table(results, stream, rich=rich)
    assert "n_to_n on skate: exit status 1: Boom" in stream.getvalue()
    assert "…" not in stream.getvalue()


def test_the_results_are_written_as_json(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "out" / "results.json")
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    tasks = written["rows"][2]
    assert tasks["row"] == "tasks_sync"
    assert tasks["skate"]["samples"] == [4_000, 5_000, 6_000]
    assert tasks["bar"] == {"need": 10, "moonshot": 20, "absolute": False}
    assert tasks["peers"]["mp"]["median"] == 15_000


def test_the_picture_is_drawn_when_there_is_a_ratio(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert picture.draw(results, tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    assert not picture.draw(Results({}, {}, []), tmp_path / "none.png")


def test_every_row_names_a_function_of_its_program_and_of_each_peer() -> None:
    def functions(program: str) -> set[str]:
        """Return the functions of a program, and those of `server_rows` if it runs them."""
        tree = list(ast.walk(ast.parse((BENCH / "programs" / f"{program}.py").read_text())))
        found = {node.name for node in tree if isinstance(node, ast.FunctionDef)}
        imported = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
        return found | (functions("server_rows") if "server_rows" in imported else set())

    for row in ROWS:
        for program in [row.program, *(f"peer_{peer}" for peer in row.peers)]:
            assert row.observed or row.name in functions(program), (row.name, program)
        assert set(row.peers) <= set(PEERS)
        for limit in row.limits:
            assert row.observed or limit.row in functions("limits")


def test_peers_run_only_where_an_interpreter_has_them() -> None:
    alone = Settings(skate_python="python", ray_python=None, peer_python=None)
    assert alone.systems(row_named("tasks_sync")) == ["skate"]
    everyone = Settings(skate_python="python", ray_python="python", peer_python="python")
    assert everyone.systems(row_named("wait_1k")) == ["skate", "ray", "loky", "dask"]
    assert everyone.systems(row_named("serve_http_16")) == ["skate", "ray", "uvicorn"]
    serving = Settings(skate_python="python", ray_python=None, peer_python=None, serving_python="other")
    assert serving.systems(row_named("serve_http_16")) == ["skate", "litserve", "bentoml"]
    assert {peer: serving.python_of(peer) for peer in ("litserve", "uvicorn")} == {
        "litserve": "other",
        "uvicorn": None,
    }


def test_the_venv_for_serving_is_built_only_for_rows_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(name: str) -> str:
        built.append(name)
        return f"python of {name}"

    monkeypatch.setattr(environment, "venv_python", build)
    skate = ["--systems", "skate", "--peer-python", "python"]
    run.prepare(run.parse(["--only", "tasks_sync", *skate]))
    run.prepare(run.parse(["--only", "serve_http_16", "--no-peers", *skate]))
    run.prepare(run.parse(["--only", "serve_http_16", "--serving-python", "other", *skate]))
    assert built == []
    settings = run.prepare(run.parse(["--only", "serve_http_16", *skate]))
    assert built == ["serving"]
    assert settings.python_of("bentoml") == "python of serving"
    assert settings.python_of("uvicorn") == "python"


def test_every_peer_that_serves_is_pinned_in_its_requirements() -> None:
    pinned = (BENCH / "requirements-serving.txt").read_text()
    for name in IN_SERVING_VENV:
        assert f"\n{name}==" in pinned


def report(statuses: str, errors: str = "") -> str:
    """Return what hey prints, with numbers in brackets in the histogram too."""
    return (
        "Summary:\n  Requests/sec:\t1590.3809\n\nResponse time histogram:\n  0.002 [500]\t|■■■\n\n"
        "Latency distribution:\n  95% in 0.0064 secs\n  99% in 0.0117 secs\n\n"
        f"Status code distribution:\n  {statuses} responses\n\n{errors}"
    )


def test_the_99th_percentile_is_read_from_the_report_of_hey() -> None:
    assert http_load.read_p99(report("[200]\t4788"), 1600) == 0.0117
    # Some versions print the sign twice.
    assert http_load.read_p99(report("[200]\t4788").replace("99%", "99%%"), 1600) == 0.0117


@pytest.mark.parametrize(
    "failed",
    [
        report("[200]\t4787\n  [503]\t1"),
        report(
            "[200]\t4776", 'Error distribution:\n  [12]\tGet "http://127.0.0.1:8000/": connection refused\n'
        ),
    ],
    ids=["a status", "a connection"],
)
def test_no_percentile_is_taken_when_a_request_failed(failed: str) -> None:
    with pytest.raises(SystemExit, match=r"\nnot all requests succeeded$"):
        http_load.read_p99(failed, 1600)


def test_no_percentile_is_taken_when_fewer_requests_came_than_asked_for() -> None:
    with pytest.raises(SystemExit, match=r"\n1590.3809 requests a second came through instead of 2000.0$"):
        http_load.read_p99(report("[200]\t4788"), 2000)


@pytest.mark.parametrize("body", [None, '{"a": 1}'], ids=["GET", "POST"])
def test_a_server_of_a_peer_answers_while_it_is_measured_and_is_gone_afterwards(
    body: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "import sys\n"
        "from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer\n"
        "class Handler(BaseHTTPRequestHandler):\n"
        "    def answer(self):\n"
        "        body = self.rfile.read(int(self.headers.get('Content-Length') or 0)).decode()\n"
        "        right = [self.command, self.path, body] == sys.argv[2:]\n"
        "        self.send_response(200 if right else 400)\n"
        "        self.end_headers()\n"
        f"        self.wfile.write(b'x' * 20 * {http_load.CHUNKS} if right else b'')\n"
        "    do_GET = do_POST = answer\n"
        "ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
    )
    target = server_rows.Target(
        command=(sys.executable, str(program), "{port}", "POST" if body else "GET", "/stream", body or ""),
        path="/stream",
        body=body,
    )
    with server_rows.serving(target) as url:
        assert http_load.stream_seconds(url, body) > 0
        with pytest.raises(SystemExit, match="a stream ended after 0 of 1000 parts"):
            http_load.stream_seconds(url + "/other", body)
    with pytest.raises(OSError, match="refused"):
        http_load.wait_for(url, body, timeout=0)


def test_a_real_program_runs_on_skate(tmp_path: Path) -> None:
    options = [
        "--only",
        "tasks_sync",
        "--quick",
        "--systems",
        "skate",
        "--no-peers",
        "--json",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (tasks,) = json.loads(done.stdout)["rows"]
    assert tasks["skate"]["median"] > 0
    assert tasks["limits"]["socket ping-pong"]["median"] > 0
    assert (tmp_path / "results.json").exists()
