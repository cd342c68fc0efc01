"""Arrow, ORC, Avro, audio and video files."""

from __future__ import annotations

from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.feather as paf
import pyarrow.orc as paorc
import pytest

from skate.data._io.arrow_ipc import ArrowDatasink, ArrowDatasource
from skate.data._io.avro import AvroDatasource
from skate.data._io.media import AudioDatasource, VideoDatasource
from skate.data._io.orc import ORCDatasink, ORCDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import read, read_rows, write

TABLE = pa.table({"n": [1, 2, None], "s": ["a", None, "c"], "l": [[1], [], None]})


def test_feather_files_are_read(tmp_path: Path) -> None:
    table = TABLE.select(["n", "s"])
    paf.write_feather(table, tmp_path / "x.feather")
    assert read(ArrowDatasource(tmp_path)).equals(table)


def test_arrow_streams_and_files_are_read(tmp_path: Path) -> None:
    write(ArrowDatasink(tmp_path), TABLE)
    assert read(ArrowDatasource(tmp_path)).equals(TABLE)
    (path,) = tmp_path.iterdir()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert read(ArrowDatasource(tmp_path)).equals(TABLE)


def test_orc_files_come_back(tmp_path: Path) -> None:
    write(ORCDatasink(tmp_path, arrow_orc_args={"compression": "zstd"}), TABLE)
    assert read(ORCDatasource(tmp_path)).equals(TABLE)
    assert read(ORCDatasource(tmp_path, columns=["s"])).column_names == ["s"]


def test_an_empty_orc_file_has_no_rows(tmp_path: Path) -> None:
    paorc.write_table(TABLE.slice(0, 0), tmp_path / "x.orc")
    assert read(ORCDatasource(tmp_path)).num_rows == 0


def test_avro_files_are_read(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"]}]}
    for name, records in (("a.avro", [{"n": 1}, {"n": None}]), ("empty.avro", [])):
        with open(tmp_path / name, "wb") as file:
            fastavro.writer(file, schema, records)
    assert read_rows(AvroDatasource(tmp_path)) == [{"n": 1}, {"n": None}]


@pytest.mark.parametrize(
    ("source", "name"), [(ArrowDatasource, "x.arrow"), (ORCDatasource, "x.orc"), (AvroDatasource, "x.avro")]
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, source: type, name: str) -> None:
    (tmp_path / name).write_bytes(b"this is something else altogether")
    with pytest.raises((FileReadError, OSError), match=name):
        read(source(tmp_path))


def test_audio_becomes_channels_and_samples(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for number, length in enumerate((100, 150)):
        soundfile.write(tmp_path / f"{number}.wav", np.zeros((length, 2), np.float32), 8000)
    rows = read_rows(AudioDatasource(tmp_path))
    assert [(row["amplitude"].shape, row["sample_rate"]) for row in rows] == [
        ((2, 100), 8000),
        ((2, 150), 8000),
    ]
    (tmp_path / "2.wav").write_bytes(b"spam")
    with pytest.raises(FileReadError, match=r"2\.wav"):
        read(AudioDatasource(tmp_path))


@pytest.fixture
def video(tmp_path: Path) -> Path:
    av = pytest.importorskip("av")
    path = tmp_path / "x.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((16, 32, 3), number * 10, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_frames_of_a_video_become_rows(video: Path) -> None:
    table = read(VideoDatasource(video, include_timestamps=True))
    assert table.column_names == ["frame", "frame_index", "frame_timestamp"]
    assert table["frame_index"].to_pylist() == list(range(20))
    assert table.schema.field("frame").type.shape == [16, 32, 3]
    rows = read_rows(VideoDatasource(video, include_timestamps=True))
    np.testing.assert_allclose(rows[3]["frame_timestamp"], [0.3, 0.4])


def test_frames_can_be_thinned_out_and_scaled(video: Path) -> None:
    rows = read_rows(VideoDatasource(video, fps=5, resize=(8, 12)))
    assert [row["frame_index"] for row in rows] == list(range(0, 20, 2))
    assert rows[0]["frame"].shape == (8, 12, 3)


@pytest.mark.parametrize("options", [{"fps": 0}, {"fps": 1.5}, {"resize": (0, 1)}, {"resize": (1,)}])
def test_options_for_videos_are_checked(video: Path, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"positive"):
        VideoDatasource(video, **options)  # type: ignore[arg-type]


def test_a_file_that_is_no_video_is_named(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "x.mp4").write_bytes(b"spam" * 100)
    with pytest.raises((FileReadError, OSError), match=r"x\.mp4"):
        read(VideoDatasource(tmp_path))
