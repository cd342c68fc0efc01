"""Read many damaged versions of small files of one format, in one process, and print the outcome of each.

    hostile_files.py FORMAT FOLDER COUNT SEED FIRST

FIRST is the number of the first file to read, for a second process after one that has died. The process has 4 GiB of
address space beyond that of its libraries, so that a file that claims to be huge cannot take the machine's memory. It
prints a line before and after it reads a file: the last line of a process that has died names
the file.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import resource
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq

import skate
import skate.data
from skate.data import DataContext

MARK = Path(sys.argv[2]) / "PWNED"
ROOM = 4 << 30
TABLE = pa.table(
    {
        "n": pa.array([1, None, 3, 4]),
        "s": ["abc", "", None, "d" * 300],
        "l": [[1, 2], [], None, [3]],
        "t": pa.array([{"a": 1, "b": "x"}] * 4),
        "d": pa.array(["u", "v", "u", "v"]).dictionary_encode(),
    }
)
TENSORS = {"r": [np.ones((1, 2)), np.ones((2, 2))], "f": np.ones((2, 3, 4), dtype=np.float32)}


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


def good_files(form: str) -> list[bytes]:
    """Return the content of good files of a format."""
    out = io.BytesIO()
    if form == "parquet":
        plain = io.BytesIO()
        pq.write_table(TABLE, plain, compression="none")
        pq.write_table(TABLE, out, compression="zstd", use_dictionary=False, data_page_version="2.0")
        return [plain.getvalue(), out.getvalue(), _tensors(lambda table, sink: pq.write_table(table, sink))]
    if form == "arrow":
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, TABLE.schema) as writer:
            writer.write_table(TABLE)
        feather.write_feather(TABLE, out, compression="lz4")
        tensors = _tensors(lambda table, sink: feather.write_feather(table, sink, compression="uncompressed"))
        return [stream.getvalue(), out.getvalue(), tensors, _pickled()]
    if form == "orc":
        orc.write_table(TABLE.drop_columns(["d"]), out)
        return [out.getvalue()]
    if form == "csv":
        return [b'n,s\n1,"a ""b"""\n2,c\n' * 5]
    if form == "json":
        return [b'{"n": 1, "l": [1, {"a": null}], "s": "\\u00e9"}\n' * 5]
    if form == "text":
        return ["ä line\nanother\n".encode() * 5]
    if form == "numpy":
        np.save(out, np.arange(24.0).reshape(4, 6))
        archive, objects = io.BytesIO(), io.BytesIO()
        np.savez(archive, a=np.arange(4), b=np.ones(4))
        np.save(objects, np.array([Malicious()], dtype=object), allow_pickle=True)
        return [out.getvalue(), archive.getvalue(), objects.getvalue()]
    if form == "images":
        from PIL import Image

        found = []
        for kind in ("png", "jpeg", "bmp", "gif", "tiff", "webp"):
            out = io.BytesIO()
            Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(out, kind)
            found.append(out.getvalue())
        return found
    if form == "audio":
        import soundfile

        soundfile.write(out, np.zeros((64, 2)), 8000, format="WAV")
        return [out.getvalue()]
    if form == "avro":
        import fastavro

        fields = [{"name": "a", "type": "int"}, {"name": "b", "type": {"type": "array", "items": "string"}}]
        schema: Any = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(out, schema, [{"a": 1, "b": ["x", "y"]}] * 4, codec="deflate")
        return [out.getvalue()]
    if form in ("tfrecords", "videos"):
        return [_written(form)]
    assert form == "webdataset", form
    members = {
        "0.json": b'{"a": 1}',
        "0.npy": good_files("numpy")[0],
        "0.png": good_files("images")[0],
        "0.mp": b"\x81\xa1a\x01",
        "1.cls": b"7",
        "1.txt": b"text",
    }
    return [
        _tar(members),
        _tar({"0.pkl": pickle.dumps(Malicious())}),
        _tar({"0.npy": good_files("numpy")[2]}),
    ]


def _tensors(write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    [block] = skate.get(skate.data.from_numpy(TENSORS["f"]).to_arrow_refs())
    ragged = skate.data.from_items([{"r": each} for each in TENSORS["r"]])
    [other] = skate.get(ragged.to_arrow_refs())
    write(block.append_column(other.schema.field("r"), other["r"]), out)
    return out.getvalue()


def _pickled() -> bytes:
    name = {"ARROW:extension:name": "skate.python_object", "ARROW:extension:metadata": ""}
    field = pa.field("x", pa.large_binary(), metadata=name)
    table = pa.table([pa.array([pickle.dumps(Malicious())], pa.large_binary())], schema=pa.schema([field]))
    out = io.BytesIO()
    feather.write_feather(table, out)
    return out.getvalue()


def _written(form: str) -> bytes:
    if form == "tfrecords":
        folder = Path(sys.argv[2]) / "good"
        skate.data.from_items([{"a": 1, "b": b"xyz", "c": [1.0, 2.0]}] * 3).write_tfrecords(str(folder))
        return next(folder.iterdir()).read_bytes()
    import av

    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for shade in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), shade * 40, np.uint8), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


def _tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def damaged(good: bytes, chance: random.Random) -> bytes:
    """Return a file that is cut off, too long, or has other bytes in it."""
    way = chance.randrange(6)
    if way == 0:
        return good[: chance.randrange(len(good))]
    if way == 1:
        return good + chance.randbytes(chance.randrange(1, 100))
    if way == 2:
        start = chance.randrange(len(good))
        return good[:start] + good[start + chance.randrange(1, 50) :]
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(data))
        if way == 3:
            data[at] ^= 1 << chance.randrange(8)
        elif way == 4:
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        else:  # a length or a position that is far too large
            data[at : at + 4] = chance.choice((b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80"))
    return bytes(data)


EXTENSIONS = {
    "images": "png",
    "audio": "wav",
    "videos": "mp4",
    "webdataset": "tar",
    "numpy": "npy",
    "text": "txt",
}


def main() -> None:
    form, folder = sys.argv[1], Path(sys.argv[2])
    count, seed, first = map(int, sys.argv[3:])
    skate.init(engine="inline", logging_level="ERROR")
    DataContext.get_current().small_plan_bytes = 1 << 60
    read: Any = getattr(skate.data, f"read_{form}")
    good = good_files(form)
    path = folder / f"x.{EXTENSIONS.get(form, form)}"
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    chance = random.Random(seed)
    for number in range(count):
        content = good[number] if number < len(good) else damaged(chance.choice(good), chance)
        if number < first:
            continue
        path.write_bytes(content)
        print(number, "reading", flush=True)
        try:
            print(number, "rows", len(read(str(path)).take_all()), flush=True)
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            print(number, "error", *kinds, "|", ascii(str(error))[:300], flush=True)
        if MARK.exists():
            sys.exit(f"file {number} has run code")
    skate.shutdown()


main()
