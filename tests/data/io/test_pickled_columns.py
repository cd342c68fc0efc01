"""No file runs code when it is read: columns of pickled objects raise, or stay bytes."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import skate
import skate.data
from skate.data._io import pickled_columns
from skate.data.block import BlockMetadata
from skate.data.datasource import Datasource, ReadTask

NAMES = ["skate.python_object", "ray.data.arrow_pickled_object"]
pytestmark = pytest.mark.usefixtures("by_reference", "client_libraries")
_called: list[str] = []


def call() -> None:
    _called.append("a file ran code")


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return call, ()


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    _called.clear()
    skate.init(engine="inline")
    yield
    skate.shutdown()
    assert not _called


def named(name: str) -> dict[str, str]:
    return {"ARROW:extension:name": name, "ARROW:extension:metadata": ""}


def hostile(name: str = NAMES[0], shape: str = "plain") -> pa.Table:
    """Return a table that says in plain metadata, without Skate, that a column is of pickled objects."""
    values = pa.array([pickle.dumps(Malicious())], pa.large_binary())
    field = pa.field("x", pa.large_binary(), metadata=named(name))
    if shape == "struct":
        values = pa.StructArray.from_arrays([values], fields=[field])
    elif shape == "list":
        values = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values, type=pa.list_(field))
    elif shape == "dictionary":
        values = values.dictionary_encode()
    outer = field.with_type(values.type) if shape in ("plain", "dictionary") else pa.field("x", values.type)
    metadata = named(name) if shape == "schema" else None
    if shape == "schema":
        outer = pa.field("x", values.type)
    return pa.Table.from_arrays(
        [values, pa.array([7])], schema=pa.schema([outer, pa.field("n", pa.int64())], metadata)
    )


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_lance(table: pa.Table, path: Path) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(table, str(path))


def write_feather(table: pa.Table, path: Path) -> None:
    feather.write_feather(table, str(path))


FORMATS: dict[str, tuple[Callable[[pa.Table, Path], None], Callable[[str], Any]]] = {
    "arrow": (write_arrow, skate.data.read_arrow),
    "arrows": (write_stream, skate.data.read_arrow),
    "feather": (write_feather, skate.data.read_arrow),
    "parquet": (lambda table, path: pq.write_table(table, path), skate.data.read_parquet),
    "lance": (write_lance, skate.data.read_lance),
}


@pytest.mark.parametrize(
    ("shape", "name"),
    [("plain", NAMES[1]), *((shape, NAMES[0]) for shape in ("plain", "struct", "list", "dictionary"))],
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_column_that_claims_to_be_of_pickled_objects_is_refused(
    tmp_path: Path, format: str, shape: str, name: str
) -> None:
    if format == "lance" and shape == "dictionary":
        pytest.skip("Lance has no dictionaries of bytes")
    write, read = FORMATS[format]
    path = tmp_path / f"x.{format}"
    write(hostile(name, shape), path)
    with pytest.raises(
        ValueError, match=r"'x'\] hold pickled Python objects.*SKATE_DATA_READ_PICKLED_OBJECTS"
    ):
        read(str(path)).take_all()


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_in_the_metadata_of_a_schema_means_nothing(tmp_path: Path, format: str) -> None:
    write, read = FORMATS[format]
    path = tmp_path / f"x.{format}"
    write(hostile(shape="schema"), path)
    assert read(str(path)).take_all() == [{"x": pickle.dumps(Malicious()), "n": 7}]


def test_other_columns_of_such_a_file_can_be_read(tmp_path: Path) -> None:
    pq.write_table(hostile(), tmp_path / "x.parquet")
    assert skate.data.read_parquet(str(tmp_path)).select_columns(["n"]).take_all() == [{"n": 7}]


def test_pyarrow_itself_reads_bytes(tmp_path: Path) -> None:
    pq.write_table(hostile(), tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [{"x": pickle.dumps(Malicious()), "n": 7}]


def test_a_stream_in_memory_is_refused_too() -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, hostile().schema) as writer:
        writer.write_table(hostile())
    with pytest.raises(ValueError, match=r"hold pickled Python objects"):
        skate.data.from_arrow(sink.getvalue())


def test_a_table_of_the_program_keeps_its_bytes() -> None:
    assert skate.data.from_arrow(hostile()).take_all() == [{"x": pickle.dumps(Malicious()), "n": 7}]


class Mapped(Datasource):
    """A source of the user's own, which hands out what it finds in a file."""

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        metadata = BlockMetadata(num_rows=1, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(lambda: [hostile()], metadata)]


