"""A folder becomes a store, and only changed files are processed again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rag.ingest import Report, ingest
from rag.store import Store

from tests.conftest import LeakWatch
from tests.llm.rag.conftest import DOCUMENTS, ROOT


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: LeakWatch) -> Iterator[None]:
    """Use one process, because each ingest starts an actor that imports torch. The killed program uses several."""
    with leak_watch.shared_session(engine="inline", num_cpus=2):
        yield


def passages(path: Path, words: str) -> list[str]:
    store = Store(path)
    found = [passage.text for passage in store.passages(store.match_words(words, 9))]
    store.close()
    return found


def test_only_changed_files_are_ingested_again_and_deleted_ones_disappear(
    folder: Path, embeddings: str, tmp_path: Path
) -> None:
    def run() -> Report:
        return ingest(folder, tmp_path / "store", embeddings=embeddings)

    first = run()
    assert sorted(first.written) == sorted(DOCUMENTS)
    assert (first.chunks, first.unchanged, first.removed, first.skipped) == (4, 0, [], {})

    again = run()
    assert (again.written, again.unchanged) == ([], 3)

    (folder / "actors.txt").write_text("Actors run in processes.")
    (folder / "arrays.md").unlink()
    (folder / "serve" / "page.html").touch()  # a newer time, the same content
    changed = run()
    assert (changed.written, changed.removed, changed.unchanged) == (["actors.txt"], ["arrays.md"], 1)
    found = passages(tmp_path / "store", "actors arrays replicas")
    assert sorted(found) == ["Actors run in processes.", "Replicas answer requests."]


def test_bad_files_are_skipped_with_their_names_and_the_rest_is_ingested(
    folder: Path, embeddings: str, tmp_path: Path
) -> None:
    (folder / "binary.txt").write_bytes(os.urandom(64) + b"\0")
    (folder / "latin.txt").write_bytes("Müller".encode("latin-1"))
    (folder / "empty.md").touch()
    (folder / "scan.pdf").write_bytes(b"%PDF-1.7")
    (folder / "huge.txt").write_bytes(b"banana " * 1_500_000)
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.md")).write_text("text")
    report = ingest(folder, tmp_path / "store", embeddings=embeddings)
    assert sorted(report.written) == sorted(DOCUMENTS)
    assert {name: reason.partition(":")[0] for name, reason in report.skipped.items()} == {
        "binary.txt": "binary data, not text",
        "latin.txt": "not UTF-8",
        "empty.md": "empty",
        "scan.pdf": "PDF files are not supported",
        "huge.txt": "10.5 MB, and the limit is 5 MB (--max-megabytes)",
        "caf?.md": "the name is not UTF-8",
    }
    # A document that can no longer be read is removed.
    (folder / "actors.txt").write_bytes(b"\xff")
    assert ingest(folder, tmp_path / "store", embeddings=embeddings).removed == ["actors.txt"]


def test_a_large_file_is_ingested_if_the_limit_allows_it(embeddings: str, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "huge.txt").write_bytes(b"banana " * 1_500_000)
    report = ingest(
        folder, tmp_path / "store", embeddings=embeddings, chunk_size=8000, max_bytes=11_000_000, workers=2
    )
    assert report.written == ["huge.txt"]
    store = Store(tmp_path / "store")
    assert store.count() == (1, report.chunks)
    assert report.chunks > 1300
    store.close()


def test_folders_share_a_store(folder: Path, embeddings: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "new.txt").write_text("Replicas are new.")
    ingest(folder, tmp_path / "store", embeddings=embeddings)
    assert ingest(other, tmp_path / "store", embeddings=embeddings).removed == []
    assert len(passages(tmp_path / "store", "replicas")) == 2
    (other / "new.txt").unlink()
    assert ingest(other, tmp_path / "store", embeddings=embeddings).removed == ["new.txt"]
    assert len(passages(tmp_path / "store", "replicas")) == 1


def test_a_folder_or_a_model_that_is_missing_is_an_error(
    folder: Path, embeddings: str, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        ingest(tmp_path / "missing", tmp_path / "store", embeddings=embeddings)
    with pytest.raises(FileNotFoundError, match="is not the folder of an embedding model"):
        ingest(folder, tmp_path / "store", embeddings=str(folder))
    assert not (tmp_path / "store").exists()


def test_a_killed_ingest_leaves_whole_documents_and_continues(embeddings: str, tmp_path: Path) -> None:
    folder, path = tmp_path / "many", tmp_path / "store"
    folder.mkdir()
    paragraph = "Large arrays are shared without copies.\n\n" * 20
    for number in range(300):
        (folder / f"{number:03}.md").write_text(f"# Document {number}\n\n{paragraph}")
    command = [sys.executable, "examples/rag", "ingest", str(folder), "--store", str(path)]
    command += ["--embeddings", embeddings]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(20)]
        program.send_signal(signal.SIGKILL)
    assert all(line.startswith("stored ") for line in lines), lines

    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
    counts = db.execute("SELECT count(*) FROM chunks GROUP BY document_id").fetchall()
    db.close()
    assert 20 <= len(counts) < 300
    assert set(counts) == {counts[0]}

    report = ingest(folder, path, embeddings=embeddings)
    assert report.unchanged == len(counts)
    assert len(report.written) == 300 - len(counts)
