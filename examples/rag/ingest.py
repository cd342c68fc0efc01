"""Ingest a folder: find what has changed, split it into chunks, embed them on a pool of actors, and store documents."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import skate
from rag.documents import (
    CHUNK_SIZE,
    MAX_BYTES,
    SkippedFile,
    content_hash,
    find_files,
    parse,
    read_bytes,
)
from rag.embedding import MINILM, SentenceEncoder, model_folder
from rag.store import Store

BATCH = 64  # chunks


@dataclass
class Report:
    """What an ingest did."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # name: reason
    chunks: int = 0
    seconds: float = 0.0


class EmbedChunks:
    """An actor of the pool, which holds the embedding model."""

    def __init__(self, model: str, num_threads: int) -> None:
        self._encoder = SentenceEncoder(model, num_threads)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = [f"{heading}\n{text}" for heading, text in zip(batch["heading"], batch["text"], strict=True)]
        return {**batch, "vector": self._encoder.encode(texts)}


def ingest(
    folder: Path,
    store: Path,
    *,
    embeddings: str = MINILM,
    workers: int = 1,
    chunk_size: int = CHUNK_SIZE,
    max_bytes: int = MAX_BYTES,
    on_document: Callable[[str, int], None] = lambda name, chunks: None,
) -> Report:
    """Bring the store up to date with a folder.

    Only files whose content has changed are embedded. Documents whose files have gone, or cannot be read any more, are
    removed.

    Args:
        folder: The folder.
        store: The SQLite file.
        embeddings: The embedding model.
        workers: Actors that embed.
        chunk_size: The most characters of a chunk.
        max_bytes: Larger files are skipped.
        on_document: Called with the name of each document that was stored, and its number of chunks.

    Raises:
        FileNotFoundError: If there is no such folder or model.
        ValueError: If the store has vectors of another model.
    """
    began = time.perf_counter()
    if not folder.is_dir():
        raise FileNotFoundError(f"{str(folder)!r} is not a folder.")
    folder = folder.resolve()
    name = embeddings if embeddings == MINILM else str(Path(embeddings).resolve())
    model_folder(name)  # the error comes before any work
    target = Store(store, model=name)
    report = Report()
    try:
        stored = target.hashes(folder)
        found = _hash_files(folder, report, chunk_size, max_bytes)
        kept = {path for path, value in found.items() if stored.get(path) == value}
        report.unchanged = len(kept)
        changed = [{"path": path, "name": _name(path, folder)} for path in found if path not in kept]
        for document in _read_and_embed(changed, report, name, workers, chunk_size, max_bytes):
            first = document[0]
            chunks = [
                (row["heading"], int(row["first_line"]), int(row["last_line"]), row["text"], row["vector"])
                for row in document
            ]
            target.replace(first["path"], first["name"], first["title"], first["hash"], chunks)
            kept.add(first["path"])
            report.written.append(first["name"])
            report.chunks += len(chunks)
            on_document(first["name"], len(chunks))
        gone = [path for path in stored if path not in kept]
        target.remove(gone)
        report.removed = [_name(path, folder) for path in gone]
    finally:
        target.close()
    report.seconds = time.perf_counter() - began
    return report


def _name(path: str, folder: Path) -> str:
    return Path(path).relative_to(folder).as_posix()


def _hash_files(folder: Path, report: Report, chunk_size: int, max_bytes: int) -> dict[str, str]:
    """Return the hash of each file that may be a document, by path. The others are reported."""
    rows = []
    for path in find_files(folder):
        name = _name(str(path), folder)
        try:
            name.encode()
        except UnicodeEncodeError:
            report.skipped[name.encode(errors="replace").decode()] = "the name is not UTF-8"
            continue
        rows.append({"path": str(path), "name": name})
    if not rows:
        return {}

    def add_hash(row: dict[str, str]) -> dict[str, str]:
        return {**row, "hash": content_hash(read_bytes(Path(row["path"]), max_bytes), chunk_size)}

    hashed = skate.data.from_items(rows).map(add_hash, on_error="dead_letter")
    found = {row["path"]: row["hash"] for row in hashed.iter_rows()}
    _note_skipped(hashed, report)
    return found


def _read_and_embed(
    files: list[dict[str, str]], report: Report, model: str, workers: int, chunk_size: int, max_bytes: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the chunks of each document, with their vectors."""
    if not files:
        return  # no model is loaded for nothing

    def split(row: dict[str, str]) -> list[dict[str, Any]]:
        data = read_bytes(Path(row["path"]), max_bytes)
        document = parse(data, Path(row["path"]).suffix, chunk_size)
        about = {
            **row,
            "title": document.title,
            "hash": content_hash(data, chunk_size),
            "count": len(document.chunks),
        }
        return [{**about, **vars(chunk)} for chunk in document.chunks]

    rows = (
        # Rows leave an operator block by block: with small blocks, documents are stored while others are embedded.
        skate.data.from_items(files, override_num_blocks=min(len(files), 1000))
        .flat_map(split, on_error="dead_letter")
        .map_batches(
            EmbedChunks,
            fn_constructor_args=[model, max(1, (os.cpu_count() or 1) // workers)],
            batch_size=BATCH,
            concurrency=workers,
        )
    )
    waiting: dict[str, list[dict[str, Any]]] = {}
    for batch in rows.iter_batches(batch_size=BATCH, batch_format="numpy"):
        for index in range(len(batch["path"])):
            row = {column: values[index] for column, values in batch.items()}
            chunks = waiting.setdefault(row["path"], [])
            chunks.append(row)
            if len(chunks) == row["count"]:
                yield waiting.pop(row["path"])
    _note_skipped(rows, report)


def _note_skipped(rows: Any, report: Report) -> None:
    for letter in rows.dead_letters().take_all():
        reason = letter["error"]
        if letter["error_type"] != SkippedFile.__name__:
            reason = f"{letter['error_type']}: {reason}"
        report.skipped[letter["row"]["name"]] = reason
