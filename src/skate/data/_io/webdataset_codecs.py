"""Convert members of WebDataset files to values by their extensions, and values to members."""

from __future__ import annotations

import functools
import io
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from skate.air import _optional
from skate.data._io import pickled_columns

Coder = Callable[[dict[str, Any]], dict[str, Any]]

_TEXT = {"txt", "text", "transcript"}
_NUMBER = {"cls", "cls2", "index", "inx", "id", "count"}
_IMAGE = {"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "bmp", "tif", "tiff", "webp"}
_PICKLE = {"pkl", "pickle", "pyd"}
_TORCH = {"pt", "pth"}


def decoders(given: Any) -> list[Coder]:
    """Return the functions that convert a row of bytes to a row of values."""
    # The process that creates the dataset decides whether to trust files, not the worker that runs a task.
    trusted = pickled_columns.may_unpickle("RAY_DATA_WEBDATASET_ALLOW_UNSAFE_DESERIALIZATION")
    return [_coder(coder, functools.partial(_decode_row, trusted=trusted)) for coder in _as_list(given)]


def encoders(given: Any) -> list[Coder]:
    """Return the functions that convert a row of values to a row of bytes."""
    return [_coder(coder, _encode_row) for coder in _as_list(given)]


def parse_json(data: bytes) -> Any:
    """Parse a `json` member."""
    return json.loads(data)


def _as_list(given: Any) -> list[Any]:
    if given is None or given is False:
        return []
    return given if isinstance(given, list) else [given]


def _coder(given: Any, default: Callable[[dict[str, Any], str | None], dict[str, Any]]) -> Coder:
    if given is True:
        return functools.partial(default, images=None)  # type: ignore[call-arg]
    if isinstance(given, str):
        return functools.partial(default, images=given)  # type: ignore[call-arg]
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise TypeError(f"the encoder or decoder is {given!r}: pass True, 'PIL', a function, or a list of these")


def _decode_row(row: dict[str, Any], images: str | None, *, trusted: bool) -> dict[str, Any]:
    return {
        name: value
        if name.startswith("__") or not isinstance(value, bytes)
        else _decode_member(name, value, images, trusted)
        for name, value in row.items()
    }


def _decode_member(name: str, data: bytes, images: str | None, trusted: bool) -> Any:
    kind = name.rpartition(".")[2].lower()
    if kind in _TEXT:
        return data.decode()
    if kind in _NUMBER:
        return int(data)
    if kind == "json":
        return parse_json(data)
    if kind == "npy":
        return np.load(io.BytesIO(data), allow_pickle=trusted)
    if kind in ("mp", "msg", "msgpack"):
        return msgspec.msgpack.decode(data)
    if kind in _IMAGE:
        image = _optional.load("PIL.Image", f"decoding .{kind}", "pillow").open(io.BytesIO(data))
        image.load()
        return image if images and images.lower().startswith("pil") else np.asarray(image)
    if kind in _TORCH:
        return _load_torch(name, data, trusted)
    if kind in _PICKLE:
        if not trusted:
            raise ValueError(f"Refusing to unpickle {name!r}: {_WARNING}")
        return pickle.loads(data)
    return data


_WARNING = (
    f"loading it can run any code. If you trust the writer of the file, set {pickled_columns.ALLOW_PICKLED}=1; "
    f"or pass a custom decoder"
)


def _load_torch(name: str, data: bytes, trusted: bool) -> Any:
    torch = _optional.load("torch", "decoding .pt")
    try:
        value = torch.load(io.BytesIO(data), map_location="cpu", weights_only=not trusted)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"Refusing to unpickle {name!r}, which holds more than tensors: {_WARNING}"
        ) from error
    return value.numpy() if isinstance(value, torch.Tensor) else value


def _encode_row(row: dict[str, Any], images: str | None) -> dict[str, Any]:
    return {
        name: value
        if name.startswith("__") or value is None or isinstance(value, bytes)
        else _encode_member(name, value)
        for name, value in row.items()
    }


def _encode_member(name: str, value: Any) -> Any:
    kind = name.rpartition(".")[2].lower()
    if kind == "json":
        return json.dumps(value, default=_jsonable).encode()
    if kind == "npy":
        out = io.BytesIO()
        np.save(out, np.asarray(value), allow_pickle=False)
        return out.getvalue()
    if kind in ("mp", "msg", "msgpack"):
        return msgspec.msgpack.encode(value, enc_hook=_jsonable)
    if kind in _IMAGE and not isinstance(value, str):
        pillow = _optional.load("PIL.Image", f"encoding .{kind}", "pillow")
        image = value if isinstance(value, pillow.Image) else pillow.fromarray(np.asarray(value))
        out = io.BytesIO()
        image.save(out, format={"jpg": "jpeg", "tif": "tiff"}.get(kind, kind))
        return out.getvalue()
    if kind in _TORCH:
        out = io.BytesIO()
        _optional.load("torch", "encoding .pt").save(value, out)
        return out.getvalue()
    if kind in _PICKLE:
        return pickle.dumps(value)
    if isinstance(value, bool | int | float | np.number):
        return str(value).encode()
    return value


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
