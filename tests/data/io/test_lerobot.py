from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._io.lerobot import LeRobotDatasource
from skate.data._io.lerobot_frames import VideoFrames
from skate.data.exceptions import FileReadError
from tests.data.io import lerobot_datasets
from tests.data.io.lerobot_datasets import CAMERA, FPS, HEIGHT, STATS, TASKS, WIDTH, gray, make, write_video
from tests.data.io.support import blocks, read, read_rows

pytest.importorskip("av")
DATA = "data/chunk-000/file-000.parquet"
VIDEO = f"videos/{CAMERA}/chunk-000/file-000.mp4"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return make(tmp_path / "robot")


def brightness(frame: Any) -> float:
    return float(np.asarray(frame, np.float64).mean())


def indices(rows: list[dict[str, Any]]) -> list[int]:
    return [row["index"] for row in rows]


# ------------------------------------------------------------ rows


@pytest.mark.parametrize(("camera", "version"), [("video", "v3.0"), ("image", "v3.0"), ("video", "v2.1")])
def test_a_row_holds_values_and_the_frame_of_its_time(tmp_path: Path, camera: str, version: str) -> None:
    rows = read_rows(LeRobotDatasource(make(tmp_path / "robot", camera=camera, version=version)))
    assert indices(rows) == list(range(12))
    assert [row["episode_index"] for row in rows] == [0] * 4 + [1] * 3 + [2] * 5
    assert [row["action"] for row in rows] == [[i, i + 0.5] for i in range(12)]
    assert rows[5]["task"] == TASKS[1]
    assert {row["dataset_index"] for row in rows} == {0}
    for row in rows:
        assert row[CAMERA].shape == (HEIGHT, WIDTH, 3)
        assert row[CAMERA].dtype == np.uint8
        assert brightness(row[CAMERA]) == pytest.approx(gray(row["index"]), abs=4)


def test_the_statistics_are_in_each_row_as_json(root: str) -> None:
    table = read(LeRobotDatasource(root))
    assert json.loads(table.column("stats")[0].as_py()) == STATS
    assert table.schema.field("stats").type == pa.dictionary(pa.int32(), pa.string())


def test_a_dataset_may_lack_cameras_and_statistics(tmp_path: Path) -> None:
    root = make(tmp_path / "robot", camera=None)
    (tmp_path / "robot/meta/stats.json").unlink()
    source = LeRobotDatasource(root)
    assert indices(read_rows(source)) == list(range(12))
    assert read(source).column("stats")[0].as_py() == "{}"


@pytest.mark.parametrize("windows", [None, {"action": [0.0, 0.1], CAMERA: [-0.1, 0.0], "timestamp": [0.0]}])
@pytest.mark.parametrize("camera", ["video", "image"])
def test_the_schema_is_that_of_the_rows(tmp_path: Path, camera: str, windows: Any) -> None:
    source = LeRobotDatasource(make(tmp_path / "robot", camera=camera), delta_timestamps=windows)
    table = read(source)
    assert source.schema() == table.schema
    assert source.num_rows() == table.num_rows == 12
    estimate = source.estimate_inmemory_data_size()
    assert estimate is not None
    assert table.nbytes / 2 < estimate < 2 * table.nbytes


def test_only_the_files_of_the_columns_are_read(tmp_path: Path, root: str) -> None:
    shutil.rmtree(tmp_path / "robot/videos")
    dataset = skate.data.read_lerobot(root).select_columns(["task", "action"])
    assert dataset.take(1) == [{"task": TASKS[0], "action": [0.0, 0.5]}]


def test_images_may_be_files_beside_the_rows(tmp_path: Path) -> None:
    root = make(tmp_path / "robot", camera="image")
    path = tmp_path / "robot" / DATA
    (tmp_path / "robot/images").mkdir()
    cells = []
    for index in range(12):
        (tmp_path / f"robot/images/{index}.png").write_bytes(lerobot_datasets.png(index))
        cells.append({"bytes": None, "path": f"images/{index}.png"})
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.schema.get_field_index(CAMERA), CAMERA, pa.array(cells)), path)
    assert [brightness(row[CAMERA]) for row in read_rows(LeRobotDatasource(root))] == [
        gray(i) for i in range(12)
    ]


