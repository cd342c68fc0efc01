"""A runtime environment is created once, cached, and applied in workers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.engine.common.environment_files import PACKAGE_ROOT, write

from skate._engine.common.environments import (
    Cache,
    WorkerEnvironment,
    default_cache_dir,
    export_setup_hook,
    fingerprint,
    pack,
    packages,
    prepare,
    run_setup_hook,
)
from skate.exceptions import RuntimeEnvSetupError


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_an_empty_environment_asks_for_nothing(cache_dir: Path) -> None:
    assert prepare({}, cache_dir) == prepare(None, cache_dir) == WorkerEnvironment()
    assert not cache_dir.exists()
    assert not WorkerEnvironment().needs_new_process


def test_variables_may_refer_to_others(cache_dir: Path) -> None:
    base = {"PATH": "/bin", "HOME": "/h"}
    variables = {"PATH": "${PATH}:/more", "A": "[${MISSING}]", "B": "${A}$HOME$UNKNOWN", "C": "plain"}
    prepared = prepare({"env_vars": variables}, cache_dir, base_env=base)
    assert prepared.env_vars == {"PATH": "/bin:/more", "A": "[]", "B": "[]/h$UNKNOWN", "C": "plain"}
    assert prepared.python is None


def test_variables_that_are_read_once_need_a_new_process(cache_dir: Path) -> None:
    assert not prepare({"env_vars": {"A": "1"}}, cache_dir).needs_new_process
    assert prepare({"env_vars": {"OMP_NUM_THREADS": "1"}}, cache_dir).needs_new_process
    assert prepare({"env_vars": {"LD_PRELOAD": "x.so"}}, cache_dir).needs_new_process
    assert prepare({"py_executable": "python"}, cache_dir).needs_new_process


def test_what_a_worker_is_started_with_can_be_sent_to_it(cache_dir: Path) -> None:
    prepared = prepare({"env_vars": {"A": "1"}, "worker_process_setup_hook": "os.getpid"}, cache_dir)
    assert pickle.loads(pickle.dumps(prepared)) == prepared


def test_a_hook_is_a_name_or_a_function() -> None:
    ran: list[int] = []
    assert export_setup_hook("module.function") == "module.function"
    text = export_setup_hook(lambda: sys.modules.__setitem__("hook_ran", None))  # type: ignore[arg-type]
    run_setup_hook(text)
    assert sys.modules.pop("hook_ran", 1) is None
    run_setup_hook("gc.collect")
    assert ran == []


def test_a_hook_that_fails_shows_why() -> None:
    def fails() -> None:
        raise ValueError("Setup Failed")

    with pytest.raises(RuntimeEnvSetupError, match="Failed to execute the setup hook method") as info:
        run_setup_hook(export_setup_hook(fails))
    assert "ValueError: Setup Failed" in str(info.value)
    for bad in ("gc.no_such_function", "no_such_module.f", "plain"):
        with pytest.raises(RuntimeEnvSetupError, match=bad):
            run_setup_hook(bad)


def test_a_hook_that_cannot_be_sent_is_refused_at_once(cache_dir: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(RuntimeEnvSetupError, match="Failed to export the setup function"):
        pack({"worker_process_setup_hook": lambda: lock}, cache_dir)


@pytest.mark.parametrize("field", ["image_uri", "container", "_nsight", "_rocprof_sys", "java_jars", "mpi"])
def test_what_only_a_ray_cluster_provides_names_the_engine_that_has_it(field: str, cache_dir: Path) -> None:
    with pytest.raises(RuntimeEnvSetupError, match="`ray`") as info:
        prepare({field: "x"}, cache_dir)
    assert f"runtime_env['{field.removeprefix('_')}']" in str(info.value)


def test_equal_environments_have_equal_fingerprints() -> None:
    one = {"env_vars": {"A": "1", "B": "2"}, "pip": {"packages": ["x"]}}
    two = {"pip": {"packages": ["x"]}, "env_vars": {"B": "2", "A": "1"}, "config": {"eager_install": False}}
    assert fingerprint(one) == fingerprint(two) != ""
    assert fingerprint({**one, "env_vars": {"A": "1"}}) != fingerprint(one)


def test_environments_that_change_nothing_have_no_fingerprint() -> None:
    for env in (None, {}, {"config": {"eager_install": True}}, {"env_vars": {}}, {"excludes": ["a"]}):
        assert fingerprint(env) == ""


def test_hooks_are_part_of_the_fingerprint() -> None:
    one = fingerprint({"worker_process_setup_hook": lambda: 1})
    assert one != fingerprint({"worker_process_setup_hook": lambda: 2})


def test_the_cache_is_this_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SKATE_CACHE_DIR", raising=False)
    assert default_cache_dir() == tmp_path / "skate" / "runtime_env"
    monkeypatch.setenv("SKATE_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache_dir() == tmp_path / "mine" / "runtime_env"


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "file")
    write(tmp_path / "job" / "x")
    with pytest.raises(RuntimeEnvSetupError, match="could not be set up in"):
        prepare({"working_dir": str(tmp_path / "job")}, tmp_path / "file" / "cache")


def test_every_public_name_is_there() -> None:
    import skate._engine.common.environments as environments

    assert all(getattr(environments, name) is not None for name in environments.__all__)
    assert packages.SCHEME == "skate://"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        environments.nothing  # noqa: B018


def test_builders_of_the_same_environment_wait_for_one_another(cache_dir: Path) -> None:
    cache = Cache(cache_dir)
    built: list[Path] = []
    inside = threading.Event()
    proceed = threading.Event()

    def build(place: Path) -> None:
        built.append(place)
        inside.set()
        proceed.wait()
        place.mkdir()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_build, "kind", "key", build)
        inside.wait()
        second = pool.submit(cache.get_or_build, "kind", "key", build)
        assert cache.find("kind", "key") is None
        proceed.set()
        assert first.result() == second.result() == cache_dir / "kind" / "key"
    assert len(built) == 1


def test_builders_in_other_processes_wait_too(cache_dir: Path) -> None:
    code = f"""
    import sys
    from pathlib import Path
    from skate._engine.common.environments.cache import Cache
    cache = Cache(Path({str(cache_dir)!r}))
    with cache.lock("kind", "key"):
        print("locked", flush=True)
        sys.stdin.readline()
        cache.path("kind", "key").mkdir(parents=True)
    """
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
    )
    assert other.stdin is not None
    assert other.stdout is not None
    with other, ThreadPoolExecutor(1) as pool:
        assert other.stdout.readline() == "locked\n"
        waiting = pool.submit(
            Cache(cache_dir).get_or_build, "kind", "key", lambda place: pytest.fail("built")
        )
        other.stdin.write("go\n")
        other.stdin.flush()
        assert waiting.result() == cache_dir / "kind" / "key"


def test_what_a_dead_builder_left_is_swept_away(cache_dir: Path) -> None:
    write(cache_dir / "kind" / "key+dead" / "half")
    Cache(cache_dir).get_or_build("kind", "key", lambda place: place.mkdir())
    assert [path.name for path in (cache_dir / "kind").iterdir()] == ["key"]


def test_a_result_that_cannot_be_moved_stays_where_it_was_built(cache_dir: Path) -> None:
    cache = Cache(cache_dir)
    places: list[Path] = []

    def build(place: Path) -> None:
        places.append(place)
        place.mkdir()

    path = cache.get_or_build("kind", "key", build, movable=False)
    assert path == places[0]
    assert cache.get_or_build("kind", "key", build, movable=False) == path
    assert len(places) == 1


def test_entries_that_nobody_uses_are_pruned(cache_dir: Path) -> None:
    cache = Cache(cache_dir)
    for key in ("old", "new"):
        cache.get_or_build("kind", key, lambda place: place.mkdir(), movable=False)
    os.utime(cache_dir / "kind" / "old", (0, 0))
    assert cache.prune(unused_for_days=30) == [cache_dir / "kind" / "old"]
    assert cache.find("kind", "old") is None
    assert cache.find("kind", "new") is not None
    assert len(list((cache_dir / "kind").iterdir())) == 2
