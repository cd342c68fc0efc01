"""Convert `tf.train.Example` messages to blocks and back.

The messages are defined here, in a separate descriptor pool, to avoid conflicts with an imported TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from skate.air import _optional
from skate.data._block import values
from skate.data._block.tensors import is_tensor

_ARROW = {"bytes": pa.binary(), "float": pa.float32(), "int": pa.int64()}
_FIELDS = {"bytes": "bytes_list", "float": "float_list", "int": "int64_list"}
_KINDS = {field: kind for kind, field in _FIELDS.items()}
# Kinds by their number in tensorflow_metadata's `FeatureType`.
_SCHEMA_KINDS = {1: "bytes", 2: "int", 3: "float"}


def kinds_of(tf_schema: Any) -> dict[str, str]:
    """Return the kind of each feature in a schema."""
    return {feature.name: _SCHEMA_KINDS.get(feature.type, "bytes") for feature in tf_schema.feature}


def to_block(records: Sequence[bytes], schema: Mapping[str, str] | None, single: dict[str, bool]) -> pa.Table:
    """Convert serialized examples to a block.

    Args:
        records: The examples.
        schema: The kind of each feature, if known.
        single: Whether a feature is a scalar column, by name; the first block of a file decides for the others.

    Raises:
        ValueError: The kind of a feature contradicts the schema or another example.
    """
    features: dict[str, list[Any]] = {}
    kinds: dict[str, str] = dict(schema or {})
    parse = _example_class().FromString
    for number, record in enumerate(records):
        for name, feature in parse(record).features.feature.items():
            field = feature.WhichOneof("kind")
            if schema is not None and name not in schema:
                raise ValueError(f"Found extra unexpected feature {name!r}, which the schema does not name")
            if field is None:
                continue
            kind = _KINDS[field]
            found = list(getattr(feature, field).value)
            if kinds.setdefault(name, kind) != kind:
                if schema is not None:
                    raise ValueError(
                        f"feature {name!r} holds {kind}, and the schema says {kinds[name]}: correct the schema"
                    )
                raise ValueError(f"feature {name!r} holds {kinds[name]} in one example and {kind} in another")
            column = features.setdefault(name, [])
            column.extend([None] * (number - len(column)))
            column.append(found)
        for name in kinds:
            column = features.setdefault(name, [])
            column.extend([None] * (number + 1 - len(column)))
    return pa.table(
        {
            name: _column(
                name, features[name] + [None] * (len(records) - len(features[name])), kind, schema, single
            )
            for name, kind in kinds.items()
        }
    )


def from_block(block: pa.Table, schema: Mapping[str, str] | None) -> Iterator[bytes]:
    """Yield the rows of a block as serialized examples.

    Raises:
        ValueError: A column cannot be a feature, or contradicts the schema.
    """
    kinds = {name: _kind(name, block.schema.field(name).type, schema) for name in block.column_names}
    columns = [(name, kinds[name], values.to_list(block.column(name))) for name in block.column_names]
    example_class = _example_class()
    for row in range(block.num_rows):
        example = example_class()
        for name, kind, column in columns:
            target = getattr(example.features.feature[name], _FIELDS[kind])
            target.SetInParent()
            target.value.extend(_items(column[row], kind))
        yield example.SerializeToString()


def _column(
    name: str, lists: list[Any], kind: str, schema: Mapping[str, str] | None, single: dict[str, bool]
) -> pa.Array:
    longest = max((len(found) for found in lists if found is not None), default=0)
    if schema is None and single.setdefault(name, longest == 1):
        if longest > 1:
            raise ValueError(
                f"feature {name!r} has {longest} values where it had one before: pass tf_schema to read it as lists"
            )
        return pa.array([found[0] if found else None for found in lists], _ARROW[kind])
    return pa.array(lists, pa.list_(_ARROW[kind]))


def _kind(name: str, type_: pa.DataType, schema: Mapping[str, str] | None) -> str:
    inner = type_.value_type if is_tensor(type_) else type_
    while pa.types.is_list(inner) or pa.types.is_large_list(inner) or pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    if pa.types.is_integer(inner) or pa.types.is_boolean(inner):
        found = "int"
    elif pa.types.is_floating(inner):
        found = "float"
    elif (
        pa.types.is_string(inner)
        or pa.types.is_large_string(inner)
        or pa.types.is_string_view(inner)
        or pa.types.is_binary(inner)
        or pa.types.is_large_binary(inner)
    ):
        found = "bytes"
    elif pa.types.is_null(inner) and (schema is not None or inner is not type_):
        found = (schema or {}).get(name, "bytes")
    else:
        raise ValueError(
            f"column {name!r} of type {type_} cannot be written as a TFRecord feature: features are integers, floats, "
            f"bytes, text, and lists of them"
        )
    if schema is not None:
        if name not in schema:
            raise ValueError(f"Found extra unexpected feature {name!r}, which the schema does not name")
        if schema[name] != found:
            raise ValueError(
                f"column {name!r} holds {found}, and the schema says {schema[name]}: correct the schema or convert the "
                "column"
            )
    return found


def _items(value: Any, kind: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    listed = value if isinstance(value, list) else [value]
    if kind == "int":
        return [int(item) for item in listed]  # Protocol Buffers does not accept a bool
    if kind == "float":
        return listed
    return [item.encode() if isinstance(item, str) else item for item in listed]


@functools.cache
def _example_class() -> Any:
    descriptor_pb2 = _optional.load("google.protobuf.descriptor_pb2", "read_tfrecords", "protobuf")
    descriptor_pool = _optional.load("google.protobuf.descriptor_pool", "read_tfrecords", "protobuf")
    message_factory = _optional.load("google.protobuf.message_factory", "read_tfrecords", "protobuf")
    file = descriptor_pb2.FileDescriptorProto(
        name="skate_example.proto", package="skate.example", syntax="proto3"
    )
    types = descriptor_pb2.FieldDescriptorProto
    repeated, optional = types.LABEL_REPEATED, types.LABEL_OPTIONAL

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, label, type_, of in fields:
            made.field.add(name=field, number=number, label=label, type=type_, type_name=of or None)
        return made

    message("BytesList", ("value", 1, repeated, types.TYPE_BYTES, ""))
    message("FloatList", ("value", 1, repeated, types.TYPE_FLOAT, ""))
    message("Int64List", ("value", 1, repeated, types.TYPE_INT64, ""))
    feature = message(
        "Feature",
        ("bytes_list", 1, optional, types.TYPE_MESSAGE, ".skate.example.BytesList"),
        ("float_list", 2, optional, types.TYPE_MESSAGE, ".skate.example.FloatList"),
        ("int64_list", 3, optional, types.TYPE_MESSAGE, ".skate.example.Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(
        "Features", ("feature", 1, repeated, types.TYPE_MESSAGE, ".skate.example.Features.FeatureEntry")
    )
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=optional, type=types.TYPE_STRING)
    entry.field.add(
        name="value", number=2, label=optional, type=types.TYPE_MESSAGE, type_name=".skate.example.Feature"
    )
    message("Example", ("features", 1, optional, types.TYPE_MESSAGE, ".skate.example.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("skate.example.Example"))
