"""Files of a job are copied as they are, named after their contents, and unpacked once."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.engine.common.environment_files import make_wheel, names, run_in, write

from skate._engine.common.environments import (
    archives,
    pack,
    prepare,
)
from skate.exceptions import RuntimeEnvSetupError


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_working_dir_is_a_snapshot_of_the_directory(tmp_path: Path, cache_dir: Path) -> None:
    job = tmp_path / "job"
    write(job / "hello", "world")
    write(job / "package" / "__init__.py", "value = 3")
    (job / "empty").mkdir()
    script = write(job / "run.sh", "#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    prepared = prepare({"working_dir": str(job)}, cache_dir)
    assert prepared.cwd is not None
    assert names(prepared.cwd) == ["hello", "package/__init__.py", "run.sh"]
    assert (Path(prepared.cwd) / "empty").is_dir()
    assert prepared.sys_path == (prepared.cwd,)
    write(job / "hello", "changed")
    read = "import os, package; print(open('hello').read(), package.value, os.popen('./run.sh').read())"
    assert run_in(prepared, read).split() == ["world", "3", "ran"]


def test_equal_directories_share_a_copy_and_changed_ones_do_not(tmp_path: Path, cache_dir: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name / "file")
    first = prepare({"working_dir": str(tmp_path / "one")}, cache_dir)
    assert prepare({"working_dir": str(tmp_path / "two")}, cache_dir) == first
    write(tmp_path / "two" / "file", "other")
    assert prepare({"working_dir": str(tmp_path / "two")}, cache_dir).cwd != first.cwd
    (tmp_path / "one" / "file").rename(tmp_path / "one" / "renamed")
    assert prepare({"working_dir": str(tmp_path / "one")}, cache_dir).cwd != first.cwd


def test_an_empty_working_dir_is_empty(tmp_path: Path, cache_dir: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    cwd = prepare({"working_dir": str(job)}, cache_dir).cwd
    assert cwd is not None
    assert os.listdir(cwd) == []


def test_files_from_before_1980_are_packed(tmp_path: Path, cache_dir: Path) -> None:
    os.utime(write(tmp_path / "job" / "old"), (0, 0))
    assert names(prepare({"working_dir": str(tmp_path / "job")}, cache_dir).cwd or "") == ["old"]


def test_links_are_followed_and_loops_end(tmp_path: Path, cache_dir: Path) -> None:
    job = tmp_path / "job"
    write(job / "file")
    write(tmp_path / "elsewhere" / "data")
    (job / "link").symlink_to(job / "file")
    (job / "loop").symlink_to(job)
    (job / "folder").symlink_to(tmp_path / "elsewhere")
    (job / "dangling").symlink_to(tmp_path / "missing")
    os.mkfifo(job / "pipe")
    cwd = prepare({"working_dir": str(job)}, cache_dir).cwd
    assert names(cwd or "") == ["file", "folder/data", "link"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in (
        "test1",
        "test2",
        "tmp_dir/test_1",
        "tmp_dir/test_2",
        "tmp_dir/sub_dir/test_1",
        "cache/test_1",
        "tmp_dir/cache/file",
        ".git/config",
        "__pycache__/x.pyc",
    ):
        write(root / name)
    return root


EVERYTHING = ["cache/test_1", "test1", "test2", "tmp_dir/cache/file", "tmp_dir/sub_dir/test_1"]
EVERYTHING += ["tmp_dir/test_1", "tmp_dir/test_2"]


@pytest.mark.parametrize(
    ("excludes", "gone"),
    [
        ([], []),
        (["test2"], ["test2"]),
        (["tmp_dir/sub_dir"], ["tmp_dir/sub_dir/test_1"]),
        (["tmp_dir/test_1"], ["tmp_dir/test_1"]),
        (["test_1"], ["cache/test_1", "tmp_dir/sub_dir/test_1", "tmp_dir/test_1"]),
        (["/cache"], ["cache/test_1"]),
        (["cache/"], ["cache/test_1", "tmp_dir/cache/file"]),
        (["test1/"], []),
        (["*"], EVERYTHING),
        (["**/cache/**"], ["cache/test_1", "tmp_dir/cache/file"]),
        (["tmp_dir/**/test_1"], ["tmp_dir/sub_dir/test_1", "tmp_dir/test_1"]),
        (["test[!2]"], ["test1"]),
        (["test[1-2]", "!test2"], ["test1"]),
        (["# test1", "", "test?"], ["test1", "test2"]),
        (["te*1"], ["cache/test_1", "test1", "tmp_dir/sub_dir/test_1", "tmp_dir/test_1"]),
    ],
)
def test_excluded_files_stay_behind(
    tree: Path, cache_dir: Path, excludes: list[str], gone: list[str]
) -> None:
    cwd = prepare({"working_dir": str(tree), "excludes": excludes}, cache_dir).cwd
    assert names(cwd or "") == [name for name in EVERYTHING if name not in gone]


def test_files_that_git_ignores_stay_behind(
    tree: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tree / ".gitignore", "# Comment\ntest_[12]\n/test1\n!/tmp_dir/sub_dir/test_1\ncache/\n")
    write(tree / "tmp_dir" / ".rayignore", "/nothing\n")
    kept = [".gitignore", "test2", "tmp_dir/.rayignore", "tmp_dir/sub_dir/test_1"]
    assert names(prepare({"working_dir": str(tree)}, cache_dir).cwd or "") == kept
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    write(tree / "tmp_dir" / ".rayignore", "test_*\n")
    cwd = prepare({"working_dir": str(tree)}, cache_dir).cwd
    assert names(cwd or "") == [
        ".gitignore",
        "cache/test_1",
        "test1",
        "test2",
        "tmp_dir/.rayignore",
        "tmp_dir/cache/file",
    ]


def test_default_excludes_can_be_replaced(
    tree: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")
    kept = names(prepare({"working_dir": str(tree)}, cache_dir).cwd or "")
    assert ".git/config" in kept
    assert "__pycache__/x.pyc" in kept


def test_archives_are_unpacked(tmp_path: Path, cache_dir: Path) -> None:
    import shutil

    write(tmp_path / "content" / "top" / "file")
    local = shutil.make_archive(str(tmp_path / "local"), "zip", tmp_path / "content")
    assert names(prepare({"working_dir": local}, cache_dir).cwd or "") == ["top/file"]
    # As in archives of repositories, one folder around everything is taken away.
    assert names(prepare({"working_dir": f"file://{local}"}, cache_dir).cwd or "") == ["file"]
    tar = shutil.make_archive(str(tmp_path / "local"), "gztar", tmp_path / "content")
    assert names(prepare({"working_dir": f"file://{tar}"}, cache_dir).cwd or "") == ["file"]


def test_a_file_uri_is_unpacked_again_when_it_changes(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "a.zip"
    for text in ("one", "two"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("first", text)
            archive.writestr("second", text)
        cwd = prepare({"working_dir": f"file://{path}"}, cache_dir).cwd
        assert cwd is not None
        assert Path(cwd, "first").read_text() == text


def test_a_damaged_or_missing_archive_is_reported(tmp_path: Path, cache_dir: Path) -> None:
    write(tmp_path / "bad.zip", "no archive")
    with pytest.raises(RuntimeEnvSetupError, match="cannot be unpacked"):
        prepare({"working_dir": str(tmp_path / "bad.zip")}, cache_dir)
    with pytest.raises(RuntimeEnvSetupError, match="does not exist"):
        prepare({"working_dir": f"file://{tmp_path}/missing.zip"}, cache_dir)
    assert not list((cache_dir / "directories").glob("*"))


def test_an_archive_cannot_write_outside(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../escaped", "x")
    cwd = prepare({"working_dir": str(path)}, cache_dir).cwd
    assert list(tmp_path.rglob("escaped")) == [Path(cwd or "") / "escaped"]


def test_packages_modules_and_wheels_become_importable(tmp_path: Path, cache_dir: Path) -> None:
    write(tmp_path / "package_one" / "__init__.py", "value = 1")
    write(tmp_path / "module_two.py", "value = 2")
    wheel = make_wheel(tmp_path / "wheels", "wheel_three", "0.1", body="value = 3")
    env = {"py_modules": [str(tmp_path / "package_one"), str(tmp_path / "module_two.py"), str(wheel)]}
    prepared = prepare(env, cache_dir, base_env={"PYTHONPATH": "/last"})
    assert len(prepared.sys_path) == 3
    assert prepared.cwd is None
    assert prepared.env_vars["PYTHONPATH"] == os.pathsep.join([*prepared.sys_path, "/last"])
    code = """
    import module_two, package_one, wheel_three
    print(package_one.value, module_two.value, wheel_three.value)
    """
    assert run_in(prepared, code) == "1 2 3"


def test_a_wheel_that_needs_others_is_installed_with_pip(tmp_path: Path, cache_dir: Path) -> None:
    make_wheel(tmp_path / "index", "needed", "1.0", body="value = 4")
    wheel = make_wheel(tmp_path, "needing", "1.0", body="from needed import value", requires="needed")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index")}
    prepared = prepare({"py_modules": [str(wheel)], "env_vars": offline}, cache_dir)
    assert run_in(prepared, "import needing; print(needing.value)") == "4"


def test_the_users_own_python_path_is_kept(tmp_path: Path, cache_dir: Path) -> None:
    write(tmp_path / "job" / "file")
    env = {"working_dir": str(tmp_path / "job"), "env_vars": {"PYTHONPATH": "/middle"}}
    prepared = prepare(env, cache_dir, base_env={"PYTHONPATH": "/last"})
    assert prepared.env_vars["PYTHONPATH"] == f"{prepared.cwd}:/middle:/last"
    assert prepared.sys_path == (prepared.cwd, "/middle")


def test_a_package_alone_in_an_archive_stays_a_package(tmp_path: Path, cache_dir: Path) -> None:
    for inner in ("alone", "wrapper/inside"):
        path = tmp_path / f"{inner.split('/')[0]}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{inner}/__init__.py", "value = 5")
        prepared = prepare({"py_modules": [f"file://{path}"]}, cache_dir)
        module = inner.split("/")[-1]
        assert run_in(prepared, f"import {module}; print({module}.value)") == "5"


def test_packing_replaces_paths_by_uris_named_after_contents(tmp_path: Path, cache_dir: Path) -> None:
    write(tmp_path / "job" / "file")
    write(tmp_path / "job" / "big")
    wheel = make_wheel(tmp_path, "some_wheel", "1.0")
    env = {
        "working_dir": str(tmp_path / "job"),
        "py_modules": [str(tmp_path / "job"), str(wheel), "s3://bucket/x.zip"],
        "excludes": ["big"],
        "env_vars": {"A": "1"},
    }
    packed = pack(env, cache_dir)
    assert packed["working_dir"].startswith("skate://")
    assert packed["py_modules"][1].endswith("/some_wheel-1.0-py3-none-any.whl")
    assert packed["py_modules"][2] == "s3://bucket/x.zip"
    assert "excludes" not in packed
    assert pack(env, cache_dir) == packed
    assert pack(packed, cache_dir) == packed
    del packed["py_modules"][2]
    prepared = prepare(packed, cache_dir)
    assert names(prepared.cwd or "") == ["file"]
    assert names(prepared.sys_path[0]) == ["job/file"]
    write(tmp_path / "job" / "file", "changed")
    assert pack(env, cache_dir)["working_dir"] != packed["working_dir"]


def test_a_package_that_is_no_longer_kept_is_reported(cache_dir: Path) -> None:
    with pytest.raises(RuntimeEnvSetupError, match="Start the job again"):
        prepare({"working_dir": "skate://0123/job.zip"}, cache_dir)


def test_remote_archives_are_downloaded_once(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(uri: str, target: Path) -> None:
        asked.append(uri)
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("repository-1/file", "x")

    monkeypatch.setattr(archives, "download", fake)
    env = {"working_dir": "https://host/repository.zip"}
    cwd = prepare(env, cache_dir).cwd
    assert names(cwd or "") == ["file"]
    assert prepare(env, cache_dir).cwd == cwd
    assert asked == ["https://host/repository.zip"]
    assert not list((cache_dir / "downloads").iterdir())


def test_a_store_that_nothing_reads_says_what_to_install(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "smart_open", None)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(RuntimeEnvSetupError, match=r"pip install 'smart_open\[s3\]'"):
        prepare({"working_dir": "s3://bucket/a.zip"}, cache_dir)


def test_stores_are_read_through_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    source = write(tmp_path / "source", "content")
    library = types.ModuleType("smart_open")
    library.open = lambda uri, mode: source.open(mode)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "smart_open", library)
    archives.download("gs://bucket/a.zip", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "content"


def test_a_download_that_fails_leaves_nothing(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(uri: str) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(archives, "_open", fails)
    with pytest.raises(
        RuntimeEnvSetupError, match=r"Could not download https://host/a\.zip: ConnectionError"
    ):
        prepare({"working_dir": "https://host/a.zip"}, cache_dir)
    assert names(cache_dir / "downloads") == []
