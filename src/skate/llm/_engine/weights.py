"""The tensors of a checkpoint: their names as in Llama's checkpoints, and a digest that identifies them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from operator import itemgetter

import torch

_SAMPLED = 64  # numbers of a tensor that its digest covers

# The names of modules in GPT-2's checkpoints, and in Llama's. GPT-2's matrices are stored as (in, out).
_GPT2_LAYER = {
    "ln_1": "input_layernorm",
    "ln_2": "post_attention_layernorm",
    "attn.c_proj": "self_attn.o_proj",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}
_GPT2_MODEL = {"wte": "model.embed_tokens", "wpe": "model.embed_positions", "ln_f": "model.norm"}
_GPT2_NAME = re.compile(
    r"(?:transformer\.)?(?:h\.(?P<layer>\d+)\.)?(?P<module>[a-z_.0-9]+)\.(?P<kind>weight|bias)"
)


def llama_names(
    model_type: str, tensors: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint under the names that `Decoder` reads."""
    for name, tensor in tensors:
        if model_type == "gpt2":
            yield from _rename_gpt2(name, tensor)
        else:
            yield name, tensor


def _rename_gpt2(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    match = _GPT2_NAME.fullmatch(name)
    if match is None:
        return
    layer, module, kind = match["layer"], match["module"], match["kind"]
    if layer is None:
        if module in _GPT2_MODEL:
            yield f"{_GPT2_MODEL[module]}.{kind}", tensor
        return
    if not module.startswith("ln_") and kind == "weight" and tensor.dim() == 2:
        tensor = tensor.t()
    prefix = f"model.layers.{layer}"
    if module == "attn.c_attn":
        for part, chunk in zip("qkv", tensor.chunk(3), strict=True):
            yield f"{prefix}.self_attn.{part}_proj.{kind}", chunk
    elif module in _GPT2_LAYER:
        yield f"{prefix}.{_GPT2_LAYER[module]}.{kind}", tensor


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]], *settings: object) -> str:
    """Return a digest of tensors and settings that distinguishes weights, also between processes.

    It covers the name, the shape and some evenly spaced numbers of each tensor, because reading all numbers would take
    longer than loading a model.

    >>> weights_digest([("a", torch.zeros(2))]) == weights_digest([("a", torch.ones(2))])
    False
    """
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in sorted(tensors, key=itemgetter(0)):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        if tensor.numel():
            places = torch.linspace(0, tensor.numel() - 1, min(_SAMPLED, tensor.numel()), dtype=torch.float64)
            chosen = tensor.detach()[torch.unravel_index(places.long().to(tensor.device), tensor.shape)]
            digest.update(chosen.to("cpu", torch.float32).numpy().tobytes())
    return digest.hexdigest()[:32]
