"""One SQLite file with documents, words and vectors."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from rag.store import Store

ONE = np.array([1, 0], np.float32)


def add(store: Store, path: str, *texts: str) -> None:
    chunks = [("Heading", number, number, text, ONE) for number, text in enumerate(texts, 1)]
    store.replace(path, path.lstrip("/"), "Title", f"hash of {path}", chunks)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store", model="m")
    yield made
    made.close()


def test_a_document_replaces_its_older_version_in_words_and_vectors(store: Store) -> None:
    add(store, "/a", "red apples", "green pears")
    add(store, "/a", "blue plums")
    assert store.count() == (1, 1)
    assert store.match_words("apples pears", 5) == []
    (passage,) = store.passages(store.match_words("plum", 5))  # by its stem
    assert (passage.name, passage.text, passage.first_line) == ("a", "blue plums", 1)
    ids, vectors = store.vectors()
    assert ids.tolist() == [passage.id]
    assert vectors.tolist() == [[1, 0]]


def test_removed_documents_leave_nothing_behind(store: Store) -> None:
    add(store, "/a", "red")
    store.remove(["/a", "/never"])
    assert store.count() == (0, 0)
    assert store.match_words("red", 5) == []
    assert len(store.vectors()[0]) == 0


def test_a_document_that_fails_halfway_leaves_the_older_version(store: Store) -> None:
    add(store, "/a", "red")
    with pytest.raises(sqlite3.IntegrityError):
        store.replace("/a", "a", "", "new", [("", 1, 1, "blue", ONE), ("", 1, 1, None, ONE)])
    assert store.hashes(Path("/")) == {"/a": "hash of /a"}
    assert [each.text for each in store.passages(store.match_words("red blue", 5))] == ["red"]


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "'",
        "*",
        "AND",
        "NOT red",
        "red OR",
        "NEAR(red blue)",
        "text:red",
        "^red",
        "-red",
        "(red",
        "{a b}:",
        "red\0",
        "?; DROP TABLE chunks",
        "",
        "🙂",
        "a" * 1000,
    ],
)
def test_operators_of_fts5_in_a_question_are_words(store: Store, question: str) -> None:
    add(store, "/a", "red")
    assert len(store.match_words(question, 5)) == ("red" in question.lower())


def test_only_documents_in_the_folder_are_listed(store: Store) -> None:
    for path in ("/x/a", "/x/y/b", "/xy/c"):
        add(store, path, "text")
    assert set(store.hashes(Path("/x"))) == {"/x/a", "/x/y/b"}


def test_another_connection_sees_that_the_file_has_changed(store: Store) -> None:
    other = Store(store.path)
    before = other.version()
    assert other.version() == before
    add(store, "/a", "red")
    assert other.version() != before
    other.close()


def test_a_store_of_another_model_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match=r"vectors of the model m, .* --store"):
        Store(store.path, model="other")
    reader = Store(store.path)
    assert reader.model == "m"
    reader.close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("These are my notes. " * 100)
    with pytest.raises(ValueError, match="is not a store of documents"):
        Store(path, model="m")
    with pytest.raises(ValueError, match=r"There is no store .* ingest"):
        Store(tmp_path / "missing")
