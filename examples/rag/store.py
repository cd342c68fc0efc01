"""One SQLite file with documents, chunks, their full-text index and their vectors.

The file is the truth: each document is replaced in one transaction, so a program that is killed leaves whole documents
behind. Nothing here imports torch or faiss.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE,   -- absolute
    name TEXT NOT NULL,          -- relative to the folder that was ingested
    title TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    heading TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    text TEXT NOT NULL,
    vector BLOB NOT NULL         -- float32
);
CREATE INDEX IF NOT EXISTS chunks_of_document ON chunks (document_id);
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5 (heading, text, content='chunks', content_rowid='id', tokenize='porter unicode61');
CREATE TRIGGER IF NOT EXISTS chunk_added AFTER INSERT ON chunks BEGIN
    INSERT INTO words (rowid, heading, text) VALUES (new.id, new.heading, new.text);
END;
CREATE TRIGGER IF NOT EXISTS chunk_removed AFTER DELETE ON chunks BEGIN
    INSERT INTO words (words, rowid, heading, text) VALUES ('delete', old.id, old.heading, old.text);
END;
"""


@dataclass(frozen=True)
class Passage:
    """A chunk as search results show it."""

    id: int
    name: str
    title: str
    heading: str
    first_line: int
    last_line: int
    text: str


class Store:
    """The file. Use an instance from one thread at a time.

    Args:
        path: The file. It is created if it does not exist.
        model: The name of the embedding model, if the program writes vectors.

    Raises:
        ValueError: If the file is not such a store, or contains vectors of another model.
    """

    def __init__(self, path: str | Path, *, model: str | None = None) -> None:
        self.path = Path(path)
        if model is None and not self.path.exists():
            raise ValueError(f"There is no store {str(path)!r}: ingest a folder first.")
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._db.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise ValueError(f"{str(path)!r} is not a store of documents: {error}.") from error
        found = self._db.execute("SELECT value FROM settings WHERE name = 'model'").fetchone()
        if found is None and model is not None:
            self._db.execute("INSERT INTO settings VALUES ('model', ?)", (model,))
        elif found is not None and model not in (None, found[0]):
            self._db.close()
            raise ValueError(
                f"{str(path)!r} has vectors of the model {found[0]}, which cannot be compared with those of "
                f"{model}. Choose another file with --store."
            )
        self.model: str = model or (found[0] if found else "")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def hashes(self, folder: Path) -> dict[str, str]:
        """Return the hash of each document in a folder, by path."""
        rows = self._db.execute("SELECT path, hash FROM documents")
        return {path: value for path, value in rows if Path(path).is_relative_to(folder)}

    def replace(
        self,
        path: str,
        name: str,
        title: str,
        hash: str,
        chunks: Sequence[tuple[str, int, int, str, np.ndarray]],
    ) -> None:
        """Store a document with all its chunks, in place of an older version, in one transaction."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM documents WHERE path = ?", (path,))
            cursor = self._db.execute(
                "INSERT INTO documents (path, name, title, hash) VALUES (?, ?, ?, ?)",
                (path, name, title, hash),
            )
            self._db.executemany(
                "INSERT INTO chunks (document_id, heading, first_line, last_line, text, vector) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (cursor.lastrowid, *chunk, np.asarray(vector, np.float32).tobytes())
                    for *chunk, vector in chunks
                ),
            )

    def remove(self, paths: Iterable[str]) -> None:
        """Remove documents in one transaction."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("DELETE FROM documents WHERE path = ?", ((path,) for path in paths))

    def count(self) -> tuple[int, int]:
        """Return the numbers of documents and of chunks."""
        documents, chunks = self._db.execute(
            "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM chunks)"
        ).fetchone()
        return documents, chunks

    def version(self) -> int:
        """Return a number that changes when another connection has written."""
        (value,) = self._db.execute("PRAGMA data_version").fetchone()
        return int(value)

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all chunks, and their vectors as the rows of a matrix."""
        rows = self._db.execute("SELECT id, vector FROM chunks ORDER BY id").fetchall()
        ids = np.array([id for id, _ in rows], np.int64)
        data = np.frombuffer(b"".join(vector for _, vector in rows), np.float32)
        return ids, data.reshape(len(rows), -1) if rows else np.zeros((0, 1), np.float32)

    def match_words(self, question: str, limit: int) -> list[int]:
        """Return the ids of the chunks with the question's words, the best by BM25 first."""
        words = list(dict.fromkeys(re.findall(r"\w+", question.lower())))
        if not words:
            return []
        # Quoted, because AND, NEAR, * and others are operators of FTS5.
        query = " OR ".join(f'"{word}"' for word in words)
        rows = self._db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words, 2.0, 1.0) LIMIT ?",
            (query, limit),
        )
        return [id for (id,) in rows]

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Return chunks in the order of their ids. Chunks that have been removed meanwhile are left out."""
        marks = ", ".join("?" * len(ids))
        rows = self._db.execute(
            "SELECT chunks.id, name, title, heading, first_line, last_line, text FROM chunks "
            f"JOIN documents ON documents.id = document_id WHERE chunks.id IN ({marks})",
            list(ids),
        )
        found = {row[0]: Passage(*row) for row in rows}
        return [found[id] for id in ids if id in found]
