"""The configuration: names, defaults and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skate.llm import DatasetConfig, FinetuneConfig


def make(**keys: Any) -> FinetuneConfig:
    return FinetuneConfig.of({"base_model": "model", "datasets": ["rows.jsonl"], **keys})


@pytest.mark.parametrize(
    ("keys", "rate", "decay"),
    [({}, 2e-5, 0.01), ({"adapter": "lora"}, 2e-4, 0.0), ({"adapter": "lora", "rl": "dpo"}, 5e-6, 0.0)],
)
def test_learning_rate_and_decay_depend_on_the_method(
    keys: dict[str, Any], rate: float, decay: float
) -> None:
    kind = "preference" if "rl" in keys else "chat"
    made = make(datasets=[{"path": "rows.jsonl", "type": kind}], **keys)
    assert (made.learning_rate, made.weight_decay) == (rate, decay)
    assert made.sample_packing is ("rl" not in keys)


def test_names_of_llama_factory_mean_the_same() -> None:
    aliased = FinetuneConfig.of(
        {
            "model_name_or_path": "model",
            "datasets": ["rows.jsonl"],
            "cutoff_len": 128,
            "finetuning_type": "lora",
            "template": "chatml",
            "lora_rank": 4,
            "per_device_train_batch_size": 3,
            "num_train_epochs": 2,
            "lora_target": "q_proj, v_proj",
        }
    )
    assert aliased == make(
        sequence_len=128,
        adapter="lora",
        chat_template="chatml",
        lora_r=4,
        micro_batch_size=3,
        num_epochs=2,
        lora_target_modules=["q_proj", "v_proj"],
    )


def test_a_yaml_file_with_axolotls_keys_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "base_model: model\ndatasets:\n  - path: rows.jsonl\n    type: chat_template\n    split: train[:10%]\n"
        "adapter: qlora\nlearning_rate: 2e-4\noptimizer: adamw_torch_fused\nlora_target_linear: true\n"
    )
    made = FinetuneConfig.from_yaml(file, lora_r=8)
    assert made.datasets == (DatasetConfig(path="rows.jsonl", type="chat", split="train[:10%]"),)
    assert made.load_in_4bit
    assert (made.learning_rate, made.optimizer, made.lora_r) == (2e-4, "adamw", 8)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"learning_rat": 1}, "unknown key 'learning_rat'. Did you mean 'learning_rate'?"),
        ({"lora_rank": 4, "lora_r": 8}, "lora_r is given twice"),
        ({"datasets": [{"path": "x.jsonl", "typ": "chat"}]}, "Did you mean 'type'?"),
        ({"datasets": [{"path": "x.jsonl", "type": "chats"}]}, "Did you mean 'chat'?"),
        ({"datasets": []}, "datasets is empty"),
        ({"lr_scheduler": "cosin"}, "Did you mean 'cosine'?"),
        ({"micro_batch_size": 0}, "micro_batch_size is 0; it must be a whole number of at least 1"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; it must be a number"),
        ({"warmup_ratio": 1.5}, "warmup_ratio is 1.5"),
        ({"rl": "dpo"}, "needs datasets of type `preference`"),
        ({"rl": "dpo", "datasets": [{"path": "x", "type": "dpo"}]}, "needs adapter: lora"),
        ({"datasets": [{"path": "x", "type": "dpo"}]}, "need rl: dpo"),
        ({"early_stopping_patience": 2}, "set val_set_size"),
        ({"eval_on_start": True}, "eval_on_start needs data to evaluate on: set val_set_size"),
        ({"load_in_4bit": True}, "needs adapter: qlora"),
        ({"strategy": "zero2"}, "Did you mean 'zero3'?"),
        ({"deepspeed": {"zero_optimization": {"stage": 2}}}, "fine-tuning uses stage 3"),
        ({"deepspeed": {"optimizer": {"type": "Adam"}}}, "optimizer is decided by optimizer, learning_rate"),
        ({"deepspeed": {"fp16": {"enabled": True}}}, "fp16 is decided by bf16"),
        ({"deepspeed": {"bf16": {"enabled": True}}, "bf16": False}, "bf16 is True, but bf16 of the config"),
        ({"deepspeed": "missing.json"}, "which cannot be read"),
        ({"deepspeed": {}, "strategy": "fsdp2"}, "deepspeed needs strategy: zero3, not fsdp2"),
        ({"special_tokens": {"pad_tok": "x"}}, "Did you mean 'pad_token'?"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'"),
    ],
)
def test_a_mistake_is_refused_with_a_remedy(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        make(**keys)
    assert said in str(caught.value)


def test_a_missing_base_model_is_named() -> None:
    with pytest.raises(ValueError, match="base_model is missing"):
        FinetuneConfig.of({"datasets": ["rows.jsonl"]})


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("- a\n- b\n")
    with pytest.raises(ValueError, match="must contain a mapping"):
        FinetuneConfig.from_yaml(file)


def test_settings_of_deepspeed_are_read_from_a_file_for_transformers(tmp_path: Path) -> None:
    file = tmp_path / "zero3.json"
    file.write_text(
        json.dumps(
            {
                "zero_optimization": {"stage": 3, "overlap_comm": True, "reduce_bucket_size": "auto"},
                "bf16": {"enabled": True},
                "fp16": {"enabled": "auto", "loss_scale": 0},
                "gradient_clipping": "auto",
                "train_batch_size": "auto",
                "wall_clock_breakdown": False,
            }
        )
    )
    made = make(deepspeed=str(file))
    assert made.strategy == "zero3"
    assert made.bf16 is True
    assert made.deepspeed == {
        "zero_optimization": {"stage": 3, "overlap_comm": True},
        "wall_clock_breakdown": False,
    }
    assert FinetuneConfig.of(made.as_dict()) == made
