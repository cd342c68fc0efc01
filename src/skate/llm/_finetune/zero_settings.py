"""The key `deepspeed` of a configuration: DeepSpeed's own settings, of which the run decides some."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STAGE = 3
_AUTO = "auto"  # a value that transformers' Trainer fills in
# Keys that a run sets itself, and the keys of `FinetuneConfig` that decide them.
_DECIDED = {
    "train_batch_size": "micro_batch_size and gradient_accumulation_steps",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer": "optimizer, learning_rate and weight_decay",
    "scheduler": "lr_scheduler and warmup_ratio",
    "fp16": "bf16",
}


def read_zero_settings(given: Any) -> dict[str, Any]:
    """Return DeepSpeed's settings without those that the run decides.

    Values of `"auto"`, which files for transformers have, are left out.

    Args:
        given: A mapping, or the path of a JSON file with one.

    Raises:
        ValueError: If the file cannot be used, a setting contradicts a key of the configuration, or the stage is not 3.
    """
    settings = _without_auto(_read(given))
    for key, ours in _DECIDED.items():
        value = settings.pop(key, None)
        if value is None or value == {"enabled": False} or value == {}:
            continue
        if key == "fp16" and not value.get("enabled"):  # its other keys have no effect
            continue
        raise ValueError(
            f"deepspeed: {key} is decided by {ours}: set that, and remove {key} or make it 'auto'."
        )
    zero = settings.setdefault("zero_optimization", {})
    if not isinstance(zero, Mapping):
        raise ValueError(f"deepspeed: zero_optimization is {zero!r}; it must be a mapping.")
    stage = zero.get("stage", STAGE)
    if stage != STAGE:
        raise ValueError(
            f"deepspeed: zero_optimization.stage is {stage!r}; fine-tuning uses stage {STAGE}, which shards weights, "
            "gradients and optimizer states. Set it, or use strategy: ddp without deepspeed."
        )
    settings["zero_optimization"] = {**zero, "stage": STAGE}
    return settings


def _read(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError(f"deepspeed is {given!r}; it must be a mapping, or the path of a JSON file.")
    try:
        found = json.loads(Path(given).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"deepspeed is {os.fspath(given)!r}, which cannot be read: {error}") from error
    except ValueError as error:
        raise ValueError(f"deepspeed: {os.fspath(given)} is not valid JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"deepspeed: {os.fspath(given)} must contain a JSON object.")
    return found


def _without_auto(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_auto(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value != _AUTO
    }