def test_the_array_types_of_the_library_datasets_are_read_as_lists(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    root = make(tmp_path / "robot", camera=None)
    path = tmp_path / "robot" / DATA
    rows = pq.read_table(path)
    features = datasets.Features(
        {name: datasets.Value(str(rows.schema.field(name).type)) for name in rows.column_names[2:]}
        | {"action": datasets.Sequence(datasets.Value("float32"), length=2)}
        | {"observation.pose": datasets.Array2D((2, 2), "float32")}
    )
    written = datasets.Dataset.from_dict(rows.to_pydict(), features=features).data.table
    assert isinstance(written.schema.field("observation.pose").type, pa.ExtensionType)
    pq.write_table(written, path)
    source = LeRobotDatasource(root, delta_timestamps={"observation.pose": [0.0, 0.1]})
    assert read(source).schema == source.schema()
    assert read_rows(LeRobotDatasource(root))[3]["observation.pose"] == [[3.0, 3.0], [3.0, 3.0]]
    assert read_rows(source)[0]["observation.pose"][:, 0, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("options", [{"g": "12"}, {"g": "12", "bf": "2"}, {"g": "2"}])
@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_frames_are_found_wherever_the_key_frames_are(
    tmp_path: Path, codec: str, options: dict[str, str]
) -> None:
    write_video(tmp_path / "a.mp4", range(40), codec, options)
    video = VideoFrames(pafs.LocalFileSystem(), str(tmp_path / "a.mp4"), 0.5 / FPS)
    try:
        for wanted in ([39], [0, 0, 1], [5, 17, 18, 38], list(range(40))):
            found = video.read([index / FPS for index in wanted])
            assert [brightness(frame) for frame in found] == pytest.approx(
                [gray(index) for index in wanted], abs=4
            )
        with pytest.raises(FileReadError, match=r"no frame at 4\.000 s: the nearest is at 3\.900 s"):
            video.read([3.8, 4.0])
        assert len(video.read([2.0])) == 1
    finally:
        video.close()


# ------------------------------------------------------------ episodes and tasks


def test_episodes_are_chosen_without_opening_files_of_others(tmp_path: Path, root: str) -> None:
    (tmp_path / "robot" / VIDEO).unlink()
    source = LeRobotDatasource(root, episodes=[2])
    assert source.num_rows() == 5
    rows = read_rows(source)
    assert indices(rows) == [7, 8, 9, 10, 11]
    assert [brightness(row[CAMERA]) for row in rows] == pytest.approx([gray(i) for i in range(7, 12)], abs=4)


def test_episodes_that_share_a_video_need_not_follow_each_other(tmp_path: Path) -> None:
    root = make(tmp_path / "robot", episodes_per_video=3)
    rows = read_rows(LeRobotDatasource(root, episodes=[2, 0]), 1)
    assert indices(rows) == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert [brightness(row[CAMERA]) for row in rows] == pytest.approx([gray(i) for i in indices(rows)], abs=4)


@pytest.mark.parametrize(
    ("episodes", "reason"),
    [([7, 1, 9], r"episodes \[7, 9\] are in none of the datasets, which have 3"), ([], "episodes is empty")],
)
def test_episodes_must_exist(root: str, episodes: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        skate.data.read_lerobot(root, episodes=episodes)


@pytest.mark.parametrize(
    ("granularity", "parts", "expected"),
    [
        ("file", None, [7, 5]),
        ("episode", None, [4, 3, 5]),
        ("episode", 2, [7, 5]),
        ("file", 1, [12]),
        ("file", 4, [3, 4, 2, 3]),
        ("file", 40, [1] * 12),
    ],
)
def test_a_task_reads_a_file_or_an_episode(
    root: str, granularity: Any, parts: int | None, expected: list[int]
) -> None:
    source = LeRobotDatasource(root, read_granularity=granularity)
    tasks = source.get_read_tasks(parts or source.default_num_blocks())
    assert [task.metadata.num_rows for task in tasks] == expected
    assert indices([row for task in tasks for block in task() for row in block.to_pylist()]) == list(
        range(12)
    )


def test_a_task_names_its_files(root: str) -> None:
    [first, second] = LeRobotDatasource(root).get_read_tasks(2)
    assert first.metadata.input_files == [f"{root}/{DATA}", f"{root}/{VIDEO}"]
    assert second.metadata.input_files == [f"{root}/{DATA}", f"{root}/{VIDEO}".replace("000.mp4", "001.mp4")]


def test_a_block_has_at_most_the_target_size(root: str) -> None:
    context = skate.data.DataContext.get_current().copy()
    context.target_max_block_size = 3 * HEIGHT * WIDTH * 3 + 1000
    [task] = LeRobotDatasource(root).get_read_tasks(1, data_context=context)
    found = list(task())
    assert [block.num_rows for block in found] == [3, 3, 1, 3, 2]
    rows = [row for block in found for row in block.to_pylist()]
    assert [brightness(row[CAMERA]) for row in rows] == pytest.approx([gray(i) for i in range(12)], abs=4)


def test_a_limit_bounds_what_is_decoded(root: str) -> None:
    [task] = LeRobotDatasource(root).get_read_tasks(1, per_task_row_limit=9)
    assert [block.num_rows for block in task()] == [7, 2]
    assert len(skate.data.read_lerobot(root).take(3)) == 3


def test_datasets_are_read_as_one(tmp_path: Path) -> None:
    roots = [make(tmp_path / "a"), make(tmp_path / "b", [2])]
    rows = skate.data.read_lerobot(roots).take_all()
    assert [row["dataset_index"] for row in rows] == [0] * 12 + [1] * 2
    assert indices(rows) == [*range(12), 0, 1]
    assert len(skate.data.read_lerobot(roots, episodes=[0]).take_all()) == 6
    assert len(skate.data.read_lerobot(roots, episodes=[1]).take_all()) == 3


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"camera": None}, r"different videos: .*a has \['observation.images.front'\], .*b has \[\]"),
        ({"width": 1}, r"different features: "),
    ],
)
def test_datasets_must_have_the_same_features(tmp_path: Path, other: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        skate.data.read_lerobot([make(tmp_path / "a"), make(tmp_path / "b", **other)])


# ------------------------------------------------------------ windows


def test_windows_hold_the_neighbours_within_the_episode(root: str) -> None:
    windows = {"action": [-0.1, 0.0, 0.2], "observation.pose": [0.1], "timestamp": [0.0, 0.1]}
    rows = read_rows(LeRobotDatasource(root, delta_timestamps=windows))
    assert rows[0]["action"][:, 0].tolist() == [0, 0, 2]
    assert rows[0]["action_is_pad"].tolist() == [True, False, False]
    assert rows[5]["action"].tolist() == [[4, 4.5], [5, 5.5], [6, 6.5]]
    assert rows[5]["action_is_pad"].tolist() == [False, False, True]
    assert rows[3]["observation.pose"].tolist() == [[[3, 3], [3, 3]]]  # the next row is of another episode
    assert rows[1]["timestamp"].tolist() == pytest.approx([0.1, 0.2])
    assert rows[1]["action"].dtype == np.float32
    assert "frame_index_is_pad" not in rows[0]


@pytest.mark.parametrize("camera", ["video", "image"])
def test_windows_hold_frames(tmp_path: Path, camera: str) -> None:
    root = make(tmp_path / "robot", camera=camera)
    rows = read_rows(LeRobotDatasource(root, delta_timestamps={CAMERA: [-0.2, 0.0]}))
    assert rows[0][CAMERA].shape == (2, HEIGHT, WIDTH, 3)
    shown = [[brightness(frame) for frame in row[CAMERA]] for row in rows]
    for row, expected in ((3, (1, 3)), (4, (4, 4)), (5, (4, 5)), (11, (9, 11))):
        assert shown[row] == pytest.approx([gray(index) for index in expected], abs=4)
    assert [row[f"{CAMERA}_is_pad"].tolist() for row in rows[:3]] == [[True, False]] * 2 + [[False, False]]


def test_padding_is_read_without_the_frames(tmp_path: Path, root: str) -> None:
    shutil.rmtree(tmp_path / "robot/videos")
    dataset = skate.data.read_lerobot(root, delta_timestamps={CAMERA: [-0.1]})
    rows = dataset.select_columns([f"{CAMERA}_is_pad"]).take_all()
    assert [bool(row[f"{CAMERA}_is_pad"][0]) for row in rows] == [i in (0, 4, 7) for i in range(12)]


def test_a_task_reads_whole_episodes_for_windows(root: str) -> None:
    windows = {"action": [0.0]}
    assert len(LeRobotDatasource(root, delta_timestamps=windows).get_read_tasks(10)) == 2
    with pytest.raises(ValueError, match="override_num_blocks is 3, but there are 2 row ranges"):
        skate.data.read_lerobot(root, delta_timestamps=windows, override_num_blocks=3)
    dataset = skate.data.read_lerobot(
        root, delta_timestamps=windows, read_granularity="episode", override_num_blocks=3
    )
    assert dataset.count() == 12


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        (
            {"action": [0.0, 0.13]},
            r"the offsets \[0.13\] of 'action' .* multiples of 1/10 s within a tolerance",
        ),
        ({"force": [0.0]}, "'force', which is none of the features"),
        ({"action": []}, "no offsets for 'action'"),
    ],
)
def test_windows_are_checked(root: str, windows: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        skate.data.read_lerobot(root, delta_timestamps=windows)
    if windows == {"action": [0.0, 0.13]}:
        near = skate.data.read_lerobot(root, delta_timestamps=windows, delta_tolerance_s=0.04)
        assert near.take(1)[0]["action"][:, 0].tolist() == [0, 1]


def test_lists_of_different_lengths_have_no_windows(tmp_path: Path, root: str) -> None:
    path = tmp_path / "robot" / DATA
    rows = pq.read_table(path)
    ragged = pa.array([[1.0] * (i % 2 + 1) for i in range(12)], pa.list_(pa.float32()))
    pq.write_table(rows.set_column(0, "action", ragged), path)
    with pytest.raises(FileReadError, match=r"file-000\.parquet.*'action'.*lists differ in length: \[1, 2\]"):
        read_rows(LeRobotDatasource(root, delta_timestamps={"action": [0.0]}))


# ------------------------------------------------------------ filesystems


def test_a_dataset_may_be_on_another_filesystem(root: str) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(root, "/lerobot/robot", recursive=True)
    parent = pafs.SubTreeFileSystem(str(Path(root).parent), pafs.LocalFileSystem())
    try:
        for found in (
            LeRobotDatasource("memory://lerobot/robot"),
            LeRobotDatasource("lerobot/robot", filesystem=memory),
            LeRobotDatasource("memory://lerobot/robot", storage_options={"asynchronous": False}),
            LeRobotDatasource("robot", filesystem=parent),
        ):
            rows = read_rows(found)
            assert indices(rows) == list(range(12))
            assert brightness(rows[9][CAMERA]) == pytest.approx(gray(9), abs=4)
    finally:
        memory.rm("/lerobot", recursive=True)


def test_local_paths_are_read_in_the_driver(root: str) -> None:
    assert not LeRobotDatasource(f"local://{root}").supports_distributed_reads
    assert LeRobotDatasource(root).supports_distributed_reads
    assert skate.data.read_lerobot(f"local://{root}").count() == 12


# ------------------------------------------------------------ errors


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shorten_video(path: Path) -> None:
    write_video(path, range(5))


def drop_rows(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 9), path)


