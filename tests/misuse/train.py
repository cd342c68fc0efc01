"""Mistakes in calls of Train: settings of runs, trainers, reports, checkpoints and results."""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import skate
from skate import train
from skate.train import (
    Checkpoint,
    CheckpointConfig,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    Result,
    RunConfig,
    ScalingConfig,
    SyncConfig,
    ValidationConfig,
    ValidationTaskConfig,
    collective,
)
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.train.lightgbm import LightGBMTrainer
from skate.train.lightgbm import RayTrainReportCallback as LightGBMCallback
from skate.train.torch import (
    TorchCheckpoint,
    TorchConfig,
    TorchTrainer,
    accelerate,
    backward,
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from skate.train.v2.jax import JaxConfig, JaxTrainer
from skate.train.xgboost import RayTrainReportCallback, XGBoostConfig, XGBoostTrainer
from tests.misuse.support import Mistake, mistakes

# The folder of the runs and checkpoints of this module, which exists until the process ends.
_FOLDER = tempfile.TemporaryDirectory(prefix="skate_misuse_")
FOLDER = Path(_FOLDER.name)


def learn() -> None:
    train.report({"loss": 1.0}, checkpoint=checkpoint())


def learn_with_config(config: dict[str, Any]) -> None:
    train.report({"loss": config["loss"]})


def learn_with_two(config: dict[str, Any], seed: int) -> None: ...


def learn_by_name(*, seed: int) -> None: ...


async def learn_async() -> None: ...


class Locked:
    """A training function that cannot be serialized."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self) -> None: ...

    def __repr__(self) -> str:
        return "Locked()"


def validate(checkpoint: Checkpoint) -> dict[str, Any]:
    return {}


def checkpoint() -> Checkpoint:
    folder = FOLDER / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "state").write_text("state")
    return Checkpoint.from_directory(folder)


def fit(function: Callable[..., Any] = learn, name: str = "run", **options: Any) -> Result:
    """Train in this process."""
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(name=name, storage_path=str(FOLDER / "runs")),
        **options,
    ).fit()


@functools.cache
def result() -> Result:
    return fit()


def inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another one in a training function, and raises the error it gives."""

    def call(**arguments: Any) -> Any:
        outcomes: list[Any] = []

        def learn() -> None:
            try:
                outcomes.append(function(**arguments))
            except Exception as error:
                outcomes.append(error)

        fit(learn, "inside")
        (outcome,) = outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def in_a_session() -> Iterator[Mistake]:
    """Yield mistakes that are made in a session."""
    yield from configs()
    yield from trainers()
    yield from restoring()
    yield from reports()
    yield from checkpoints()
    yield from with_torch()


def configs() -> Iterator[Mistake]:
    """Yield settings that are wrong, or contradict each other."""
    yield from mistakes(
        "ScalingConfig",
        ScalingConfig,
        wrong={
            "num_workers": ["two", -1, 1.5, None, (3, 2), (1,), ("1", "2"), [1, 2, 3], True],
            "use_gpu": ["no"],
            "use_tpu": ["no"],
            "resources_per_worker": [{"GPU": 1}, {"CPU": -1}, {"CPU": "one"}, {3: 1}, {"TPU": 4}],
            "placement_strategy": ["TIGHT"],
            "accelerator_type": ["A100"],
            "label_selector": ["zone", {"zone": 3}, [{}, {}], [3]],
            "topology": ["2by4"],
            "elastic_resize_monitor_interval_s": [float("nan")],
        },
        valid={"trainer_resources": [], "topology": ["2by4"]},
        options="num_worker",
    )
    yield Mistake(
        "ScalingConfig",
        "use_tpu and a topology that is none",
        lambda: ScalingConfig(num_workers=2, use_tpu=True, topology="2by4", accelerator_type="TPU-V4"),
        ("topology",),
    )
    yield Mistake(
        "ScalingConfig",
        "use_gpu and use_tpu",
        lambda: ScalingConfig(use_gpu=True, use_tpu=True),
        ("use_gpu",),
    )
    yield from mistakes(
        "FailureConfig",
        FailureConfig,
        wrong={"hang_timeout_s": [0], "max_failures": [None]},
        valid={"fail_fast": []},
        options="max_failure",
    )
    yield from mistakes(
        "CheckpointConfig",
        CheckpointConfig,
        wrong={
            "num_to_keep": [0],
            "checkpoint_score_order": [3],
            "checkpoint_frequency": ["often"],
            "checkpoint_at_end": ["always"],
        },
        valid={"checkpoint_at_end": [3]},
        options="keep",
    )
    yield from mistakes(
        "SyncConfig", SyncConfig, valid={"sync_period": [1.5], "sync_timeout": [1.5]}, options="period"
    )
    yield from mistakes("LoggingConfig", LoggingConfig, wrong={"log_level": ["LOUD", None]})
    yield from mistakes(
        "RunConfig",
        RunConfig,
        correct=lambda: {"storage_path": str(FOLDER)},
        wrong={
            "name": ["../up", "/absolute"],
            "storage_path": [["folder"]],
            "storage_filesystem": [3, "s3"],
            "failure_config": [3, {"max_failures": 3}],
            "checkpoint_config": [3, {"num_to_keep": 1}],
            "callbacks": [[3], [print]],
            "worker_runtime_env": [{"pips": []}, {"env_vars": {"A": 1}}],
            "logging_config": ["INFO"],
        },
        options="storage",
    )
    yield from mistakes(
        "DataConfig",
        DataConfig,
        wrong={
            "datasets_to_split": ["train", 3, None, [3], ("train",)],
            "execution_options": [3, "fast", {"train": 3}, {3: None}],
            "enable_shard_locality": ["no"],
        },
        options="split",
    )
    yield from mistakes("ValidationTaskConfig", ValidationTaskConfig, wrong={"timeout_s": [0]})
    yield from mistakes(
        "ValidationConfig",
        ValidationConfig,
        correct=lambda: {"fn": validate},
        wrong={
            "fn": [3, None],
            "task_config": [3, {"timeout_s": 3}],
            "ray_remote_kwargs": [{"num_cpu": 1}],
        },
    )
    yield from mistakes(
        "TorchConfig",
        TorchConfig,
        wrong={"init_method": ["file"], "timeout_s": [0]},
        valid={"timeout_s": [1.5]},
        options="timeout",
    )
    yield from mistakes("XGBoostConfig", XGBoostConfig, wrong={"xgboost_communicator": ["mpi"]})
    yield Mistake("JaxConfig", "use_tpu and use_gpu", lambda: JaxConfig(True, True), ("use_tpu",))


WRONG_FOR_TRAINERS: dict[str, list[Any]] = {
    "train_loop_per_worker": [3, "learn", None, learn_with_two, learn_by_name, learn_async],
    "train_loop_config": [3, ["lr"]],
    "scaling_config": [3, {"num_workers": 2}, RunConfig],
    "run_config": ["run", {"name": "run"}],
    "datasets": [3, [3], {"train": 3}, {3: 3}, {"train": "rows.csv"}],
    "dataset_config": [3, "all", {"train": "split"}],
    "metadata": [3, ["note"], {"note": threading.Lock()}],
    "resume_from_checkpoint": [3, "/tmp/checkpoint", {"step": 1}],
    "validation_config": [3, validate],
}


def named(values: list[Any]) -> list[tuple[str, Any]]:
    """Return values with the names under which they are in the table."""
    shown = {
        id(learn_with_two): "a function of two arguments",
        id(learn_by_name): "a function of a keyword",
        id(learn_async): "a coroutine function",
        id(validate): "a function",
        id(RunConfig): "the class RunConfig",
    }
    return [
        (shown.get(id(value), "a lock in it" if "lock" in repr(value) else repr(value)), value)
        for value in values
    ]


def trainers() -> Iterator[Mistake]:
    """Yield wrong arguments of trainers, of which most are checked in one place for all trainers."""
    for parameter, values in WRONG_FOR_TRAINERS.items():
        for shown, value in named(values):
            arguments = {"train_loop_per_worker": learn, parameter: value}
            yield Mistake(
                "DataParallelTrainer",
                f"{parameter}={shown}",
                functools.partial(DataParallelTrainer, **arguments),
                (parameter,),
            )
    for trainer, config in (
        (DataParallelTrainer, "backend_config"),
        (TorchTrainer, "torch_config"),
        (XGBoostTrainer, "xgboost_config"),
        (LightGBMTrainer, "lightgbm_config"),
        (JaxTrainer, "jax_config"),
    ):
        options: dict[str, Any] = {"train_loop_per_worker": learn}
        yield from mistakes(
            trainer.__name__,
            {config: "dict[str, Any] | None"},
            functools.partial(lambda cls: cls, trainer),
            functools.partial(dict, options),
            wrong={config: ["gloo", {"backend": "gloo"}]},
        )
        yield Mistake(
            trainer.__name__,
            "scaling_config='two workers'",
            functools.partial(trainer, learn, scaling_config="two workers"),
            ("scaling_config",),
        )
    yield Mistake("TorchTrainer", "scaling=1", lambda: TorchTrainer(learn, scaling=1), ("scaling",))  # type: ignore[call-arg]
    yield Mistake(
        "TorchTrainer",
        "a backend that torch does not have",
        lambda: TorchTrainer(learn, torch_config=TorchConfig(backend="glo")),
        ("backend",),
    )
    for boosting in (XGBoostTrainer, LightGBMTrainer):
        name = boosting.__name__
        yield Mistake(name, "no function and no dataset", boosting, ("train",))
        yield from mistakes(
            name,
            {
                "label_column": "str | None",
                "params": "dict[str, Any] | None",
                "num_boost_round": "int | None",
            },
            functools.partial(lambda cls: cls, boosting),
            lambda: {"datasets": {"train": skate.data.range(3)}, "label_column": "id"},
            wrong={"num_boost_round": [0]},
        )
        yield Mistake(
            name,
            "a function and a label",
            functools.partial(boosting, learn, label_column="y"),
            ("label_column",),
        )
    yield Mistake(
        "DataParallelTrainer",
        "a misspelt dataset in datasets_to_split",
        lambda: DataParallelTrainer(
            learn,
            datasets={"train": skate.data.range(3)},
            dataset_config=DataConfig(datasets_to_split=["trian"]),
        ),
        ("trian",),
    )
    yield Mistake(
        "DataParallelTrainer.fit",
        "a dataset function that returns a list",
        lambda: fit(datasets={"train": lambda: [1, 2, 3]}),
        ("train",),
    )
    yield Mistake(
        "DataParallelTrainer.fit",
        "checkpoint_frequency=3",
        lambda: DataParallelTrainer(
            learn, run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=3))
        ).fit(),
        ("checkpoint_frequency",),
    )
    yield Mistake(
        "DataParallelTrainer.fit",
        "a function that uses a lock",
        lambda: DataParallelTrainer(
            Locked(), run_config=RunConfig(name="lock", storage_path=str(FOLDER))
        ).fit(),
        ("lock",),
    )
    file = FOLDER / "file"
    yield Mistake(
        "DataParallelTrainer.fit",
        "storage_path that is a file",
        lambda: (
            file.touch(),
            DataParallelTrainer(
                learn,
                run_config=RunConfig(name="file", storage_path=str(file)),
                scaling_config=ScalingConfig(num_workers=0),
            ).fit(),
        ),
        ("storage_path",),
    )


