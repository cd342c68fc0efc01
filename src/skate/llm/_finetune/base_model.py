"""Base models, tokenizers and adapters, as the configuration describes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skate._api import variables
from skate.air import _optional
from skate.llm._finetune.config import FinetuneConfig

# Each turn starts with its role and ends with <|im_end|>.
CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
TEMPLATES = {"chatml": (CHATML, ("<|im_start|>", "<|im_end|>"))}
_TOKENIZER_TEMPLATES = ("tokenizer_default", "default", "auto")


def import_transformers() -> Any:
    """Import and return transformers.

    Raises:
        ImportError: If a package of the extra `llm` is missing.
    """
    _optional.require_extra("llm", "skate.llm.finetune", "torch", "transformers", "tokenizers", "safetensors")
    return _optional.load("transformers", "skate.llm.finetune")


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Disable the progress bars of transformers, which would interfere with the progress of the run."""
    settings = import_transformers().utils.logging
    was_enabled = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            settings.enable_progress_bar()


def with_model_folder(config: FinetuneConfig) -> FinetuneConfig:
    """Return the configuration with a folder as its base model. A GGUF file is converted once.

    Raises:
        ValueError: If the file is corrupt or of a kind that is not supported.
    """
    path = Path(config.base_model)
    if path.suffix != ".gguf" or not path.is_file():
        return config
    import_transformers()
    from skate.llm._engine.model_folder import convert_gguf

    folder = convert_gguf(path, Path(variables.cache_folder()) / "llm")
    return dataclasses.replace(config, base_model=str(folder))


def load_base_model(
    path: str,
    *,
    dtype: Any = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
    device: Any = None,
) -> Any:
    """Load a causal language model.

    Args:
        path: A folder in the format of Hugging Face transformers.
        dtype: The type of its weights; None for float32.
        attn_implementation: How attention is computed; None lets transformers choose.
        quantization: A quantization config of transformers.
        device: The device of a quantized model, which cannot be moved later.

    Raises:
        ValueError: If the path has no model.
    """
    transformers = import_transformers()
    import torch

    read_model_config(path)
    options: dict[str, Any] = {}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    if quantization is not None:
        options.update(quantization_config=quantization, device_map={"": device})
    with without_progress_bars():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype or torch.float32, **options
        )
    if quantization is not None:
        _keep_gradients(model)
    model.config.use_cache = False
    return model


def _keep_gradients(model: Any) -> None:
    """Keep bitsandbytes from packing weights for the CPU in the first evaluation: packed ones have no gradients."""
    from bitsandbytes.nn.modules import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def read_model_config(path: str) -> Any:
    """Return the configuration of a base model.

    Raises:
        ValueError: If the path has no model.
    """
    if not (Path(path) / "config.json").is_file():
        raise ValueError(
            f"base_model is {path!r}, which has no config.json: it must be a folder in the format of transformers."
        )
    return import_transformers().AutoConfig.from_pretrained(path)


def check_packages(config: FinetuneConfig) -> None:
    """Check that the packages of a method are installed, before workers need them.

    Raises:
        ImportError: If one is not.
    """
    if config.load_in_4bit:
        _optional.require("bitsandbytes", "adapter: qlora")
        _optional.require("accelerate", "adapter: qlora")
    if config.strategy == "zero3":
        _optional.require("deepspeed", "strategy: zero3")


def check_context(config: FinetuneConfig) -> None:
    """Check that the base model exists, and that sequences fit into its context.

    Raises:
        ValueError: If it does not exist, or the sequences do not fit.
    """
    context = getattr(read_model_config(config.base_model), "max_position_embeddings", None)
    if context is not None and config.sequence_len > context:
        raise ValueError(
            f"sequence_len is {config.sequence_len}, but the context of the base model has {context} tokens: lower "
            "sequence_len."
        )


