"""Datasets resume at the checkpoint: each row is trained on once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import train
from skate.train import CheckpointUploadMode, DataConfig, Result, RunConfig, TrainingFailedError
from skate.train.collective import barrier
from tests.train.checkpoints import read, write_checkpoint

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]
Runs = Callable[..., RunConfig]

ROWS = 240  # which 1, 2 and 3 workers can share evenly, also when some batches have been used


def use_rows(config: dict[str, Any]) -> None:
    """Pass over the rows twice, write down what was used, and stop at some step as if a worker had failed."""
    rank = train.get_context().get_world_rank()
    shard = train.get_dataset_shard("train")
    checkpoint = train.get_checkpoint()
    first = 0 if checkpoint is None else int(read(checkpoint, "epoch"))
    since = "start" if checkpoint is None else Path(checkpoint.path).name
    notes = Path(config["notes"], f"{since}-{rank}.jsonl")
    steps = 0
    for epoch in range(first, 2):
        for batch in shard.iter_batches(batch_size=6, **config.get("options", {})):
            with notes.open("a") as file:
                ids = batch["id"].tolist()
                file.write(json.dumps({"epoch": epoch, "ids": ids, "reported": steps}) + "\n")
            steps += 1
            mine = config.get("all_report", True) or rank == 0
            if mine and steps % 4 == 0:
                part = write_checkpoint(epoch=str(epoch)) if rank == 0 else None
                train.report({"step": steps}, part, checkpoint_upload_mode=CheckpointUploadMode.SYNC)
            barrier()
            if steps == config.get("fails_at"):
                raise ValueError("bad luck")


def used(notes: Path, *checkpoints: str) -> dict[int, list[int]]:
    """Return the rows of each epoch that count: those that were used before the checkpoint that came after."""
    found: dict[int, list[int]] = {}
    for since, until in zip(("start", *checkpoints), (*checkpoints, None), strict=True):
        for path in sorted(notes.glob(f"{since}-*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            # Reports are numbered through: the checkpoint of the n-th report of an attempt has 4 (n + 1) steps.
            if until is not None:
                before = 0 if since == "start" else int(since.rpartition("_")[2]) + 1
                lines = lines[: 4 * (int(until.rpartition("_")[2]) + 1 - before)]
            for line in lines:
                found.setdefault(line["epoch"], []).extend(line["ids"])
    return found


def rows(shuffled: bool) -> Any:
    ds = skate.data.range(ROWS, override_num_blocks=4)
    return ds.random_shuffle() if shuffled else ds


@pytest.mark.parametrize(
    ("workers", "later"), [(2, 2), (2, 1), (2, 3), (1, 2)], ids=lambda number: str(number)
)
@pytest.mark.parametrize("how", ["in order", "shuffled", "shuffled in batches"])
def test_a_run_that_goes_on_uses_each_row_once(
    fit: Fit, run_config: Runs, tmp_path: Path, workers: int, later: int, how: str
) -> None:
    options = {"local_shuffle_buffer_size": 13} if how == "shuffled in batches" else {}
    config = {"notes": str(tmp_path), "options": options}
    datasets = {"train": rows(how == "shuffled")}
    with pytest.raises(TrainingFailedError):
        fit(use_rows, workers, config={**config, "fails_at": 10}, run=run_config(), datasets=datasets)
    middle = Result.from_path(tmp_path / "runs" / "run").checkpoint
    assert middle is not None
    assert Path(middle.path).name == "checkpoint_000001"
    fit(use_rows, later, config=config, run=run_config(), datasets=datasets)
    found = used(tmp_path, "checkpoint_000001")
    assert {epoch: sorted(ids) for epoch, ids in found.items()} == {0: [*range(ROWS)], 1: [*range(ROWS)]}


def test_it_goes_on_in_the_second_pass_too_and_twice_in_one(
    fit: Fit, run_config: Runs, tmp_path: Path
) -> None:
    config = {"notes": str(tmp_path)}
    datasets = {"train": rows(shuffled=True)}
    for workers, fails_at in ((2, 25), (3, 5)):  # a pass of two workers has 20 steps
        with pytest.raises(TrainingFailedError):
            fit(
                use_rows,
                workers,
                config={**config, "fails_at": fails_at},
                run=run_config(),
                datasets=datasets,
            )
    fit(use_rows, 1, config=config, run=run_config(), datasets=datasets)
    found = used(tmp_path, "checkpoint_000005", "checkpoint_000006")
    assert {epoch: sorted(ids) for epoch, ids in found.items()} == {0: [*range(ROWS)], 1: [*range(ROWS)]}
    assert found[0] != found[1]


def test_a_worker_that_does_not_report_stands_where_the_others_do(
    fit: Fit, run_config: Runs, tmp_path: Path
) -> None:
    config = {"notes": str(tmp_path), "all_report": False}
    datasets = {"train": rows(shuffled=True)}
    with pytest.raises(TrainingFailedError):
        fit(use_rows, 2, config={**config, "fails_at": 17}, run=run_config(), datasets=datasets)
    middle = Result.from_path(tmp_path / "runs" / "run").checkpoint
    assert middle is not None
    fit(use_rows, 2, config=config, run=run_config(), datasets=datasets)
    found = used(tmp_path, Path(middle.path).name)
    assert {epoch: sorted(ids) for epoch, ids in found.items()} == {0: [*range(ROWS)], 1: [*range(ROWS)]}


def test_a_dataset_of_which_everybody_gets_all_rows_goes_on_too(
    fit: Fit, run_config: Runs, tmp_path: Path
) -> None:
    config = {"notes": str(tmp_path)}
    options = {"datasets": {"train": rows(shuffled=True)}, "dataset_config": DataConfig(datasets_to_split=[])}
    with pytest.raises(TrainingFailedError):
        fit(use_rows, 2, config={**config, "fails_at": 10}, run=run_config(), **options)
    fit(use_rows, 2, config=config, run=run_config(), **options)
    found = used(tmp_path, "checkpoint_000001")
    twice = sorted([*range(ROWS), *range(ROWS)])
    assert {epoch: sorted(ids) for epoch, ids in found.items()} == {0: twice, 1: twice}


def test_a_worker_that_dies_makes_nobody_repeat_or_skip(fit: Fit, run_config: Runs, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        fails = train.get_checkpoint() is None
        use_rows({**config, "fails_at": 9} if fails else config)

    run = run_config(failures=1)
    fit(function, 2, config={"notes": str(tmp_path)}, run=run, datasets={"train": rows(shuffled=True)})
    found = used(tmp_path, "checkpoint_000001")
    assert {epoch: sorted(ids) for epoch, ids in found.items()} == {0: [*range(ROWS)], 1: [*range(ROWS)]}


def test_a_function_that_finds_its_place_itself_can_have_every_pass_whole(
    fit: Fit, run_config: Runs, tmp_path: Path
) -> None:
    config = {"notes": str(tmp_path)}
    options = {"datasets": {"train": rows(shuffled=False)}, "dataset_config": DataConfig(resumes=False)}
    with pytest.raises(TrainingFailedError):
        fit(use_rows, 2, config={**config, "fails_at": 10}, run=run_config(), **options)
    fit(use_rows, 2, config=config, run=run_config(), **options)
    again = [json.loads(line) for line in (tmp_path / "checkpoint_000001-0.jsonl").read_text().splitlines()]
    assert again[0] == {"epoch": 0, "ids": [0, 1, 2, 3, 4, 5], "reported": 0}
    assert len(again) == 40


def test_each_pass_has_an_order_of_its_own(fit: Fit) -> None:
    def function() -> list[list[int]]:
        shard = train.get_dataset_shard("train")
        return [[row["id"] for row in shard.iter_rows()] for _ in range(3)]

    result = fit(function, 1, datasets={"train": rows(shuffled=True)})
    first, second, third = result.return_value
    assert first != second != third != first
    assert sorted(first) == sorted(second) == sorted(third) == [*range(ROWS)]
