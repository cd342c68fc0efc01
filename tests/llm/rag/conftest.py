"""The package of the example, a small embedding model, and a folder of documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = str(ROOT / "examples")
sys.path.insert(0, EXAMPLES)

DOCUMENTS = {
    "arrays.md": "# Objects\n\nLarge arrays are shared without copies.\n\n## Spilling\n\nObjects spill to disk.\n",
    "actors.txt": "Actors keep state between calls.\n\nAn actor restarts after a crash.\n",
    "serve/page.html": "<h1>Serving</h1><p>Replicas answer requests.</p><script>hidden()</script>",
}
WORDS = (
    "actor actors alert answer arrays banana between calls copies crash disk img keep large objects onerror poison "
    "replicas requests restarts serving shared spill spilling state without"
)


@pytest.fixture(scope="session", autouse=True)
def package_of_the_example() -> Iterator[None]:
    """Let tests of other folders not find the package."""
    yield
    sys.path.remove(EXAMPLES)


@pytest.fixture(scope="session")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a model for which texts are similar if they share words. Unknown words do not count."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("embeddings") / "model"
    vocabulary = {
        word: number
        for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(WORDS.split()))])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    words = torch.eye(len(vocabulary), 64)
    words[:4] = 0
    weights = {
        "word_embeddings.weight": words,
        "position_embeddings.weight": torch.zeros(256, 64),
        "token_type_embeddings.weight": torch.zeros(2, 64),
        "LayerNorm.weight": torch.ones(64),
        "LayerNorm.bias": torch.zeros(64),
    }
    folder.mkdir()
    save_file(
        {f"embeddings.{name}": weight for name, weight in weights.items()}, folder / "model.safetensors"
    )
    config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 0}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    return str(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the documents."""
    return write_documents(tmp_path / "documents")


def write_documents(folder: Path) -> Path:
    for name, text in DOCUMENTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
