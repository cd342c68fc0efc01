"""Write a model as a folder in Hugging Face's format."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from skate.llm._engine.chat_template import DEFAULT
from skate.llm._engine.model_files import ModelFiles, open_model

_ARCHITECTURES = {
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def convert_gguf(path: Path, cache: Path) -> Path:
    """Return a folder with the model of a GGUF file, in float32.

    The folder is written once, and reused as long as the file does not change.

    Args:
        path: The GGUF file.
        cache: The folder in which converted models are stored.

    Raises:
        ValueError: If the file is corrupt, or its model is not supported.
    """
    path = path.resolve()
    status = path.stat()
    key = hashlib.sha256(repr((str(path), status.st_size, status.st_mtime_ns)).encode()).hexdigest()
    folder = cache / f"{path.stem}-{key[:16]}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=cache, prefix=".partial-"))
    try:
        write_folder(open_model(path), partial)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has converted the file meanwhile
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def write_folder(files: ModelFiles, folder: Path) -> None:
    """Write a model's configuration, weights and tokenizer in a form that transformers can load."""
    from safetensors.torch import save_file

    config = {
        **files.config,
        "architectures": [_ARCHITECTURES[files.config["model_type"]]],
        "dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    tokenizer = files.tokenizer
    stop = list(tokenizer.eos_token_ids)
    _write_json(folder / "generation_config.json", {**files.generation_config, "eos_token_id": stop})
    save_file(
        {name: tensor.contiguous() for name, tensor in files.tensors()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
    }
    _write_json(folder / "tokenizer_config.json", {**settings, **tokenizer.special_tokens})
    if DEFAULT in tokenizer.chat_templates:
        (folder / "chat_template.jinja").write_text(tokenizer.chat_templates[DEFAULT], encoding="utf-8")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