def repeat_a_row(path: Path) -> None:
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows.slice(0, 1), rows]), path)


def change_info(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        (DATA, cut, ""),
        (DATA, drop_rows, "it holds 2 of the 5 rows of episode 2"),
        (DATA, repeat_a_row, "it holds 5 of the 4 rows of episode 0"),
        (VIDEO, cut, ""),
        (VIDEO, shorten_video, r"it has no frame at 0\.500 s: the nearest is at 0\.400 s\. The file is cut"),
        ("meta/episodes/chunk-000/file-000.parquet", cut, ""),
        ("meta/tasks.parquet", cut, ""),
        ("meta/info.json", cut, ""),
        ("meta/info.json", lambda path: path.write_text("[]"), "it holds a list, not an object"),
        (
            "meta/info.json",
            change_info(codebase_version="v1.6"),
            "the version of the dataset is v1.6. Convert it",
        ),
        ("meta/info.json", change_info(fps=0), "fps is 0"),
        ("meta/info.json", change_info(data_path=None), "data_path is None"),
        ("meta/info.json", change_info(data_path="{episode}.parquet"), "has an unknown field: 'episode'"),
        ("meta/info.json", change_info(data_path="{chunk_index:9999999999}"), "is not a template of paths"),
        ("meta/info.json", change_info(data_path="{chunk_index.real}"), "is not a template of paths"),
        ("meta/info.json", change_info(data_path="../../a.parquet"), r"'\.\./\.\./a\.parquet' leads out"),
        ("meta/info.json", change_info(video_path="/a.mp4"), r"'/a\.mp4' leads out of the dataset"),
        ("meta/info.json", change_info(video_path=None), "video_path is None, but it has videos"),
    ],
)
def test_a_damaged_file_is_named(root: str, file: str, damage: Callable[[Path], None], reason: str) -> None:
    damage(Path(root, file))
    with pytest.raises(FileReadError, match=f"{file}: .*{reason}"):
        read_rows(LeRobotDatasource(root))


