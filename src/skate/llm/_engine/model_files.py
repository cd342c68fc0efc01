"""Open a model: a folder with safetensors, a GGUF file, or an id on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._engine.gguf import GGUFFile
from skate.llm._engine.gguf_models import GGUFModel
from skate.llm._engine.json_files import read_json

if TYPE_CHECKING:
    import torch

    from skate.llm._engine.tokenizer import TextTokenizer

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TOKENIZER_PATTERNS = ("*.json", "*.jinja")
HUB_PATTERNS = (*TOKENIZER_PATTERNS, "*.safetensors")
# Buffers in old checkpoints, which models compute themselves.
IGNORED = re.compile(r".*rotary_emb\.inv_freq|(transformer\.)?h\.\d+\.attn\.(masked_)?bias")
# The keys of GPT-2's configuration, and the usual keys.
GPT2_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
}


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A model on disk. Weights are read when `tensors` is iterated, the tokenizer when it is first used.

    Attributes:
        name: The name of the folder or file, or the id on the hub.
        path: The folder or file.
        nbytes: The size of the files with the weights.
        config: The contents of config.json, with `head_dim`, `num_key_value_heads`, `rope_theta`, `rope_scaling` and
            `tie_word_embeddings` filled in.
        generation_config: The contents of generation_config.json; empty if there is none.
    """

    name: str
    path: Path
    nbytes: int
    config: dict[str, Any]
    generation_config: dict[str, Any]
    read_tensors: Callable[[], Iterator[tuple[str, torch.Tensor]]]
    open_tokenizer: Callable[[], TextTokenizer]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name and the value of each weight, named as in Hugging Face's checkpoints."""
        return self.read_tensors()

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer.

        Raises:
            FileNotFoundError: If the folder has no tokenizer.json.
            ValueError: If the tokenizer is corrupt or not supported.
        """
        return self.open_tokenizer()


def open_model(path: str | Path) -> ModelFiles:
    """Open a model: a folder with config.json and safetensors, a GGUF file, a folder with one, or an id on the hub.

    The headers of the weight files are checked, but the weights are not read yet.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is corrupt, or the model is not supported.
    """
    local = Path(path)
    if local.is_file():
        if local.suffix != ".gguf":
            raise ValueError(f"{local} is not a GGUF file; give a .gguf file or a folder with {CONFIG}")
        return _open_gguf(local)
    if local.is_dir():
        return _open_folder(local, local.resolve().name)
    if isinstance(path, str) and HUB_ID.fullmatch(path):
        return _open_folder(_download(path), path)
    raise FileNotFoundError(
        f"there is no model at {local}; give a folder, a .gguf file or an id on the Hugging Face hub"
    )


def is_gguf(path: str | Path) -> bool:
    """Return whether a model is a GGUF file, or a folder with one in place of a configuration."""
    place = Path(path)
    return place.suffix == ".gguf" or (not (place / CONFIG).exists() and any(place.glob("*.gguf")))


def open_tokenizer(path: str | Path, tokenizer: str | Path | None = None) -> TextTokenizer:
    """Open the tokenizer of a model, whatever the format of its weights.

    Args:
        path: The model: a folder, or an id on the hub.
        tokenizer: A folder with another tokenizer than the model's.

    Raises:
        FileNotFoundError: If there is no such folder, or it has no tokenizer.json.
        ValueError: If a file is corrupt.
    """
    from skate.llm._engine.tokenizer import TextTokenizer

    folder = Path(path)
    if not folder.is_dir() and isinstance(path, str) and HUB_ID.fullmatch(path):
        folder = _download(path, TOKENIZER_PATTERNS)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no model at {folder}; give a folder or an id on the Hugging Face hub"
        )
    eos: list[int] = []
    for name in (CONFIG, GENERATION_CONFIG):
        if (folder / name).exists():
            config = read_json(folder / name)
            eos += _eos_ids(config, folder / name)
            if isinstance(config.get("text_config"), dict):  # a model for text and images
                eos += _eos_ids(config["text_config"], folder / name)
    return TextTokenizer.from_folder(folder if tokenizer is None else Path(tokenizer), eos_token_ids=eos)


def read_weight_shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's weights by name; empty if it is not on this machine as safetensors.

    Args:
        path: A folder, or an id on the hub whose files have been loaded.
    """
    folder = Path(path)
    if not folder.is_dir():
        import huggingface_hub

        try:
            folder = Path(huggingface_hub.snapshot_download(str(path), local_files_only=True))
        except (OSError, ValueError):
            return {}
    try:
        return dict(_Safetensors(folder).shapes())
    except FileNotFoundError:  # in another format
        return {}


def _open_gguf(path: Path) -> ModelFiles:
    from skate.llm._engine.tokenizer import TextTokenizer

    model = GGUFModel(GGUFFile(path))
    return ModelFiles(
        name=path.stem,
        path=path,
        nbytes=path.stat().st_size,
        config=model.config,
        generation_config=model.generation_config,
        read_tensors=model.tensors,
        open_tokenizer=lambda: TextTokenizer.from_gguf(model.file),
    )