def restoring() -> Iterator[Mistake]:
    """Yield runs that are not there, and wrong arguments for one that is."""
    yield from mistakes(
        "DataParallelTrainer.can_restore",
        DataParallelTrainer.can_restore,
        correct=lambda: {"path": result().path},
        wrong={"path": [3, None], "storage_filesystem": [3]},
    )
    yield from mistakes(
        "DataParallelTrainer.restore",
        DataParallelTrainer.restore,
        correct=lambda: {"path": result().path, "train_loop_per_worker": learn},
        wrong={
            "path": [3, None, "/nowhere/run"],
            "train_loop_per_worker": [None],
            "storage_filesystem": [3],
            "run_config": [3],
        },
        options="scaling",
    )
    yield from mistakes(
        "Result.from_path",
        Result.from_path,
        correct=lambda: {"path": result().path},
        wrong={"path": [3, None, "/nowhere/run", "/usr"], "storage_filesystem": [3]},
    )
    yield from mistakes(
        "result.get_best_checkpoint",
        Result.get_best_checkpoint,
        lambda: result().get_best_checkpoint,
        lambda: {"metric": "loss", "mode": "min"},
        wrong={"metric": [None, "lass"], "mode": ["best", None]},
    )


def reports() -> Iterator[Mistake]:
    """Yield functions of a training function that are called outside of one, or with wrong arguments."""
    for name in (
        "get_context",
        "get_checkpoint",
        "get_dataset_shard",
        "get_all_reported_checkpoints",
        "get_preemption_info",
    ):
        yield Mistake(name, "outside of a training function", getattr(train, name), (name,))
    yield Mistake("report", "outside of a training function", lambda: train.report({}), ("report",))
    for name in ("barrier", "broadcast_from_rank_zero"):
        function = getattr(collective, name)
        arguments = (1,) if name.startswith("broadcast") else ()
        yield Mistake(
            f"collective.{name}",
            "outside of a training function",
            functools.partial(function, *arguments),
            (name,),
        )
    yield from mistakes(
        "report",
        train.report,
        lambda: inside(train.report),
        lambda: {"metrics": {"loss": 1.0}},
        wrong={
            "metrics": [None, [("loss", 1.0)], {("loss", 1): 1.0}, {"weights": torch.zeros(2)}],
            "checkpoint": [3, "/tmp", {"weights": 1}, Checkpoint("/nowhere")],
            "checkpoint_dir_name": ["../up"],
            "checkpoint_upload_mode": ["ASYNC", None],
            "delete_local_checkpoint_after_upload": ["no"],
            "validation": ["yes", True, {"timeout_s": 3}],
        },
        options="metric",
    )
    yield Mistake(
        "report",
        "validation=True without a validation_config",
        inside(lambda: train.report({}, checkpoint=checkpoint(), validation=True)),
        ("validation_config",),
    )
    yield Mistake(
        "report",
        "checkpoint_upload_fn that returns None",
        inside(lambda: train.report({}, checkpoint=checkpoint(), checkpoint_upload_fn=lambda *_: None)),  # type: ignore[arg-type, return-value]
        ("checkpoint_upload_fn",),
    )
    yield from mistakes(
        "get_dataset_shard",
        train.get_dataset_shard,
        lambda: inside(train.get_dataset_shard),
        wrong={"dataset_name": ["tran"]},
    )
    yield from mistakes(
        "get_all_reported_checkpoints",
        train.get_all_reported_checkpoints,
        lambda: inside(train.get_all_reported_checkpoints),
        wrong={"consistency_mode": ["VALIDATED", None]},
    )
    for callback in (RayTrainReportCallback, LightGBMCallback):
        library = callback.__module__.split(".")[2]
        yield from mistakes(
            f"{library}.RayTrainReportCallback",
            callback,
            wrong={"metrics": [3, [3]], "results_postprocessing_fn": [3], "filename": ["../model"]},
        )


