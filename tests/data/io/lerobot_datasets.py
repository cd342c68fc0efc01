"""Write small LeRobot datasets: Parquet files and JSON, and videos with PyAV."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 10
HEIGHT, WIDTH = 32, 48
CAMERA = "observation.images.front"
TASKS = ["pick the cube", "open the drawer"]
STATS = {"action": {"mean": [0.5, 0.5], "std": [1.0, 1.0]}}


def gray(index: int) -> int:
    """Return the brightness of the frame of a row."""
    return 20 + 15 * (index % 15)


def picture(index: int) -> np.ndarray[Any, Any]:
    """Return the frame of a row."""
    return np.full((HEIGHT, WIDTH, 3), gray(index), np.uint8)


def make(
    folder: Path,
    lengths: Sequence[int] = (4, 3, 5),
    *,
    camera: str | None = "video",
    version: str = "v3.0",
    episodes_per_video: int = 2,
    width: int = 2,
) -> str:
    """Write a dataset whose row `i` has the action `[i, i + 0.5]` and a frame of the brightness `gray(i)`.

    Args:
        folder: Its folder.
        lengths: Number of rows of each episode.
        camera: `"video"`, `"image"`, or None for no camera.
        version: Version of the format.
        episodes_per_video: Number of episodes in each video of version 3.
        width: Number of values of an action.
    """
    rows = _rows(lengths, width)
    if camera == "image":
        rows = rows.append_column(
            CAMERA, pa.array([{"bytes": png(i), "path": None} for i in range(len(rows))])
        )
    features: dict[str, Any] = {
        "action": {"dtype": "float32", "shape": [width], "names": None},
        "observation.pose": {"dtype": "float32", "shape": [2, 2], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **{
            name: {"dtype": "int64", "shape": [1], "names": None}
            for name in ("frame_index", "episode_index", "index", "task_index")
        },
    }
    if camera is not None:
        names = ["height", "width", "channels"]
        features[CAMERA] = {"dtype": camera, "shape": [HEIGHT, WIDTH, 3], "names": names}
    write = _write_3 if version.startswith("v3") else _write_2
    write(
        folder,
        rows,
        lengths,
        {"codebase_version": version, "fps": FPS, "features": features},
        episodes_per_video,
    )
    return str(folder)


def png(index: int) -> bytes:
    """Return the frame of a row as a PNG file."""
    from PIL import Image

    encoded = io.BytesIO()
    Image.fromarray(picture(index)).save(encoded, "png")
    return encoded.getvalue()


def _rows(lengths: Sequence[int], width: int) -> pa.Table:
    episode = np.repeat(np.arange(len(lengths)), lengths)
    frame = np.concatenate([np.arange(length) for length in lengths])
    index = np.arange(len(episode))
    action = index[:, None] + np.array([0.0, 0.5])[None, :width]
    pose = index[:, None, None] * np.ones((2, 2))
    return pa.table(
        {
            "action": pa.array(action.tolist(), pa.list_(pa.float32())),
            "observation.pose": pa.array(pose.tolist(), pa.list_(pa.list_(pa.float32()))),
            "timestamp": pa.array((frame / FPS).astype(np.float32)),
            "frame_index": frame,
            "episode_index": episode,
            "index": index,
            "task_index": episode % 2,
        }
    )


def _write_3(
    folder: Path, rows: pa.Table, lengths: Sequence[int], info: dict[str, Any], episodes_per_video: int
) -> None:
    stops = np.cumsum(lengths).tolist()
    starts = [0, *stops[:-1]]
    episodes: dict[str, Any] = {
        "episode_index": list(range(len(lengths))),
        "dataset_from_index": starts,
        "dataset_to_index": stops,
        "length": list(lengths),
        "data/chunk_index": [0] * len(lengths),
        "data/file_index": [0] * len(lengths),
    }
    info["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    if info["features"].get(CAMERA, {}).get("dtype") == "video":
        info["video_path"] = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
        files = [number // episodes_per_video for number in range(len(lengths))]
        first = [starts[file * episodes_per_video] for file in files]
        episodes[f"videos/{CAMERA}/chunk_index"] = [0] * len(lengths)
        episodes[f"videos/{CAMERA}/file_index"] = files
        episodes[f"videos/{CAMERA}/from_timestamp"] = [
            (start - origin) / FPS for start, origin in zip(starts, first, strict=True)
        ]
        for file in sorted(set(files)):
            last = max(number for number, each in enumerate(files) if each == file)
            path = folder / f"videos/{CAMERA}/chunk-000/file-{file:03d}.mp4"
            write_video(path, range(starts[file * episodes_per_video], stops[last]))
    _save(folder / "data/chunk-000/file-000.parquet", rows)
    _save(folder / "meta/episodes/chunk-000/file-000.parquet", pa.table(episodes))
    # As pandas writes a frame with the descriptions as its index.
    _save(folder / "meta/tasks.parquet", pa.table({"task_index": [0, 1], "__index_level_0__": TASKS}))
    (folder / "meta/stats.json").write_text(json.dumps(STATS))
    (folder / "meta/info.json").write_text(json.dumps(info))


def _write_2(folder: Path, rows: pa.Table, lengths: Sequence[int], info: dict[str, Any], _: int) -> None:
    info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    info["chunks_size"] = 2
    if info["features"].get(CAMERA, {}).get("dtype") == "video":
        info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    start = 0
    for number, length in enumerate(lengths):
        where = {"episode_chunk": number // 2, "episode_index": number}
        _save(folder / info["data_path"].format(**where), rows.slice(start, length))
        if "video_path" in info:
            write_video(
                folder / info["video_path"].format(video_key=CAMERA, **where), range(start, start + length)
            )
        start += length
    meta = folder / "meta"
    meta.mkdir(parents=True)
    tasks = [{"task_index": number, "task": task} for number, task in enumerate(TASKS)]
    episodes = [{"episode_index": number, "length": length} for number, length in enumerate(lengths)]
    for name, lines in (("tasks", tasks), ("episodes", episodes)):
        (meta / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (meta / "info.json").write_text(json.dumps(info))


def write_video(
    path: Path, indices: Sequence[int], codec: str = "mpeg4", options: dict[str, str] | None = None
) -> None:
    """Write a video with the frames of some rows; by default, every other frame is a key frame."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS, options=options or {"g": "2"})
        stream.bit_rate = 4_000_000
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for index in indices:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(index), format="rgb24")))
        container.mux(stream.encode())


def _save(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=4)