def _open_folder(folder: Path, name: str) -> ModelFiles:
    from skate.llm._engine.tokenizer import TextTokenizer

    if not (folder / CONFIG).exists():
        files = sorted(folder.glob("*.gguf"))
        if len(files) == 1:
            return _open_gguf(files[0])
        if files:
            names = ", ".join(each.name for each in files)
            raise ValueError(f"{folder} has {len(files)} GGUF files; give one of them: {names}")
        raise FileNotFoundError(f"{folder / CONFIG} does not exist, and the folder has no .gguf file")
    weights = _Safetensors(folder)
    try:
        config = _complete(read_json(folder / CONFIG), weights.names)
        method = (config.get("quantization_config") or {}).get("quant_method")
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG} has a value of the wrong type: {error}") from error
    if method:
        raise ValueError(f"{folder / CONFIG}: weights quantized with {method!r} are not supported")
    has_generation = (folder / GENERATION_CONFIG).exists()
    generation = read_json(folder / GENERATION_CONFIG) if has_generation else {}
    eos = (*_eos_ids(config, folder / CONFIG), *_eos_ids(generation, folder / GENERATION_CONFIG))
    return ModelFiles(
        name=name,
        path=folder,
        nbytes=sum(each.stat().st_size for each in weights.files),
        config=config,
        generation_config=generation,
        read_tensors=weights.tensors,
        open_tokenizer=lambda: TextTokenizer.from_folder(folder, eos_token_ids=eos),
    )


def _download(name: str, patterns: Sequence[str] = HUB_PATTERNS) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"{name!r} is not a local folder, and downloading it from the hub needs huggingface_hub:"
            " pip install 'skate[llm]'"
        ) from error
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{name!r} is not a local folder, and could not be downloaded from the Hugging Face hub: {error}"
        ) from error


def _eos_ids(config: Mapping[str, Any], path: Path) -> list[int]:
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    if not all(each is None or isinstance(each, int) for each in ids):
        raise ValueError(f"{path}: eos_token_id must be a number or a list of numbers, got {value!r}")
    return [each for each in ids if each is not None]


def _complete(config: dict[str, Any], names: Mapping[str, Path]) -> dict[str, Any]:
    """Fill in values that some versions of transformers omit or store under other keys."""
    if isinstance(config.get("text_config"), dict):  # a model for text and images
        outer = {key: config[key] for key in ("quantization_config", "eos_token_id") if key in config}
        config = outer | config["text_config"]
    for old, new in GPT2_NAMES.items():
        if config.get("model_type") == "gpt2" and config.get(old) is not None:
            config.setdefault(new, config[old])
    rope = config.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    if "rope_theta" in full:
        config.setdefault("rope_theta", full["rope_theta"])
    if "rope_theta" in rope.get("sliding_attention", {}):
        config.setdefault("rope_local_base_freq", rope["sliding_attention"]["rope_theta"])
    scaling = {key: value for key, value in full.items() if key != "rope_theta"}
    config.setdefault("rope_scaling", scaling if scaling.get("rope_type", "default") != "default" else None)
    if "partial_rotary_factor" in full:
        config.setdefault("partial_rotary_factor", full["partial_rotary_factor"])
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if heads and hidden:
        for key, value in (("num_key_value_heads", heads), ("head_dim", hidden // heads)):
            if config.get(key) is None:
                config[key] = value
    config.setdefault("tie_word_embeddings", "lm_head.weight" not in names)
    return config


class _Safetensors:
    """The weights of a folder: one file, or several with an index."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if (folder / INDEX).exists():
            self.names = self._indexed()
        elif (folder / SINGLE).exists():
            self.names = dict.fromkeys(self._keys(folder / SINGLE), folder / SINGLE)
        else:
            pickled = any(folder.glob("pytorch_model*.bin"))
            why = "; convert pytorch_model.bin to safetensors first" if pickled else ""
            raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}{why}")
        self.files = list(dict.fromkeys(self.names.values()))

    def _indexed(self) -> dict[str, Path]:
        index = self._folder / INDEX
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ValueError(f"{index} has no 'weight_map'")
        for shard in dict.fromkeys(shards.values()):
            # Only the names of files next to the index are allowed, because a path could lead anywhere.
            if not isinstance(shard, str) or Path(shard).name != shard:
                raise ValueError(f"{index} names the file {shard!r}, which is not in the folder of the index")
            if not (self._folder / shard).exists():
                raise FileNotFoundError(f"{self._folder / shard} does not exist, but {index.name} names it")
            expected = {name for name, each in shards.items() if each == shard}
            missing = expected.difference(self._keys(self._folder / shard))
            if missing:
                raise ValueError(
                    f"{self._folder / shard} has no tensor {min(missing)!r}, but {index.name} lists it"
                )
        return {name: self._folder / shard for name, shard in shards.items()}

    @staticmethod
    def _open(path: Path) -> Any:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise ImportError("reading model weights needs safetensors: pip install 'skate[llm]'") from error
        try:
            return safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is corrupt or incomplete: {error}") from error

    def _keys(self, path: Path) -> list[str]:
        with self._open(path) as file:
            return list(file.keys())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for path in self.files:
            with self._open(path) as file:
                for name in file.keys():  # noqa: SIM118 - the file is not a mapping
                    target = self._target(name)
                    if target is not None and self.names.get(name) == path:
                        yield target, file.get_tensor(name)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for path in self.files:
            with self._open(path) as file:
                for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                    yield name, tuple(file.get_slice(name).get_shape())

    @staticmethod
    def _target(name: str) -> str | None:
        """Return the name of a tensor in a text model, or None if a text model does not have the tensor."""
        if IGNORED.fullmatch(name) or "vision_tower." in name or "multi_modal_projector." in name:
            return None
        if re.match(r"(wte|wpe|ln_f|h\.\d+)\.", name):  # GPT-2's checkpoint on the hub lacks the prefix
            return f"transformer.{name}"
        if name.startswith("language_model."):
            return name.removeprefix("language_model.")
        return name.replace("model.language_model.", "model.", 1)