@pytest.mark.parametrize("file", [DATA, VIDEO, "meta/tasks.parquet"])
def test_a_missing_file_is_named(root: str, file: str) -> None:
    Path(root, file).unlink()
    with pytest.raises(FileNotFoundError, match=file):
        read_rows(LeRobotDatasource(root))


def test_a_folder_without_a_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=rf"{tmp_path} holds no LeRobot dataset: meta/info\.json is missing"
    ):
        skate.data.read_lerobot(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("episodes", '{"episode_index": 0}\n', r"line 1 lacks \['length'\]"),
        ("tasks", '{"task_index": 0, "task": "a"}\n{"task_', "Unterminated"),
    ],
)
def test_damaged_lines_of_version_2_are_named(tmp_path: Path, file: str, line: str, reason: str) -> None:
    root = make(tmp_path / "robot", version="v2.1", camera=None)
    (tmp_path / f"robot/meta/{file}.jsonl").write_text(line)
    with pytest.raises(FileReadError, match=rf"meta/{file}\.jsonl: {reason}"):
        LeRobotDatasource(root)


def test_an_unknown_task_is_named(tmp_path: Path, root: str) -> None:
    pq.write_table(pa.table({"task_index": [0], "task": ["a"]}), tmp_path / "robot/meta/tasks.parquet")
    with pytest.raises(FileReadError, match=r"rows of the tasks \[1\], which the metadata of tasks lacks"):
        read_rows(LeRobotDatasource(root))


