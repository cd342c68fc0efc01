"""Names that programs written for Ray import, each under all of its paths."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from skate import train
from skate.train._internal.session import get_session
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.train.error import SessionMisuseError
from tests.test_architecture import needs_framework

# What needs no framework but torch; the names of other frameworks are tested with them.
NAMES = [
    "train.Checkpoint.as_directory",
    "train.Checkpoint.from_directory",
    "train.Checkpoint.get_metadata",
    "train.Checkpoint.set_metadata",
    "train.Checkpoint.to_directory",
    "train.Checkpoint.update_metadata",
    "train.CheckpointConfig",
    "train.CheckpointUploadMode",
    "train.ControllerError",
    "train.DataConfig",
    "train.FailureConfig",
    "train.LoggingConfig",
    "train.ReportedCheckpoint",
    "train.Result.config",
    "train.Result.filesystem",
    "train.Result.from_path",
    "train.Result.get_best_checkpoint",
    "train.RunConfig",
    "train.ScalingConfig",
    "train.SyncConfig",
    "train.TrainContext.get_experiment_name",
    "train.TrainContext.get_local_rank",
    "train.TrainContext.get_local_world_size",
    "train.TrainContext.get_node_rank",
    "train.TrainContext.get_storage",
    "train.TrainContext.get_trial_id",
    "train.TrainContext.get_trial_name",
    "train.TrainContext.get_world_rank",
    "train.TrainContext.get_world_size",
    "train.TrainingFailedError",
    "train.UserCallback.after_exception",
    "train.UserCallback.after_report",
    "train.ValidationConfig",
    "train.WorkerGroupError",
    "train.backend.Backend",
    "train.backend.BackendConfig",
    "train.collective.barrier",
    "train.collective.broadcast_from_rank_zero",
    "train.data_parallel_trainer.DataParallelTrainer",
    "train.get_all_reported_checkpoints",
    "train.get_checkpoint",
    "train.get_context",
    "train.get_dataset_shard",
    "train.report",
    "train.torch.TorchCheckpoint",
    "train.torch.TorchConfig",
    "train.torch.TorchTrainer",
    "train.torch.accelerate",
    "train.torch.backward",
    "train.torch.enable_reproducibility",
    "train.torch.get_device",
    "train.torch.get_devices",
    "train.torch.prepare_data_loader",
    "train.torch.prepare_model",
    "train.torch.prepare_optimizer",
    "train.NCCLHangError",
    "train.PreemptionError",
    "train.PreemptionInfo.preempted_node_ids",
    "train.ValidationFn",
    "train.get_preemption_info",
    "train.error.SessionMisuseError",
    "train.torch.train_loop_utils.TorchWorkerProfiler",
    "train.torch.xla.TorchXLAConfig",
    "train.v2.api.callback.RayTrainCallback",
    "air.CheckpointConfig",
    "air.FailureConfig",
    "air.RunConfig",
    "air.ScalingConfig",
    "air.integrations.mlflow.MLflowLoggerCallback",
    "air.integrations.mlflow.setup_mlflow",
    "air.integrations.wandb.setup_wandb",
    "air.integrations.wandb.WandbLoggerCallback",
    "air.session.get_checkpoint",
    "air.session.report",
]

# Another path, and the one that it stands for.
SAME = {
    "air.Result": "train.Result",
    "train.base_trainer.BaseTrainer": "train.data_parallel_trainer.DataParallelTrainer",
    "train.v2.api.context.DistributedTrainContext": "train.TrainContext",
    "train.v2.api.preemption.PreemptionInfo": "train.PreemptionInfo",
    "air.config.CheckpointConfig": "train.CheckpointConfig",
    "air.config.FailureConfig": "train.FailureConfig",
    "air.config.RunConfig": "train.RunConfig",
    "air.config.ScalingConfig": "train.ScalingConfig",
    "air.session.get_dataset_shard": "train.get_dataset_shard",
    "train.base_trainer.TrainingFailedError": "train.TrainingFailedError",
    "train.constants.TRAIN_DATASET_KEY": "train.TRAIN_DATASET_KEY",
    "train.context.TrainContext": "train.TrainContext",
    "train.context.get_context": "train.get_context",
    "train.torch.config.TorchConfig": "train.torch.TorchConfig",
    "train.torch.torch_checkpoint.TorchCheckpoint": "train.torch.TorchCheckpoint",
    "train.torch.torch_trainer.TorchTrainer": "train.torch.TorchTrainer",
    "train.torch.train_loop_utils.prepare_model": "train.torch.prepare_model",
    "train.trainer.TrainingFailedError": "train.TrainingFailedError",
    "train.v2.api.callback.UserCallback": "train.UserCallback",
    "train.v2.api.config.CheckpointConfig": "train.CheckpointConfig",
    "train.v2.api.config.FailureConfig": "train.FailureConfig",
    "train.v2.api.config.LoggingConfig": "train.LoggingConfig",
    "train.v2.api.config.RunConfig": "train.RunConfig",
    "train.v2.api.config.ScalingConfig": "train.ScalingConfig",
    "train.v2.api.context.TrainContext": "train.TrainContext",
    "train.v2.api.data_parallel_trainer.DataParallelTrainer": "train.data_parallel_trainer.DataParallelTrainer",
    "train.v2.api.exceptions.ControllerError": "train.ControllerError",
    "train.v2.api.exceptions.TrainingFailedError": "train.TrainingFailedError",
    "train.v2.api.exceptions.WorkerGroupError": "train.WorkerGroupError",
    "train.v2.api.report_config.CheckpointConsistencyMode": "train.CheckpointConsistencyMode",
    "train.v2.api.report_config.CheckpointUploadMode": "train.CheckpointUploadMode",
    "train.v2.api.reported_checkpoint.ReportedCheckpoint": "train.ReportedCheckpoint",
    "train.v2.api.result.Result": "train.Result",
    "train.v2.api.train_fn_utils.get_all_reported_checkpoints": "train.get_all_reported_checkpoints",
    "train.v2.api.train_fn_utils.get_context": "train.get_context",
    "train.v2.api.train_fn_utils.report": "train.report",
    "train.v2.api.validation_config.ValidationConfig": "train.ValidationConfig",
    "train.v2.lightgbm.lightgbm_trainer.LightGBMTrainer": "train.lightgbm.LightGBMTrainer",
    "train.v2.torch.torch_trainer.TorchTrainer": "train.torch.TorchTrainer",
    "train.v2.torch.train_loop_utils.prepare_model": "train.torch.prepare_model",
    "train.v2.xgboost.config.XGBoostConfig": "train.xgboost.XGBoostConfig",
    "train.v2.xgboost.xgboost_trainer.XGBoostTrainer": "train.xgboost.XGBoostTrainer",
}


def resolved(name: str) -> Any:
    """Import as much of a dotted name as are modules, and follow the rest."""
    parts = ["skate", *name.split(".")]
    found: Any = importlib.import_module("skate")
    for index, part in enumerate(parts[1:], 2):
        try:
            found = importlib.import_module(".".join(parts[:index]))
        except ModuleNotFoundError:
            found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there(name: str) -> None:
    assert resolved(name) is not None


@pytest.mark.parametrize(
    ("other", "name"), [pair for pair in SAME.items() if not needs_framework(f"skate.{pair[1]}")]
)
def test_two_paths_lead_to_one_object(other: str, name: str) -> None:
    assert resolved(other) is resolved(name)


def test_what_one_machine_cannot_offer_says_so() -> None:
    from skate.train.torch.xla import TorchXLAConfig

    with pytest.raises(NotImplementedError, match="AWS Neuron devices, which Skate does not support"):
        TorchXLAConfig()
    with pytest.raises(NotImplementedError, match="pass the trainer itself to"):
        DataParallelTrainer(print).as_trainable()
    with pytest.raises(SessionMisuseError, match=r"get_preemption_info\(\) works only inside"):
        train.get_preemption_info()


def test_a_preemption_names_its_ranks_and_survives_pickling() -> None:
    error = train.PreemptionError(train.PreemptionInfo(None, {"b": [3], "a": [1, 0]}), drain_timed_out=True)
    found = pickle.loads(pickle.dumps(error))
    assert "ranks [0, 1, 3]" in str(found)
    assert (found.preemption_info.preempted_node_ids, found.drain_timed_out) == (["a", "b"], True)


def test_the_private_session_of_ray_is_there_in_a_training_function_alone(tmp_path: Path) -> None:
    def function() -> None:
        session = get_session()
        assert session is not None
        assert (session.world_rank, session.world_size, session.experiment_name) == (0, 1, "run")
        assert train.get_preemption_info() is None
        session.report({"seen": True})

    assert get_session() is None
    result = DataParallelTrainer(
        function,
        scaling_config=train.ScalingConfig(num_workers=0),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path)),
    ).fit()
    assert result.metrics == {"seen": True}
