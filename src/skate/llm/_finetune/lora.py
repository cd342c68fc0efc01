"""LoRA adapters, which peft implements."""

from __future__ import annotations

from typing import Any

from skate.air import _optional
from skate.llm._finetune.config import FinetuneConfig


def add_adapter(model: Any, config: FinetuneConfig) -> Any:
    """Return the model with a new adapter, which alone is trained; with `adapter: null`, the model itself.

    Raises:
        ImportError: If peft is not installed.
        ValueError: If no layer has one of the names in `lora_target_modules`.
    """
    if config.adapter is None:
        return model
    import torch

    peft = _peft()

    if config.load_in_4bit:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    # The initial adapter depends on the seed alone, so that all workers start with the same.
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return peft.get_peft_model(model, adapter_config(config))


def _peft() -> Any:
    _optional.require_extra("llm", "an adapter", "peft")
    return _optional.load("peft", "an adapter")


def adapter_config(config: FinetuneConfig) -> Any:
    """Return peft's description of the adapter."""
    peft = _peft()
    targets: Any = list(config.lora_target_modules) if config.lora_target_modules else "all-linear"
    return peft.LoraConfig(
        r=config.lora_r,
        lora_alpha=int(config.lora_alpha) if float(config.lora_alpha).is_integer() else config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=targets,
        modules_to_save=list(config.lora_modules_to_save) or None,
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=config.base_model,
    )