def test_a_source_of_the_users_own_is_held_to_the_same() -> None:
    with pytest.raises(ValueError, match=r"hold pickled Python objects"):
        skate.data.read_datasource(Mapped()).take_all()


class Registered(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no type information
    """A type of another library, such as Ray, that pyarrow finds by its name."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), NAMES[1])

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Registered:
        return cls()


def test_a_type_that_another_library_has_registered_is_refused(tmp_path: Path) -> None:
    pa.register_extension_type(Registered())
    try:
        write_arrow(hostile(NAMES[1]), tmp_path / "x.arrow")
        with pytest.raises(ValueError, match=r"hold pickled Python objects"):
            skate.data.read_arrow(str(tmp_path)).take_all()
    finally:
        pa.unregister_extension_type(NAMES[1])


@pytest.mark.parametrize(
    ("name", "variable"),
    [(NAMES[0], pickled_columns.ALLOW_PICKLED), (NAMES[1], pickled_columns.RAY_ALLOW_PICKLED)],
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_program_that_trusts_its_files_reads_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str, variable: str
) -> None:
    values = pa.array([pickle.dumps({1, 2}), None], pa.large_binary())
    table = pa.table([values], schema=pa.schema([pa.field("x", pa.large_binary(), metadata=named(name))]))
    write, read = FORMATS[format]
    path = tmp_path / f"x.{format}"
    write(table, path)
    monkeypatch.setenv(variable, "1")
    assert read(str(path)).take_all() == [{"x": {1, 2}}, {"x": None}]


def test_objects_can_be_appended_to_a_lance_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lance")
    path = str(tmp_path / "x.lance")
    skate.data.from_items([{"x": 1j}]).write_lance(path)
    skate.data.from_items([{"x": 2j}]).write_lance(path, mode="append")
    monkeypatch.setenv(pickled_columns.ALLOW_PICKLED, "1")
    assert skate.data.read_lance(path).take_all() == [{"x": 1j}, {"x": 2j}]


def test_objects_still_travel_between_steps_of_a_dataset() -> None:
    rows = skate.data.range(3).map(lambda row: {"x": complex(row["id"])}).random_shuffle(seed=1)
    assert sorted(abs(row["x"]) for row in rows.take_all()) == [0.0, 1.0, 2.0]


TENSOR = "skate.variable_shaped_tensor"
PARTS = {"data": pa.large_list(pa.int64()), "shape": pa.list_(pa.int64())}


@pytest.mark.parametrize(
    ("type_", "parameters"),
    [
        (pa.int64(), '{"ndim": 1}'),
        (pa.struct(PARTS), "no JSON"),
        (pa.struct(PARTS), "[]"),
        (pa.struct(PARTS), '{"ndim": "x"}'),
        (pa.struct({**PARTS, "data": pa.list_(pa.int64())}), '{"ndim": 1}'),
        (pa.struct({**PARTS, "shape": pa.int64()}), '{"ndim": 1}'),
        (pa.struct({"shape": PARTS["shape"], "data": PARTS["data"]}), '{"ndim": 1}'),
    ],
)
def test_a_column_that_is_not_stored_as_tensors_is_refused(
    tmp_path: Path, type_: pa.DataType, parameters: str
) -> None:
    metadata = {"ARROW:extension:name": TENSOR, "ARROW:extension:metadata": parameters}
    table = pa.table([pa.nulls(2, type_)], schema=pa.schema([pa.field("x", type_, metadata=metadata)]))
    write_arrow(table, tmp_path / "x.arrow")
    with pytest.raises((ValueError, KeyError, TypeError)):
        skate.data.read_arrow(str(tmp_path)).take_all()


def test_bounds_outside_of_a_buffer_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write_arrow(pa.table({"x": ["abc"]}), path)
    data = path.read_bytes()
    end = data.index(bytes(4) + (3).to_bytes(4, sys.byteorder) + b"abc") + 4  # of the text, after its start
    path.write_bytes(data[:end] + (1 << 20).to_bytes(4, sys.byteorder) + data[end + 4 :])
    with pytest.raises(ValueError, match=r"x\.arrow"):
        skate.data.read_arrow(str(tmp_path)).take_all()
