from __future__ import annotations

import errno
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import skate
from skate.util import _metrics_store, metrics
from skate.util._metrics_store import Store
from skate.util.metrics import Counter, Gauge, Histogram, Metric, prometheus_text, start_server

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Give every test a store of its own, without a session."""
    fresh = Store(lambda: None)
    monkeypatch.setattr(metrics, "store", fresh)
    yield fresh
    fresh.detach()


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    """Let the store of this test keep its numbers in a session's folder."""
    place = tmp_path / "metrics"
    store.folder = lambda: str(place)
    return place


def samples(text: str | None = None) -> Samples:
    """Parse the exposition with Prometheus' own client."""
    found: Samples = {}
    for family in text_string_to_metric_families(prometheus_text() if text is None else text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(name: str, **tags: str) -> float | None:
    return samples().get(name, {}).get(frozenset(tags.items()))


def run_in_process(folder: Path, code: str, *, end: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in another process that keeps its metrics in the same folder."""
    program = f"""
import os, signal
from skate.util import metrics
from skate.util.metrics import *
metrics.store.folder = lambda: {str(folder)!r}
{code}
{end}
"""
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60)


class TestRecording:
    def test_a_counter_adds_up_by_tags(self) -> None:
        counter = Counter("jobs", description="Jobs done.", tag_keys=("kind",))
        counter.inc(tags={"kind": "a"})
        counter.inc(2.5, {"kind": "a"})
        counter.inc(1, {"kind": "b"})
        assert value("skate_jobs_total", kind="a") == 3.5
        assert value("skate_jobs_total", kind="b") == 1

    def test_two_counters_of_one_name_are_one(self) -> None:
        Counter("jobs").inc()
        Counter("jobs").inc()
        assert value("skate_jobs_total") == 2

    def test_a_counter_already_called_total_is_not_called_so_twice(self) -> None:
        Counter("jobs_total").inc()
        Counter("jobs").inc()
        assert samples() == {"skate_jobs_total": {frozenset(): 2}}

    def test_a_gauge_keeps_the_latest_value_of_each_process(self) -> None:
        gauge = Gauge("depth")
        gauge.set(4)
        gauge.set(-1.5)
        gauge.set(None)
        assert value("skate_depth", pid=str(os.getpid())) == -1.5

    def test_a_gauge_with_a_tag_called_pid_keeps_it(self) -> None:
        Gauge("depth", tag_keys=("pid",)).set(1, {"pid": "mine"})
        assert value("skate_depth", pid="mine") == 1

    def test_a_histogram_counts_cumulatively(self) -> None:
        histogram = Histogram("size", "Sizes.", [0.1, 1.6], ("k",))
        for size in (0.05, 0.1, 1.0, 7, -3):
            histogram.observe(size, {"k": "v"})
        assert value("skate_size_bucket", k="v", le="0.1") == 3
        assert value("skate_size_bucket", k="v", le="1.6") == 4
        assert value("skate_size_bucket", k="v", le="+Inf") == 5
        assert value("skate_size_count", k="v") == 5
        assert value("skate_size_sum", k="v") == pytest.approx(5.15)

    def test_an_infinite_boundary_is_the_one_there_is_anyway(self) -> None:
        histogram = Histogram("size", boundaries=[1, float("inf")])
        histogram.observe(5)
        assert samples()["skate_size_bucket"] == {
            frozenset({("le", "1.0")}): 0,
            frozenset({("le", "+Inf")}): 1,
        }
        assert histogram.info["boundaries"] == [1, float("inf")]

    def test_default_tags_are_used_and_can_be_overridden(self) -> None:
        counter = Counter("jobs", tag_keys=("a", "b")).set_default_tags({"b": "usual"})
        counter.inc(1, {"a": "1"})
        counter.inc(1, {"a": "1", "b": "other"})
        assert value("skate_jobs_total", a="1", b="usual") == 1
        assert value("skate_jobs_total", a="1", b="other") == 1

    def test_tags_that_were_not_declared_are_kept_as_in_ray(self) -> None:
        Counter("jobs", tag_keys=("a",)).inc(1, {"a": "1", "extra": "2"})
        assert value("skate_jobs_total", a="1", extra="2") == 1

    def test_threads_lose_no_increment(self) -> None:
        counter = Counter("jobs")

        def work() -> None:
            for _ in range(2000):
                counter.inc()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert value("skate_jobs_total") == 8000

    def test_many_series_outgrow_the_first_page(self, folder: Path) -> None:
        counter = Counter("jobs", tag_keys=("n",))
        for n in range(300):
            counter.inc(n + 1, {"n": str(n)})
        assert value("skate_jobs_total", n="0") == 1
        assert value("skate_jobs_total", n="299") == 300

    def test_a_pickled_metric_records_under_the_same_name(self) -> None:
        counter = Counter("jobs", "d", ("a",)).set_default_tags({"a": "1"})
        histogram = Histogram("size", boundaries=[1, 2])
        copy = pickle.loads(pickle.dumps(counter))
        assert copy.info == counter.info
        assert pickle.loads(pickle.dumps(histogram)).info == histogram.info
        counter.inc()
        copy.inc()
        assert value("skate_jobs_total", a="1") == 2


class TestValidation:
    def test_info_tells_how_a_metric_was_declared(self) -> None:
        histogram = Histogram("size", "Sizes.", [1.0, 2.0], ("a", "b"))
        assert histogram.info == {
            "name": "size",
            "description": "Sizes.",
            "tag_keys": ("a", "b"),
            "default_tags": {},
            "boundaries": [1.0, 2.0],
        }
        assert histogram.set_default_tags({"a": "x"}) is histogram
        assert histogram.info["default_tags"] == {"a": "x"}
        assert Gauge("g").info == {"name": "g", "description": "", "tag_keys": (), "default_tags": {}}

    @pytest.mark.parametrize("keys", ["a", ["a"], ("a", 1)])
    def test_tag_keys_must_be_a_tuple_of_str(self, keys: Any) -> None:
        with pytest.raises(TypeError, match=r"tag_keys must be a tuple|Tag keys must be str"):
            Counter("jobs", tag_keys=keys)

    def test_names_and_descriptions_must_be_text(self) -> None:
        with pytest.raises(TypeError, match="name must be a str, got 1"):
            Counter(1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="description must be a str"):
            Counter("jobs", description=None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="A metric needs a name"):
            Metric("")

    @pytest.mark.parametrize("name", ["with-dash", "1st", "with.dot", "with space", "ünï"])
    def test_a_bad_name_warns_and_records_nothing(self, name: str) -> None:
        with pytest.warns(UserWarning, match="Invalid metric name") as seen:
            counter = Counter(name)
        with pytest.warns(UserWarning, match="Invalid metric name") as also_seen:
            histogram = Histogram(name, boundaries=[1])
        assert {warning.filename for warning in [*seen, *also_seen]} == {__file__}
        counter.inc()
        histogram.observe(1)
        assert prometheus_text() == ""

    def test_a_colon_in_a_name_is_accepted_with_a_warning(self) -> None:
        with pytest.warns(FutureWarning, match="colon"):
            Counter("a:b").inc()
        assert value("skate_a:b_total") == 1

    @pytest.mark.parametrize("amount", [0, -1, float("nan")])
    def test_a_counter_only_grows(self, amount: float) -> None:
        with pytest.raises(ValueError, match="value must be >0"):
            Counter("jobs").inc(amount)

    @pytest.mark.parametrize("wrong", ["1", None, [1]])
    def test_values_must_be_numbers(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match="value must be int or float"):
            Counter("jobs").inc(wrong)
        with pytest.raises(TypeError, match="value must be int or float"):
            Histogram("size", boundaries=[1]).observe(wrong)
        if wrong is not None:
            with pytest.raises(TypeError, match="value must be int or float"):
                Gauge("depth").set(wrong)

    def test_every_declared_tag_needs_a_value(self) -> None:
        counter = Counter("jobs", tag_keys=("a", "b", "c")).set_default_tags({"a": "1"})
        with pytest.raises(ValueError, match=r"Missing value for tag key\(s\): b,c"):
            counter.inc()
        assert prometheus_text() == ""

    @pytest.mark.parametrize("tags", [{"a": 1}, {"a": None}])
    def test_tag_values_must_be_str(self, tags: Any) -> None:
        counter = Counter("jobs", tag_keys=("a",))
        with pytest.raises(TypeError, match="Tag values must be str"):
            counter.inc(1, tags)
        with pytest.raises(TypeError, match="Tag values must be str"):
            counter.set_default_tags(tags)

    def test_tags_must_be_a_mapping(self) -> None:
        with pytest.raises(TypeError, match="tags must be a dict"):
            Counter("jobs").inc(1, ["a"])  # type: ignore[arg-type]

    def test_a_default_for_an_undeclared_tag_is_refused(self) -> None:
        with pytest.raises(ValueError, match="Unrecognized tag key z"):
            Counter("jobs", tag_keys=("a",)).set_default_tags({"z": "1"})

    @pytest.mark.parametrize(
        ("boundaries", "message"),
        [
            (None, "needs the upper limits of its buckets"),
            ([], "needs the upper limits of its buckets"),
            ([0, 1], "must be positive.* index 0"),
            ([1, -1], "must be positive.* index 1"),
            ([2, 1], "must increase"),
            ([1, 1], "must increase"),
        ],
    )
    def test_boundaries_must_be_positive_and_rise(self, boundaries: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Histogram("size", boundaries=boundaries)

    def test_boundaries_must_be_numbers(self) -> None:
        with pytest.raises(TypeError, match="boundaries must be int or float"):
            Histogram("size", boundaries=["a"])  # type: ignore[list-item]

    def test_a_histogram_cannot_have_a_tag_called_le(self) -> None:
        with pytest.raises(ValueError, match="'le'"):
            Histogram("size", boundaries=[1]).observe(1, {"le": "1"})


class TestText:
    def test_awkward_text_survives(self) -> None:
        awkward = 'quote " backslash \\ newline \n brace } end'
        Counter("jobs", description=awkward, tag_keys=("a",)).inc(1, {"a": awkward})
        [family] = text_string_to_metric_families(prometheus_text())
        assert family.documentation == awkward
        assert family.type == "counter"
        assert family.samples[0].labels == {"a": awkward}

    def test_tag_names_are_made_into_label_names(self) -> None:
        Counter("jobs", tag_keys=("with-dash", "1st")).inc(1, {"with-dash": "a", "1st": "b"})
        assert value("skate_jobs_total", with_dash="a", _1st="b") == 1

    def test_the_prefix_can_be_chosen(self) -> None:
        Counter("jobs").inc()
        assert "ray_jobs_total 1.0\n" in prometheus_text(prefix="ray_")

    def test_special_numbers_are_written_as_prometheus_wants_them(self) -> None:
        for name, number in (("a", float("inf")), ("b", float("-inf")), ("c", float("nan"))):
            Gauge(name).set(number)
        text = prometheus_text()
        assert "} +Inf\n" in text
        assert "} -Inf\n" in text
        assert "} NaN\n" in text
        samples(text)

    def test_a_metric_declared_in_two_ways_is_exported_in_one(self, caplog: pytest.LogCaptureFixture) -> None:
        Histogram("size", boundaries=[1]).observe(1)
        Histogram("size", boundaries=[2]).observe(1)
        with caplog.at_level(logging.WARNING):
            text = prometheus_text()
        assert text.count("# TYPE skate_size histogram") == 1
        assert text.count("skate_size_count") == 1
        assert "has conflicting declarations" in caplog.text


class TestProcesses:
    def test_counters_and_histograms_of_all_processes_add_up(self, folder: Path) -> None:
        code = """
Counter('jobs', tag_keys=('a',)).inc(2, {'a': '1'})
Histogram('size', boundaries=[1]).observe(3)
"""
        for _ in range(2):
            assert run_in_process(folder, code).returncode == 0
        Counter("jobs", tag_keys=("a",)).inc(1, {"a": "1"})
        assert value("skate_jobs_total", a="1") == 5
        assert value("skate_size_bucket", le="1.0") == 0
        assert value("skate_size_sum") == 6

    def test_what_a_killed_process_counted_is_not_lost(self, folder: Path) -> None:
        result = run_in_process(folder, "Counter('jobs').inc(7)", end="os.kill(os.getpid(), signal.SIGKILL)")
        assert result.returncode == -signal.SIGKILL
        assert value("skate_jobs_total") == 7

    def test_gauges_go_with_their_process(self, folder: Path) -> None:
        Gauge("depth").set(1)
        code = "import sys; Gauge('depth').set(2); print(os.getpid(), flush=True); sys.stdin.read()"
        program = (
            "import os\nfrom skate.util import metrics\nfrom skate.util.metrics import *\n"
            f"metrics.store.folder = lambda: {str(folder)!r}\n{code}"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            pid = other.stdout.readline().strip()
            mine = str(os.getpid())
            assert samples()["skate_depth"] == {frozenset({("pid", mine)}): 1, frozenset({("pid", pid)}): 2}
            other.communicate()
        assert samples()["skate_depth"] == {frozenset({("pid", mine)}): 1}

    def test_files_of_ended_processes_are_folded_into_one(self, folder: Path) -> None:
        Counter("jobs").inc()
        for _ in range(3):
            run_in_process(folder, "Counter('jobs').inc(); Gauge('depth').set(1)")
        assert len(list(folder.glob("*.cells"))) == 4
        for _ in range(2):
            assert value("skate_jobs_total") == 4
            assert len(list(folder.glob("*.cells"))) == 1

    def test_a_file_that_was_folded_but_not_removed_counts_once(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_in_process(folder, "Counter('jobs').inc(5)")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", lambda path: None)
            assert _metrics_store.collect(folder)[0].values == [5]
        assert len(list(folder.glob("*.cells"))) == 1
        assert value("skate_jobs_total") == 5
        assert value("skate_jobs_total") == 5
        run_in_process(folder, "Counter('jobs').inc(5)")
        assert value("skate_jobs_total") == 10

    def test_a_forked_child_counts_for_itself(self, folder: Path, store: Store) -> None:
        counter = Counter("jobs")
        counter.inc()
        pid = os.fork()
        if pid == 0:
            try:
                store.after_fork()
                counter.inc(10)
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        counter.inc()
        assert value("skate_jobs_total") == 12

    def test_every_forked_child_starts_anew_by_itself(self) -> None:
        code = (
            "import os\nfrom skate.util.metrics import *\nfrom skate.util import metrics\n"
            "metrics.store.folder = lambda: None\nCounter('jobs').inc()\n"
            "if os.fork() == 0:\n    print(repr(prometheus_text()), flush=True)\n    os._exit(0)\nos.wait()\n"
        )
        result = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
        assert result.stdout == "''\n"


class TestSessions:
    def test_what_was_recorded_before_a_session_moves_into_it(self, store: Store, tmp_path: Path) -> None:
        Counter("jobs").inc()
        Histogram("size", boundaries=[1]).observe(2)
        assert samples()["skate_jobs_total"][frozenset()] == 1
        store.folder = lambda: str(tmp_path / "metrics")
        Counter("jobs").inc()
        [jobs, size] = _metrics_store.collect(tmp_path / "metrics")
        assert jobs.values == [2]
        assert size.values == [0, 1, 2]

    def test_a_new_session_starts_at_zero(self, store: Store, tmp_path: Path) -> None:
        for name in ("first", "second"):
            place = tmp_path / name
            store.folder = lambda place=place: str(place)  # type: ignore[misc]
            Counter("jobs").inc()
            assert value("skate_jobs_total") == 1
        store.folder = lambda: None
        assert prometheus_text() == ""
        assert _metrics_store.collect(tmp_path / "first")[0].values == [1]

    def test_detaching_closes_the_file_and_leaves_it_to_the_session(self, store: Store, folder: Path) -> None:
        before = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()
        Counter("jobs").inc(3)
        store.folder = lambda: None
        store.detach()
        if sys.platform == "linux":
            assert set(os.listdir("/proc/self/fd")) == before
        assert _metrics_store.collect(folder)[0].values == [3]

    def test_the_folder_is_private_and_is_not_made_without_its_session(
        self, store: Store, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        Counter("jobs").inc()
        assert folder.stat().st_mode & 0o777 == 0o700
        gone = tmp_path / "gone" / "metrics"
        store.folder = lambda: str(gone)
        with caplog.at_level(logging.WARNING):
            Counter("jobs").inc()
        assert not gone.parent.exists()
        assert "no longer visible to other processes" in caplog.text
        assert value("skate_jobs_total") == 1

    def test_a_folder_that_vanishes_costs_no_numbers(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        Counter("jobs").inc(2)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        with caplog.at_level(logging.WARNING):
            assert value("skate_jobs_total") == 2
        Counter("jobs").inc()
        assert value("skate_jobs_total") == 3

    def test_a_full_disk_is_reported_and_recording_goes_on(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        counter = Counter("jobs", tag_keys=("n",))
        counter.inc(1, {"n": "first"})

        def full(*args: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with caplog.at_level(logging.WARNING):
            for n in range(300):
                counter.inc(1, {"n": str(n)})
        assert caplog.text.count("No space left on device") == 1
        assert value("skate_jobs_total", n="first") == 1
        assert value("skate_jobs_total", n="299") == 1


class TestServer:
    def test_prometheus_can_fetch_from_it_until_it_is_closed(self) -> None:
        Counter("jobs").inc()
        with start_server() as server:
            with urllib.request.urlopen(server.url, timeout=30) as reply:
                assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = reply.read().decode()
            assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert samples(text)["skate_jobs_total"] == {frozenset(): 1}
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(server.url, timeout=30)

    def test_a_taken_port_is_an_error(self) -> None:
        with start_server() as server, pytest.raises(OSError, match="in use"):
            start_server(server.port)

    def test_a_session_serves_them_under_rays_names_where_rays_keyword_says(self) -> None:
        with start_server() as server:
            port, url = server.port, server.url
            with pytest.raises(OSError, match="in use"):
                skate.init(engine="inline", _metrics_export_port=port)
        assert not skate.is_initialized()
        with skate.init(engine="inline", _metrics_export_port=port):
            Counter("jobs").inc()
            with urllib.request.urlopen(url, timeout=30) as reply:
                text = reply.read().decode()
        assert samples(text)["ray_jobs_total"] == {frozenset(): 1}
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=30)

    @pytest.mark.parametrize(("path", "host", "status"), [("/x", None, 404), ("/metrics", "evil.test", 403)])
    def test_other_pages_and_other_hosts_are_turned_away(
        self, path: str, host: str | None, status: int
    ) -> None:
        with start_server() as server:
            url = server.url.removesuffix("/metrics") + path
            request = urllib.request.Request(url, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=30)
            caught.value.close()
        assert caught.value.code == status


class TestWorkers:
    """With a real session, whose workers record too."""

    @pytest.fixture(autouse=True)
    def session(self, store: Store, leak_watch: Any) -> Iterator[None]:
        store.folder = _metrics_store.metrics_folder
        skate.init(num_cpus=2)
        yield
        skate.shutdown()

    def test_tasks_actors_and_the_driver_are_seen_together(self) -> None:
        @skate.remote
        def work() -> None:
            Counter("jobs", tag_keys=("who",)).inc(1, {"who": "task"})

        class Worker:
            def __init__(self) -> None:
                self.counter = Counter("jobs", tag_keys=("who",)).set_default_tags({"who": "actor"})
                self.gauge = Gauge("depth")

            def work(self) -> int:
                self.counter.inc()
                self.gauge.set(3)
                return os.getpid()

        Counter("jobs", tag_keys=("who",)).inc(1, {"who": "driver"})
        actor = skate.remote(Worker).remote()
        pids = skate.get([actor.work.remote() for _ in range(4)])
        skate.get([work.remote() for _ in range(5)])
        assert samples()["skate_jobs_total"] == {
            frozenset({("who", "task")}): 5,
            frozenset({("who", "actor")}): 4,
            frozenset({("who", "driver")}): 1,
        }
        assert samples()["skate_depth"] == {frozenset({("pid", str(pids[0]))}): 3}

        @skate.remote
        def look() -> str:
            return prometheus_text()

        assert samples(skate.get(look.remote())) == samples()

    def test_a_metric_in_a_closure_records_where_it_runs(self) -> None:
        counter = Counter("jobs")

        @skate.remote
        def work() -> None:
            counter.inc()

        skate.get([work.remote() for _ in range(3)])
        counter.inc()
        assert value("skate_jobs_total") == 4

    def test_a_killed_actors_counts_stay_and_its_gauges_go(self) -> None:
        class Worker:
            def work(self) -> None:
                Counter("jobs").inc(2)
                Gauge("depth").set(1)

        actor = skate.remote(max_restarts=0)(Worker).remote()
        skate.get(actor.work.remote())
        assert "skate_depth" in samples()
        skate.kill(actor)
        with pytest.raises(skate.exceptions.RayActorError):
            skate.get(actor.work.remote())
        while "skate_depth" in samples():
            time.sleep(0.01)  # the kernel has no event for the end of another process' child
        assert value("skate_jobs_total") == 2

    def test_the_session_takes_its_metrics_with_it(self, store: Store) -> None:
        Counter("jobs").inc()
        folder = _metrics_store.metrics_folder()
        assert folder is not None
        assert os.path.isdir(folder)
        skate.shutdown()
        assert not os.path.exists(folder)
        assert prometheus_text() == ""