def make_with_images(folder: Path, cell: dict[str, Any]) -> str:
    root = make(folder, camera="image")
    rows = pq.read_table(folder / DATA)
    cells = pa.array([cell] * 12, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    pq.write_table(rows.set_column(rows.schema.get_field_index(CAMERA), CAMERA, cells), folder / DATA)
    return root


@pytest.mark.parametrize("cell", [{"bytes": b"no image", "path": None}, {"bytes": None, "path": None}])
def test_a_damaged_image_is_named(tmp_path: Path, cell: dict[str, Any]) -> None:
    root = make_with_images(tmp_path / "robot", cell)
    with pytest.raises(FileReadError, match=rf"image file .*{DATA}: .*'{CAMERA}'"):
        read_rows(LeRobotDatasource(root))


def test_images_outside_the_dataset_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "private.png").write_bytes(lerobot_datasets.png(0))
    for path in ("../private.png", f"{tmp_path}/robot/../private.png", f"{tmp_path}/private.png"):
        root = make_with_images(tmp_path / "robot", {"bytes": None, "path": path})
        with pytest.raises(
            FileReadError, match=rf"{DATA}: the path .*private\.png' leads out of the dataset"
        ):
            read_rows(LeRobotDatasource(root))


@pytest.mark.parametrize("camera", ["video", "image"])
def test_a_missing_library_is_named(tmp_path: Path, camera: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    from skate.air import _optional

    root = make(tmp_path / "robot", camera=camera)
    module, package = {"video": ("av", "av"), "image": ("PIL", "pillow")}[camera]
    find = util.find_spec
    monkeypatch.setattr(
        _optional.importlib.util,
        "find_spec",
        lambda name, *more: None if name == module else find(name, *more),
    )
    monkeypatch.delitem(_optional.sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"read_lerobot needs {package}: pip install {package}"):
        skate.data.read_lerobot(root)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"frame_tolerance_s": 0}, "`frame_tolerance_s` must be a positive number"),
        ({"frame_tolerance_s": -1.0}, "`frame_tolerance_s` must be a positive number"),
        ({"read_granularity": "row"}, "`read_granularity` must be"),
        ({"delta_tolerance_s": "a"}, "`delta_tolerance_s` must be"),
        ({"override_num_blocks": 0}, "override_num_blocks"),
    ],
)
def test_arguments_are_checked(root: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        skate.data.read_lerobot(root, **arguments)


def test_a_larger_tolerance_accepts_times_between_frames(tmp_path: Path, root: str) -> None:
    path = tmp_path / "robot" / DATA
    rows = pq.read_table(path)
    times = pa.array(np.asarray(rows.column("timestamp")) + np.float32(0.3 / FPS))
    pq.write_table(rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", times), path)
    with pytest.raises(FileReadError, match="has no frame at"):
        read_rows(LeRobotDatasource(root, frame_tolerance_s=0.01))
    found = [brightness(row[CAMERA]) for row in read_rows(LeRobotDatasource(root))]
    assert found == pytest.approx([gray(i) for i in range(12)], abs=4)


def test_batches_hold_frames_as_arrays(root: str) -> None:
    [batch] = list(skate.data.read_lerobot(root).iter_batches(batch_size=None))[:1]
    assert batch[CAMERA].shape[1:] == (HEIGHT, WIDTH, 3)
    assert len(blocks(LeRobotDatasource(root))) == 2
