"""Fixtures of the tests of fine-tuning: one tiny model, and runs in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate.llm import FinetuneConfig, FinetuneResult, finetune
from skate.train._views.views import SWITCH
from tests.llm.finetune import models


@pytest.fixture(scope="session", autouse=True)
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers, with a tokenizer and a chat template."""
    folder = models.make_model(tmp_path_factory.mktemp("models") / "base")
    _use_libraries(folder)
    return folder


def _use_libraries(folder: Path) -> None:
    """Train once: libraries open files and start threads on their first use, which no test has leaked."""
    import torch
    import tqdm
    from transformers import AutoModelForCausalLM

    tqdm.tqdm.monitor_interval = 0
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.randint(300, (4, 64))
    model(input_ids=ids, labels=ids).loss.backward()
    torch.optim.AdamW(model.parameters(), fused=True).step()


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return models.make_tokenizer()


@pytest.fixture(autouse=True)
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in another order would differ in the last digits."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def config(base: Path, tmp_path: Path) -> Callable[..., FinetuneConfig]:
    """Make the configuration of a short run in this process on 24 chats."""

    def make(rows: Any = None, **keys: Any) -> FinetuneConfig:
        path = tmp_path / "rows.jsonl"
        if rows is not None or not path.exists():
            models.write_rows(path, models.chats(24) if rows is None else rows)
        given = {
            "base_model": base,
            "datasets": [str(path)],
            "output_dir": tmp_path / "out",
            "num_workers": 0,
            "sequence_len": 64,
            "learning_rate": 1e-2,
            **keys,
        }
        return FinetuneConfig.of(given)

    return make


@pytest.fixture
def run(config: Callable[..., FinetuneConfig]) -> Callable[..., FinetuneResult]:
    """Run it."""
    return lambda *rows, **keys: finetune(config(*rows, **keys))
