"""Hybrid search over a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rag.retrieval import HybridIndex, fuse, windows
from rag.store import Store

from tests.llm.rag.conftest import EXAMPLES

pytest.importorskip("faiss")


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def add(store: Store, path: str, text: str, at: np.ndarray) -> None:
    store.replace(path, path, "", "", [("", 1, 1, text, at)])


def test_ranks_are_fused() -> None:
    assert fuse([[1, 2, 3], [3, 4]]) == [3, 1, 2, 4]
    assert fuse([[5], []]) == [5]
    assert fuse([]) == []


def test_a_passage_is_found_by_its_words_or_by_its_vector(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", model="m")
    add(store, "/words", "the Zanzibar protocol", vector(-1, 0))
    add(store, "/vector", "something else", vector(1, 0))
    add(store, "/neither", "nothing", vector(0, 1))
    index = HybridIndex(tmp_path / "store")
    found = index.search("What is Zanzibar?", vector(1, 0), 2)
    assert {passage.name for passage in found} == {"/words", "/vector"}
    add(store, "/later", "Zanzibar again", vector(1, 0))
    assert index.search("Zanzibar", vector(1, 0), 1)[0].name == "/later"
    store.remove(["/words", "/vector", "/neither", "/later"])
    assert index.search("Zanzibar", vector(1, 0), 2) == []
    store.close()
    index.close()


def test_a_passage_is_split_into_runs_of_sentences() -> None:
    text = "First sentence. Second one! A third?\n\nA paragraph."
    assert windows(text, 30) == ["First sentence. Second one!", "A third?\n\nA paragraph."]
    assert all(each in text for each in windows(text, 10))
    assert windows("x" * 500, 30) == ["x" * 500]
    assert windows(" \n ") == []


def test_the_retriever_does_not_import_torch() -> None:
    program = (
        f"import sys; sys.path.insert(0, {EXAMPLES!r}); import rag.app, faiss; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
