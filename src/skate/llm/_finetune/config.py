"""The configuration of a fine-tuning run: axolotl's key names, with LLaMA-Factory's as aliases."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skate._base.suggestions import did_you_mean
from skate.llm._finetune.zero_settings import read_zero_settings

DATA_TYPES = ("chat", "instruction", "text", "preference")
SCHEDULERS = ("cosine", "linear", "constant")
STRATEGIES = ("ddp", "fsdp2", "zero3")

# Other names of keys. Those of LLaMA-Factory come first, then older and rarer ones of axolotl.
ALIASES = {
    "model_name_or_path": "base_model",
    "cutoff_len": "sequence_len",
    "template": "chat_template",
    "per_device_train_batch_size": "micro_batch_size",
    "num_train_epochs": "num_epochs",
    "lr_scheduler_type": "lr_scheduler",
    "optim": "optimizer",
    "packing": "sample_packing",
    "val_size": "val_set_size",
    "lora_rank": "lora_r",
    "lora_target": "lora_target_modules",
    "pref_beta": "beta",
    "additional_target": "lora_modules_to_save",
    "rl_beta": "beta",
    "dpo_beta": "beta",
}
DATA_TYPE_ALIASES = {
    "chat_template": "chat",
    "sharegpt": "chat",
    "messages": "chat",
    "alpaca": "instruction",
    "completion": "text",
    "pretrain": "text",
    "dpo": "preference",
    "chat_template.default": "preference",
}
OPTIMIZERS = {"adamw": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw"}


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """One source of training rows.

    Args:
        path: A file (`.jsonl`, `.json`, `.parquet`, `.csv` or `.txt`), a folder or a glob of such files, or a
            `skate.data.Dataset`.
        type: `chat` (rows with `messages`), `instruction` (`instruction`, `input`, `output`), `text` (`text`) or
            `preference` (`prompt`, `chosen`, `rejected`).
        split: A part of the rows, such as `train`, `train[:100]` or `train[10%:20%]`.
        field_messages: The column with the messages of a chat.
        field: The column with the text.

    Raises:
        ValueError: If a value is invalid.
    """

    path: Any
    type: str = "chat"
    split: str = "train"
    field_messages: str = "messages"
    field: str = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", DATA_TYPE_ALIASES.get(self.type, self.type))
        if self.type not in DATA_TYPES:
            known = [*DATA_TYPES, *DATA_TYPE_ALIASES]
            raise ValueError(
                f"datasets: type is {self.type!r}; it must be one of {', '.join(DATA_TYPES)}."
                f"{did_you_mean(str(self.type), known)}"
            )
        if isinstance(self.path, os.PathLike):
            object.__setattr__(self, "path", os.fspath(self.path))
        if not self.path if isinstance(self.path, str) else not hasattr(self.path, "iter_rows"):
            raise ValueError(f"datasets: path is {self.path!r}; it must be a path or a skate.data.Dataset.")

    @classmethod
    def of(cls, given: Any) -> DatasetConfig:
        """Return the source that is given as a mapping, a path, or a dataset."""
        if isinstance(given, DatasetConfig):
            return given
        if not isinstance(given, Mapping):
            return cls(path=given)
        names = [each.name for each in dataclasses.fields(cls)]
        for key in given:
            if key not in names:
                raise ValueError(
                    f"datasets: unknown key {key!r}; known keys are {', '.join(names)}.{did_you_mean(key, names)}"
                )
        if "path" not in given:
            raise ValueError("datasets: an entry has no path; name the files to read.")
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """What to train, on which data, and how. Keys have axolotl's names; those of LLaMA-Factory are accepted too.

    Args:
        base_model: A folder with a model in the format of Hugging Face transformers, or a GGUF file, which is converted
            once to float32 in the cache folder.
        datasets: The training data: a list of mappings with the keys of `DatasetConfig`.
        test_datasets: The data to evaluate on, instead of a part of `datasets`.
        val_set_size: The rows that are kept for evaluation: their number, or a fraction below 1.
        output_dir: The folder for the run, its checkpoints and the trained model.
        overwrite_output_dir: Delete an earlier run in that folder. Otherwise an unfinished run resumes, and a finished
            one is an error.
        resume_from_checkpoint: `True` requires a run to resume; a path starts from that checkpoint; `False` refuses to
            resume. By default, an unfinished run resumes.
        sequence_len: The maximum number of tokens of a row. Longer rows are left out and counted, never truncated.
        sample_packing: Pack several rows into each sequence. They do not attend to each other. Enabled by default,
            except for preference data.
        micro_batch_size: The number of sequences that a worker processes at a time.
        gradient_accumulation_steps: The number of micro-batches of a worker between two updates of the weights.
        num_epochs: The number of passes over the data.
        max_steps: The maximum number of updates of the weights.
        learning_rate: 2e-5 by default; 2e-4 with an adapter; 5e-6 for preference data.
        lr_scheduler: `cosine`, `linear` or `constant`, after the warm-up.
        warmup_ratio: The fraction of the steps in which the learning rate rises from 0.
        warmup_steps: The number of these steps; it takes precedence over `warmup_ratio`.
        optimizer: `adamw`.
        weight_decay: 0.01 by default; 0 with an adapter.
        adam_beta1: The decay of AdamW's first moment.
        adam_beta2: The decay of AdamW's second moment.
        adam_epsilon: The epsilon of AdamW.
        max_grad_norm: The norm to which gradients are scaled down; 0 for no limit.
        bf16: `auto` computes in bfloat16 where the GPU supports it, and keeps trained weights in float32. `full` also
            keeps them in bfloat16. `False` computes in float32.
        tf32: Let a GPU multiply float32 matrices in TF32.
        gradient_checkpointing: Recompute activations in the backward pass, which saves memory.
        attn_implementation: How transformers computes attention, such as `sdpa` or `flash_attention_2`.
        adapter: `lora`, `qlora` (`lora` on a base model in 4 bits), or None to train all weights.
        lora_r: The rank of the adapter.
        lora_alpha: The scale of the adapter is `lora_alpha / lora_r`.
        lora_dropout: Dropout before the adapter.
        lora_target_modules: Names of the layers to adapt; all linear layers by default.
        lora_target_linear: Adapt all linear layers except the output layer.
        lora_modules_to_save: Modules to train in full in addition to the adapter, such as `embed_tokens`.
        load_in_4bit: Quantize the base model with bitsandbytes, as `adapter: qlora` does.
        rl: `dpo` trains on preferences, with the base model without its adapter as the reference.
        beta: How strongly DPO keeps the model near the reference.
        train_on_inputs: Train on the whole conversation instead of the assistant's turns.
        special_tokens: Special tokens by role, such as `{"pad_token": "<pad>"}`.
        chat_template: `tokenizer_default`, `chatml`, a Jinja template, or the path of one.
        logging_steps: The number of steps between two reports of the loss.
        saves_per_epoch: The number of checkpoints in each epoch.
        save_steps: The number of steps between two checkpoints; it takes precedence over `saves_per_epoch`.
        save_total_limit: The number of checkpoints to keep.
        evals_per_epoch: The number of evaluations in each epoch.
        eval_steps: The number of steps between two evaluations; it takes precedence over `evals_per_epoch`.
        eval_on_start: Whether to evaluate once before the first step.
        early_stopping_patience: Stop after this many evaluations without a better loss, and export the best model.
        loss_chunk_size: The number of tokens whose logits are in memory at a time. By default 1,024 on a CPU, and as
            many as take a thirty-second of the memory of a GPU.
        seed: The seed of the order of rows, the initial adapter and dropout.
        num_workers: The number of workers; 0 trains in this process. Defaults to the number of GPUs, or 1.
        use_gpu: Whether each worker gets a GPU. By default, workers get GPUs if there are enough.
        max_failures: How many times the run restarts from its latest checkpoint after a failure.
        strategy: `ddp` keeps a copy of the model on each worker; `fsdp2` shards it; so does `zero3`, with DeepSpeed.
        deepspeed: DeepSpeed's settings for `zero3`, which they imply: a mapping, or the path of a JSON file.
        save_model: Write the trained model to `output_dir/model` at the end.

    Raises:
        ValueError: If a value is invalid.

    Example:
        >>> FinetuneConfig(base_model="model", datasets=["rows.jsonl"], adapter="lora").learning_rate
        0.0002
    """

    base_model: str
    datasets: tuple[DatasetConfig, ...]
    test_datasets: tuple[DatasetConfig, ...] = ()
    val_set_size: float = 0
    output_dir: str = "out"
    overwrite_output_dir: bool = False
    resume_from_checkpoint: bool | str | None = None
    sequence_len: int = 2048
    sample_packing: bool | None = None
    micro_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    num_epochs: float = 1
    max_steps: int | None = None
    learning_rate: float | None = None
    lr_scheduler: str = "cosine"
    warmup_ratio: float = 0.03
    warmup_steps: int | None = None
    optimizer: str = "adamw"
    weight_decay: float | None = None
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    bf16: bool | str = "auto"
    tf32: bool = True
    gradient_checkpointing: bool = False
    attn_implementation: str | None = None
    adapter: Literal["lora", "qlora"] | None = None
    lora_r: int = 16
    lora_alpha: float = 32
    lora_dropout: float = 0.0
    lora_target_modules: tuple[str, ...] | None = None
    lora_target_linear: bool | None = None
    lora_modules_to_save: tuple[str, ...] = ()
    load_in_4bit: bool = False
    rl: Literal["dpo"] | None = None
    beta: float = 0.1
    train_on_inputs: bool = False
    special_tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    chat_template: str | None = None
    logging_steps: int = 1
    saves_per_epoch: int = 1
    save_steps: int | None = None
    save_total_limit: int | None = 2
    evals_per_epoch: int = 1
    eval_steps: int | None = None
    eval_on_start: bool = False
    early_stopping_patience: int | None = None
    loss_chunk_size: int | None = None
    seed: int = 42
    num_workers: int | None = None
    use_gpu: bool | None = None
    max_failures: int = 0
    strategy: str = "ddp"
    deepspeed: Any = None
    save_model: bool = True

    def __post_init__(self) -> None:
        self._convert()
        self._check_numbers()
        self._check_choices()
        self._check_combinations()

    # ------------------------------------------------------------ creation

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FinetuneConfig:
        """Return the configuration with the given keys, which may be aliases.

        Raises:
            ValueError: If a key is unknown, given twice under different names, or has an invalid value.
        """
        found = _canonical(given)
        for name in ("base_model", "datasets"):
            if name not in found:
                raise ValueError(f"{name} is missing: it has no default.")
        return cls(**found)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], **changes: Any) -> FinetuneConfig:
        """Read a YAML file.

        Relative paths in it are relative to the current directory.

        Args:
            path: The file.
            **changes: Keys that replace those of the file.

        Raises:
            ValueError: If the file is not a mapping of known keys.
            OSError: If it cannot be read.
        """
        from skate.air import _optional

        yaml = _optional.load("yaml", "FinetuneConfig.from_yaml", "pyyaml")
        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{os.fspath(path)} is not valid YAML: {error}") from error
        if not isinstance(given, Mapping):
            raise ValueError(f"{os.fspath(path)} must contain a mapping of keys to values.")
        return cls.of({**_canonical(given), **_canonical(changes)})

    def as_dict(self) -> dict[str, Any]:
        """Return all keys with values that YAML can represent. A dataset becomes the name of its class."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name in ("datasets", "test_datasets"):
            values[name] = [
                {
                    **vars(each),
                    "path": each.path if isinstance(each.path, str) else f"<{type(each.path).__name__}>",
                }
                for each in values[name]
            ]
        return {
            name: list(value)
            if isinstance(value, tuple)
            else dict(value)
            if isinstance(value, Mapping)
            else value
            for name, value in values.items()
        }

    # ------------------------------------------------------------ derived values

    @property
    def run_folder(self) -> Path:
        """The folder of the run of `skate.train`."""
        return Path(self.output_dir).absolute() / "run"

    @property
    def model_folder(self) -> Path:
        """The folder of the exported model."""
        return Path(self.output_dir).absolute() / "model"

    # ------------------------------------------------------------ checks

    def _convert(self) -> None:
        set_ = object.__setattr__
        set_(self, "base_model", os.fspath(self.base_model))
        set_(self, "output_dir", os.fspath(self.output_dir))
        for name in ("datasets", "test_datasets"):
            given = getattr(self, name)
            if isinstance(given, (str, Mapping, os.PathLike)) or not isinstance(given, (list, tuple)):
                given = [given]
            set_(self, name, tuple(DatasetConfig.of(each) for each in given))
        for name in ("lora_target_modules", "lora_modules_to_save"):
            given = getattr(self, name)
            if isinstance(given, str):
                given = None if given == "all" else tuple(part.strip() for part in given.split(","))
            set_(self, name, given if given is None else tuple(given))
        if self.load_in_4bit and self.adapter == "lora":
            set_(self, "adapter", "qlora")
        set_(self, "load_in_4bit", self.load_in_4bit or self.adapter == "qlora")
        set_(self, "special_tokens", dict(self.special_tokens or {}))
        for name in ("learning_rate", "weight_decay"):  # YAML 1.1 reads 2e-4 as text
            if isinstance(getattr(self, name), str):
                set_(self, name, _number(name, getattr(self, name)))
        if self.learning_rate is None:
            set_(self, "learning_rate", 5e-6 if self.rl else 2e-4 if self.adapter else 2e-5)
        if self.weight_decay is None:
            set_(self, "weight_decay", 0.0 if self.adapter else 0.01)
        if self.sample_packing is None:
            set_(self, "sample_packing", self.rl is None)
        set_(self, "optimizer", OPTIMIZERS.get(self.optimizer, self.optimizer))
        if self.strategy == "deepspeed":
            set_(self, "strategy", "zero3")
        if self.deepspeed is not None:
            self._convert_deepspeed()

    def _convert_deepspeed(self) -> None:
        settings = read_zero_settings(self.deepspeed)
        narrow = settings.pop("bf16", {}).get("enabled")
        if narrow is not None and self.bf16 == "auto":
            object.__setattr__(self, "bf16", narrow)
        elif narrow is not None and narrow != bool(self.bf16):
            raise ValueError(f"deepspeed: bf16 is {narrow}, but bf16 of the configuration is {self.bf16}.")
        object.__setattr__(self, "deepspeed", settings)
        if self.strategy == "ddp":
            object.__setattr__(self, "strategy", "zero3")

    def _check_numbers(self) -> None:
        for name in ("sequence_len", "micro_batch_size", "gradient_accumulation_steps", "lora_r"):
            _check(name, getattr(self, name), int, lambda value: value >= 1, "a whole number of at least 1")
        for name in ("logging_steps", "saves_per_epoch", "evals_per_epoch"):
            _check(name, getattr(self, name), int, lambda value: value >= 1, "a whole number of at least 1")
        for name in (
            "max_steps",
            "save_steps",
            "eval_steps",
            "early_stopping_patience",
            "save_total_limit",
            "loss_chunk_size",
        ):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, int, lambda value: value >= 1, "a whole number of at least 1")
        for name in ("warmup_steps", "num_workers"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, int, lambda value: value >= 0, "a whole number of at least 0")
        _check("max_failures", self.max_failures, int, lambda value: value >= -1, "-1 or more")
        _check("seed", self.seed, int, lambda value: value >= 0, "a whole number of at least 0")
        number = (int, float)
        for name in ("num_epochs", "learning_rate", "lora_alpha", "beta", "adam_epsilon"):
            _check(name, getattr(self, name), number, lambda value: value > 0, "a number above 0")
        for name in ("weight_decay", "max_grad_norm", "val_set_size"):
            _check(name, getattr(self, name), number, lambda value: value >= 0, "a number of at least 0")
        for name in ("warmup_ratio", "lora_dropout", "adam_beta1", "adam_beta2"):
            _check(name, getattr(self, name), number, lambda value: 0 <= value < 1, "from 0 to below 1")

    def _check_choices(self) -> None:
        _choice("lr_scheduler", self.lr_scheduler, SCHEDULERS)
        _choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        _choice("adapter", self.adapter, ("lora", "qlora", None))
        _choice("rl", self.rl, ("dpo", None))
        _choice("bf16", self.bf16, ("auto", "full", True, False))
        _choice("strategy", self.strategy, STRATEGIES)
        if not self.datasets:
            raise ValueError("datasets is empty: name at least one file to train on.")
        for name in self.special_tokens:
            _choice("special_tokens", name, ("bos_token", "eos_token", "pad_token", "unk_token"))

    def _check_combinations(self) -> None:
        types = {each.type for each in (*self.datasets, *self.test_datasets)}
        if self.rl == "dpo":
            if types != {"preference"}:
                raise ValueError("rl: dpo needs datasets of type `preference` only.")
            if self.adapter is None:
                raise ValueError(
                    "rl: dpo needs adapter: lora. The reference is the base model without its adapter; without an "
                    "adapter there would be none."
                )
            if self.sample_packing:
                raise ValueError("rl: dpo does not pack rows: remove sample_packing.")
        elif "preference" in types:
            raise ValueError("datasets of type `preference` need rl: dpo.")
        if self.val_set_size and self.test_datasets:
            raise ValueError("give either val_set_size or test_datasets, not both.")
        if self.early_stopping_patience and not (self.val_set_size or self.test_datasets):
            raise ValueError("early_stopping_patience needs data to evaluate on: set val_set_size.")
        if self.eval_on_start and not (self.val_set_size or self.test_datasets):
            raise ValueError("eval_on_start needs data to evaluate on: set val_set_size.")
        if self.lora_target_linear is False and not self.lora_target_modules and self.adapter:
            raise ValueError(
                "lora_target_linear is false and lora_target_modules is empty: nothing to adapt."
            )
        if self.load_in_4bit and self.adapter is None:
            raise ValueError("load_in_4bit needs adapter: qlora: quantized weights cannot be trained.")
        if self.deepspeed is not None and self.strategy != "zero3":
            raise ValueError(f"deepspeed needs strategy: zero3, not {self.strategy}.")
        if self.load_in_4bit and self.strategy != "ddp":
            raise ValueError(f"adapter: qlora works with strategy: ddp, not {self.strategy}.")