def checkpoints() -> Iterator[Mistake]:
    """Yield checkpoints that are made of something else, or that are gone."""
    yield from mistakes(
        "Checkpoint",
        Checkpoint,
        correct=lambda: {"path": str(FOLDER)},
        wrong={"path": [3, None, b"bytes"], "filesystem": [3, "s3"]},
    )
    yield from mistakes("Checkpoint.from_directory", Checkpoint.from_directory, wrong={"path": [3, None]})
    yield from mistakes(
        "checkpoint.to_directory",
        Checkpoint.to_directory,
        lambda: checkpoint().to_directory,
        wrong={"path": [3, b"bytes"]},
    )

    def open_gone() -> None:
        with Checkpoint("/nowhere").as_directory():
            pass

    yield Mistake("checkpoint.as_directory", "a folder that is gone", open_gone, ("/nowhere",))
    yield Mistake(
        "checkpoint.to_directory",
        "a folder that is gone",
        lambda: Checkpoint("/nowhere").to_directory(),
        ("/nowhere",),
    )
    yield Mistake("os.fspath", "a checkpoint", lambda: os.fspath(checkpoint()), ("as_directory",))
    for name in ("set_metadata", "update_metadata"):
        yield from mistakes(
            f"checkpoint.{name}",
            getattr(Checkpoint, name),
            functools.partial(lambda name: getattr(checkpoint(), name), name),
            wrong={"metadata": [None, {"set": {1, 2}}]},
        )
    yield Mistake(
        "checkpoint.set_metadata",
        "a folder that is gone",
        lambda: Checkpoint("/nowhere").set_metadata({}),
        ("/nowhere",),
    )