def load_tokenizer(config: FinetuneConfig) -> Any:
    """Load the tokenizer of the base model, with the special tokens and the chat template of the configuration.

    Raises:
        ValueError: If the base model has no tokenizer, or the template is unknown.
    """
    transformers = import_transformers()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(config.base_model)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"could not load the tokenizer in {config.base_model}: {error}") from error
    if config.special_tokens:
        tokenizer.add_special_tokens(dict(config.special_tokens))
    if config.chat_template is not None:
        _set_template(tokenizer, config.chat_template)
    return tokenizer


def _set_template(tokenizer: Any, given: str) -> None:
    if given in _TOKENIZER_TEMPLATES:
        if not tokenizer.chat_template:
            raise ValueError(
                f"chat_template is {given!r}, but the tokenizer of the base model has no template."
            )
        return
    if given in TEMPLATES:
        template, tokens = TEMPLATES[given]
        known = tokenizer.get_vocab()
        missing = [token for token in tokens if token not in known]
        if missing:
            tokenizer.add_tokens(missing, special_tokens=True)
        tokenizer.chat_template = template
    elif "{{" in given or "{%" in given:
        tokenizer.chat_template = given
    elif Path(given).is_file():
        tokenizer.chat_template = Path(given).read_text(encoding="utf-8")
    else:
        from skate._base.suggestions import did_you_mean

        known_names = ["tokenizer_default", *TEMPLATES]
        raise ValueError(
            f"chat_template is {given!r}; it must be {' or '.join(known_names)}, a Jinja template, or the path of one."
            f"{did_you_mean(given, known_names)}"
        )


def fit_embeddings(model: Any, tokenizer: Any, config: FinetuneConfig) -> bool:
    """Enlarge the embeddings if the tokenizer has more tokens than the model. Return whether it has.

    Raises:
        ValueError: If an adapter would leave the new embeddings untrained.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) <= rows:
        return False
    if config.adapter is not None and not config.lora_modules_to_save:
        raise ValueError(
            f"special_tokens or chat_template add {len(tokenizer) - rows} tokens, whose embeddings an adapter does not "
            "train: set lora_modules_to_save: [embed_tokens, lm_head], or use tokens that the tokenizer already has."
        )
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return True


def stop_ids(model: Any, tokenizer: Any, template_stop: int | None) -> list[int]:
    """Return the stop tokens of the base model, the tokenizer and the chat template."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None:
        known = []
    else:
        known = list(configured) if isinstance(configured, (list, tuple)) else [configured]
    found = [template_stop, tokenizer.eos_token_id, *known]
    return list(dict.fromkeys(int(each) for each in found if each is not None))


def quantization_config(config: FinetuneConfig, *, bf16: bool) -> Any:
    """Return the quantization config of transformers for the base model, or None.

    Args:
        config: The configuration.
        bf16: Whether to compute in bfloat16.
    """
    if not config.load_in_4bit:
        return None
    check_packages(config)
    import torch

    return import_transformers().BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if bf16 else torch.float32,
    )


def count_parameters(model: Any) -> tuple[int, int]:
    """Return the number of parameters of a model, and how many of them are trained."""
    parameters = list(model.parameters())
    trained = (each for each in parameters if each.requires_grad)
    return sum(each.numel() for each in parameters), sum(each.numel() for each in trained)


def add_adapter(model: Any, config: FinetuneConfig) -> Any:
    """Return the model with a new adapter, the only part that is trained. With `adapter: null`, return the model.

    Raises:
        ImportError: If peft is not installed.
        ValueError: If no layer has one of the names in `lora_target_modules`.
    """
    if config.adapter is None:
        return model
    import torch

    _optional.require_extra("llm", "an adapter", "peft")
    peft = _optional.load("peft", "an adapter")
    if config.load_in_4bit:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    # The initial adapter depends only on the seed, so all workers start with the same weights.
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return peft.get_peft_model(model, _adapter_config(peft, config))


def _adapter_config(peft: Any, config: FinetuneConfig) -> Any:
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