def _canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with aliases replaced by the names of the fields."""
    names = [each.name for each in dataclasses.fields(FinetuneConfig)]
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key == "finetuning_type":
            _choice("finetuning_type", value, ("full", "lora"))
            name, value = "adapter", None if value == "full" else "lora"
        elif key == "stage":  # LLaMA-Factory
            _choice("stage", value, ("sft", "pt", "dpo"))
            name, value = "rl", "dpo" if value == "dpo" else None
        else:
            name = ALIASES.get(key, key)
        if name not in names:
            known = [*names, *ALIASES, "finetuning_type", "stage"]
            raise ValueError(f"unknown key {key!r}.{did_you_mean(str(key), known)}")
        if name in found and found[name] != value:
            raise ValueError(f"{name} is given twice, as {found[name]!r} and, with {key}, as {value!r}.")
        found[name] = value
    return found


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{name} is {value!r}; it must be a number.") from None


def _check(name: str, value: Any, kind: Any, is_right: Any, must: str) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, kind)
        or not is_right(value)
        or not math.isfinite(value)
    ):
        raise ValueError(f"{name} is {value!r}; it must be {must}.")


def _choice(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        shown = ", ".join("null" if each is None else str(each) for each in known)
        texts = [each for each in known if isinstance(each, str)]
        raise ValueError(f"{name} is {value!r}; it must be one of {shown}.{did_you_mean(str(value), texts)}")