def with_torch() -> Iterator[Mistake]:
    """Yield wrong arguments of the functions for torch."""
    model = torch.nn.Linear(2, 1)
    loader: DataLoader[Any] = DataLoader([1, 2, 3])  # type: ignore[arg-type]
    yield Mistake(
        "prepare_model", "outside of a training function", lambda: prepare_model(model), ("prepare_model",)
    )
    yield Mistake(
        "prepare_data_loader",
        "outside of a training function",
        lambda: prepare_data_loader(loader),
        ("prepare_data_loader",),
    )
    yield Mistake("accelerate", "outside of a training function", accelerate, ("accelerate",))
    yield from mistakes(
        "prepare_model",
        prepare_model,
        lambda: inside(prepare_model),
        lambda: {"model": model},
        wrong={
            "model": [3, None, torch.nn.Linear],
            "move_to_device": ["gpu"],
            "parallel_strategy": ["dpp", 3],
        },
    )
    yield from mistakes(
        "prepare_data_loader",
        prepare_data_loader,
        lambda: inside(prepare_data_loader),
        lambda: {"data_loader": loader},
        wrong={"data_loader": [3, None, [1, 2, 3]]},
    )
    yield from mistakes("prepare_optimizer", prepare_optimizer, wrong={"optimizer": [3, None]})
    yield from mistakes("backward", backward, wrong={"tensor": [3.0, None]})
    yield from mistakes("enable_reproducibility", enable_reproducibility)
    yield from mistakes(
        "TorchCheckpoint.from_state_dict", TorchCheckpoint.from_state_dict, wrong={"state_dict": [model]}
    )
    yield from mistakes("TorchCheckpoint.from_model", TorchCheckpoint.from_model, wrong={"model": [3, None]})
    yield Mistake(
        "TorchCheckpoint.get_model",
        "weights and no model",
        lambda: TorchCheckpoint.from_state_dict(model.state_dict()).get_model(),
        ("get_model(model)",),
    )
