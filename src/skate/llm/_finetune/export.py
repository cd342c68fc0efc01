"""Export the trained model as a folder that transformers and servers can load."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skate.llm._finetune.base_model import load_tokenizer, read_model_config, stop_ids, without_progress_bars
from skate.llm._finetune.config import FinetuneConfig
from skate.llm._finetune.masking import Encoder


def export(config: FinetuneConfig, checkpoint: Path, destination: Path) -> None:
    """Write the model of a checkpoint to a folder.

    The folder contains the weights as safetensors, the configuration, the tokenizer with its chat template, and a
    generation config with the stop tokens. An adapter is merged into the base model, and also written on its own to the
    folder `adapter` next to `destination`. Everything is written to a temporary folder first, so that `destination`
    never contains an incomplete model.

    Args:
        config: The configuration of the run.
        checkpoint: The folder of a checkpoint.
        destination: The folder to write. An existing folder is replaced.
    """
    tokenizer = load_tokenizer(config)
    model = load_trained(config, checkpoint)
    if config.adapter is not None:
        with without_progress_bars(), _replacing(destination.with_name("adapter")) as folder:
            # New embeddings are among `lora_modules_to_save`.
            model.save_pretrained(folder, save_embedding_layers=False)
            tokenizer.save_pretrained(folder)
        model = model.merge_and_unload()
    kind = _stored_dtype(config)
    if kind is not None:
        model = model.to(kind)
    template_stop = Encoder(tokenizer).stop_id if tokenizer.chat_template else None
    ends = stop_ids(model, tokenizer, template_stop)
    model.config.use_cache = True
    model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
    pad = tokenizer.pad_token_id
    model.generation_config.pad_token_id = pad if pad is not None else ends[0]
    with without_progress_bars(), _replacing(destination) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)


def load_trained(config: FinetuneConfig, checkpoint: Path) -> Any:
    """Return the model of a checkpoint in float32 on the CPU. If it has an adapter, the adapter is not merged."""
    import torch

    from skate.llm._finetune.loop import build_model
    from skate.llm._finetune.strategies import load_weights, read_weights

    plain = dataclasses.replace(
        config,
        adapter=None if config.adapter is None else "lora",
        load_in_4bit=False,
        bf16=False,
        gradient_checkpointing=False,
        attn_implementation=None,
    )
    module = build_model(plain, torch.device("cpu"))
    load_weights(module, read_weights(checkpoint))
    module.eval()
    return module.language_model.model if config.rl == "dpo" else module.model


def _stored_dtype(config: FinetuneConfig) -> Any:
    """Return the data type of the weights in the files of the base model."""
    import torch

    base = read_model_config(config.base_model)
    kind = getattr(base, "dtype", None) or getattr(base, "torch_dtype", None)
    return getattr(torch, kind) if isinstance(kind, str) else kind


@contextmanager
def _replacing(destination: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces the destination when the context exits without an error."""
    partial, old = (destination.with_name(f"{destination.name}.{each}") for each in ("partial", "old"))
    for folder in (partial, old):
        shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if destination.exists():
            destination.rename(old)
        partial.rename(destination)
    finally:
        for folder in (partial, old):
            shutil.rmtree(folder, ignore_errors=True)
