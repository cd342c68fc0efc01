from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from skate.air import _filesystems as filesystems
from skate.data._io import paths


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "a.csv",
        "b.txt",
        "deep/c.csv",
        "deep/er/d.csv",
        ".hidden.csv",
        "_SUCCESS",
        "_temporary/e.csv",
        "_key=1/f.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(tree: Path, *given: str, **options: object) -> list[str]:
    filesystem, resolved = paths.resolve_all([str(tree / path) for path in given])
    found = paths.expand(resolved, filesystem, **options)  # type: ignore[arg-type]
    return [os.path.relpath(file.path, tree) for file in found]


def test_a_folder_is_listed_recursively_and_in_order(tree: Path) -> None:
    assert names(tree, ".") == ["_key=1/f.csv", "a.csv", "b.txt", "deep/c.csv", "deep/er/d.csv"]


def test_files_keep_the_order_in_which_they_are_named(tree: Path) -> None:
    assert names(tree, "deep/c.csv", "a.csv") == ["deep/c.csv", "a.csv"]


def test_a_file_that_is_named_is_read_even_if_it_is_hidden(tree: Path) -> None:
    assert names(tree, ".hidden.csv") == [".hidden.csv"]


def test_only_files_with_the_wanted_extension_are_taken(tree: Path) -> None:
    assert names(tree, "a.csv", "b.txt", extensions=["csv"]) == ["a.csv"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv"]),
        ("?.*", ["a.csv", "b.txt"]),
        ("[ab].csv", ["a.csv"]),
        ("[!a].txt", ["b.txt"]),
        ("*.{csv,txt}", ["a.csv", "b.txt"]),
        ("d*/c.csv", ["deep/c.csv"]),
        ("d*", ["deep/c.csv", "deep/er/d.csv"]),
        ("**/*.csv", ["_key=1/f.csv", "a.csv", "deep/c.csv", "deep/er/d.csv"]),
        ("deep/**/d.csv", ["deep/er/d.csv"]),
        (".*.csv", [".hidden.csv"]),
    ],
)
def test_a_glob_stands_for_what_matches(tree: Path, pattern: str, expected: list[str]) -> None:
    assert names(tree, pattern) == expected


def test_a_name_with_wildcard_characters_is_a_name_if_it_exists(tree: Path) -> None:
    (tree / "x[1].csv").write_text("x")
    (tree / "x1.csv").write_text("x")
    assert names(tree, "x[1].csv") == ["x[1].csv"]


def test_a_missing_path_is_an_error_that_names_it(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone.csv.*ignore_missing_paths"):
        names(tree, "a.csv", "gone.csv")


def test_a_glob_that_matches_nothing_is_an_error_that_names_it(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.orc"):
        names(tree, "*.orc")


def test_missing_paths_can_be_ignored_as_long_as_something_is_left(tree: Path) -> None:
    assert names(tree, "a.csv", "gone.csv", ignore_missing=True) == ["a.csv"]
    with pytest.raises(ValueError, match=r"no files found"):
        names(tree, "gone.csv", ignore_missing=True)


def test_an_empty_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"no files found.*{tmp_path.name}"):
        names(tmp_path, ".")


def test_no_file_with_the_extension_is_an_error_that_says_what_there_is(tree: Path) -> None:
    with pytest.raises(ValueError, match=r"No input files found.*\['orc'\].*b\.txt"):
        names(tree, "b.txt", extensions=["orc"])


def test_paths_to_skip_are_not_even_looked_up(tree: Path) -> None:
    gone = str(tree / "gone.csv")
    assert names(tree, "a.csv", "gone.csv", skip=[gone]) == ["a.csv"]
    assert "deep/c.csv" not in names(tree, ".", skip=[str(tree / "deep/c.csv")])


def test_sizes_and_times_come_with_the_listing(tree: Path) -> None:
    filesystem, resolved = paths.resolve_all(tree / "a.csv")
    (file,) = paths.expand(resolved, filesystem)
    assert file.size == len("a.csv")
    assert file.changed == os.stat(tree / "a.csv").st_mtime_ns


def test_another_content_is_another_identity(tree: Path) -> None:
    filesystem, resolved = paths.resolve_all(tree / "a.csv")
    (before,) = paths.expand(resolved, filesystem)
    (tree / "a.csv").write_text("something else")
    (after,) = paths.expand(resolved, filesystem)
    assert before.identity != after.identity


def test_a_relative_path_and_a_home_become_absolute(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    monkeypatch.setenv("HOME", str(tree))
    assert filesystems.resolve("a.csv")[1] == str(tree / "a.csv")
    assert filesystems.resolve("~/a.csv")[1] == str(tree / "a.csv")


@pytest.mark.parametrize("scheme", ["file://", "local://"])
def test_local_schemes_are_this_machine(tree: Path, scheme: str) -> None:
    filesystem, path = filesystems.resolve(f"{scheme}{tree}/a.csv")
    assert isinstance(filesystem, pafs.LocalFileSystem)
    assert path == str(tree / "a.csv")


@pytest.mark.parametrize("name", ["a;b", "a?b", "a#b", "a b", "a%20b", "ünïcode"])
def test_odd_characters_in_names_are_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert names(tmp_path, name) == [name]


def test_an_unknown_scheme_says_what_to_pass() -> None:
    with pytest.raises(ValueError, match=r"nosuch://.*filesystem="):
        filesystems.resolve("nosuch://bucket/key")


def test_an_fsspec_filesystem_is_used_as_it_is(tree: Path) -> None:
    fsspec_local = pytest.importorskip("fsspec.implementations.local")
    filesystem, resolved = paths.resolve_all(str(tree / "a.csv"), fsspec_local.LocalFileSystem())
    (file,) = paths.expand(resolved, filesystem)
    assert file.size == len("a.csv")


def test_something_else_as_filesystem_is_an_error_that_says_its_type() -> None:
    with pytest.raises(TypeError, match=r"dict"):
        filesystems.resolve("a.csv", {})


@pytest.mark.parametrize("given", [3, [3], [None]])
def test_what_is_no_path_is_an_error(given: object) -> None:
    with pytest.raises(TypeError, match=r"path"):
        paths.as_list(given)


def test_an_empty_list_of_paths_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"empty"):
        paths.as_list([])


def test_paths_on_two_filesystems_cannot_be_read_together() -> None:
    with pytest.raises(ValueError, match=r"different filesystems"):
        paths.resolve_all(["/tmp/a.csv", "memory://b.csv"])
