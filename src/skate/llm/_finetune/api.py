"""`skate.llm.finetune`, which trains a model and exports it."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._finetune.config import FinetuneConfig
from skate.llm._finetune.store import DEAD_LETTERS

if TYPE_CHECKING:
    from skate.llm._finetune.store import Prepared
    from skate.train import Result, UserCallback

log = logging.getLogger("skate.llm")

_RESOLVED = "config.json"
# Keys that may differ in a resumed run.
_MAY_CHANGE = {
    "overwrite_output_dir",
    "resume_from_checkpoint",
    "logging_steps",
    "save_total_limit",
    "max_failures",
    "num_workers",
    "use_gpu",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "save_model",
    "loss_chunk_size",
    "gradient_checkpointing",
    "output_dir",
}


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """The result of a fine-tuning run.

    Attributes:
        path: The folder of the trained model; None with `save_model: false`.
        adapter_path: The folder of the adapter alone; None without one.
        best_loss: The lowest evaluation loss after a training step; without evaluation, the lowest training loss.
        metrics: The last report.
        history: All reports, one dict each.
        seconds: Where the time went: `prepare`, `load_model`, `train`, `evaluate`, `checkpoint`, `export`, `other`.
        dead_letters: The number of rows that were left out, by reason.
        stopped_early: Whether the run ended before its last step, because the loss did not improve.
        checkpoint: The folder of the checkpoint that was exported.
    """

    path: Path | None
    adapter_path: Path | None
    best_loss: float
    metrics: Mapping[str, Any]
    history: list[dict[str, Any]] = field(repr=False)
    seconds: Mapping[str, float]
    dead_letters: Mapping[str, int]
    stopped_early: bool
    checkpoint: Path

    @property
    def metrics_dataframe(self) -> Any:
        """All reports as a pandas DataFrame."""
        from skate.air import _optional

        return _optional.load("pandas", "FinetuneResult.metrics_dataframe").DataFrame(self.history)


def finetune(
    config: FinetuneConfig | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    /,
    *,
    callbacks: Sequence[UserCallback] = (),
    **keys: Any,
) -> FinetuneResult:
    """Fine-tune a language model, and write the trained model.

    An unfinished run in `output_dir` resumes at its latest checkpoint. Its losses are the same as without the
    interruption.

    Args:
        config: The configuration, a mapping of its keys, or the path of a YAML file.
        callbacks: Receive the reports of the run. In a trial of Tune,
            `skate.tune.integration.ray_train.TuneReportCallback` passes them on.
        **keys: Keys of `FinetuneConfig`, which take precedence over those of `config`.

    Returns:
        The folder of the model, its losses, and where the time went.

    Raises:
        ValueError: If a key is unknown, a value is invalid, no row can be trained on, or `output_dir` has a finished
            run or a run with another configuration.
        skate.train.TrainingFailedError: If workers failed more than `max_failures` times.
    """
    return _Run(config_of(config, keys), callbacks).run()


def config_of(config: Any, keys: Mapping[str, Any]) -> FinetuneConfig:
    """Return the configuration that is given as an object, a mapping, a path, or keys."""
    if isinstance(config, (str, os.PathLike)):
        return FinetuneConfig.from_yaml(config, **keys)
    if isinstance(config, FinetuneConfig):
        values = {name: getattr(config, name) for name in config.__dataclass_fields__}
        return FinetuneConfig.of({**values, **keys}) if keys else config
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(
            f"config is {config!r}; it must be a FinetuneConfig, a mapping, or the path of a YAML file."
        )
    return FinetuneConfig.of({**(config or {}), **keys})


class _Run:
    """One call of `finetune`."""

    def __init__(self, config: FinetuneConfig, callbacks: Sequence[UserCallback]) -> None:
        from skate.llm._finetune.base_model import with_model_folder

        self._config = config = with_model_folder(config)
        self._callbacks = list(callbacks)
        self._output = Path(config.output_dir).absolute()
        self._seconds: dict[str, float] = {}

    def run(self) -> FinetuneResult:
        from skate.llm._finetune.base_model import check_context, check_packages
        from skate.llm._finetune.export import export

        start = time.perf_counter()
        check_packages(self._config)
        check_context(self._config)
        resumes = self._begin()
        with self._timed("prepare"):
            prepared = self._prepare(resumes)
        trained = self._train(prepared)
        checkpoint = self._checkpoint(trained)
        if self._config.save_model:
            with self._timed("export"):
                export(self._config, checkpoint, self._config.model_folder)
        return self._result(trained, prepared, checkpoint, time.perf_counter() - start)

    # ------------------------------------------------------------ before

    def _begin(self) -> bool:
        """Prepare the output folder. Return whether a run in it resumes."""
        config = self._config
        resumes = (config.run_folder / "run.json").is_file()
        if config.overwrite_output_dir:
            for each in ("run", "prepared", "model", "adapter", _RESOLVED):
                _remove(self._output / each)
            resumes = False
        if resumes and config.model_folder.exists():
            raise ValueError(
                f"output_dir {str(self._output)!r} has a finished run: set another output_dir, or "
                "overwrite_output_dir: true."
            )
        if resumes and config.resume_from_checkpoint is False:
            raise ValueError(
                f"output_dir {str(self._output)!r} has an unfinished run, but resume_from_checkpoint is false: set "
                "another output_dir, or overwrite_output_dir: true."
            )
        if not resumes and config.resume_from_checkpoint is True:
            raise ValueError(f"there is no run to resume in output_dir {str(self._output)!r}.")
        if resumes:
            self._check_unchanged()
        else:
            self._output.mkdir(parents=True, exist_ok=True)
            text = json.dumps(config.as_dict(), indent=2, default=str)
            (self._output / _RESOLVED).write_text(text, encoding="utf-8")
        return resumes

    def _check_unchanged(self) -> None:
        """Check that the unfinished run in the output folder has the same configuration."""
        earlier = json.loads((self._output / _RESOLVED).read_text(encoding="utf-8"))
        now = json.loads(json.dumps(self._config.as_dict(), default=str))
        changed = sorted(key for key in now if key not in _MAY_CHANGE and now[key] != earlier.get(key))
        if changed:
            raise ValueError(
                f"output_dir {str(self._output)!r} has an unfinished run with a different {', '.join(changed)}: set "
                "another output_dir, or overwrite_output_dir: true."
            )

    def _prepare(self, resumes: bool) -> Prepared:
        from skate.llm._finetune.base_model import load_tokenizer
        from skate.llm._finetune.masking import Encoder
        from skate.llm._finetune.store import prepare

        config = self._config
        encoder = Encoder(load_tokenizer(config), train_on_inputs=config.train_on_inputs)
        prepared = prepare(config, encoder, self._output / "prepared", reuse=resumes)
        letters = prepared.summary["dead_letters"]
        if letters:
            log.warning(
                "%d of %d rows are left out: %s. They are listed in %s.",
                sum(letters.values()),
                prepared.summary["rows_read"],
                "; ".join(f"{reason} ({number})" for reason, number in letters.items()),
                self._output / "prepared" / DEAD_LETTERS,
            )
        return prepared

    # ------------------------------------------------------------ training

    def _train(self, prepared: Prepared) -> Result:
        from skate.llm._finetune.loop import train_worker, without_data
        from skate.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from skate.train.torch import TorchTrainer

        config = self._config
        workers, use_gpu = workers_of(config)
        by_loss: dict[str, Any] = {}
        if config.early_stopping_patience:
            by_loss = {"checkpoint_score_attribute": "eval_loss", "checkpoint_score_order": "min"}
        trainer = TorchTrainer(
            train_worker,
            train_loop_config={"config": without_data(config), "prepared": str(self._output / "prepared")},
            scaling_config=ScalingConfig(
                num_workers=workers,
                use_gpu=use_gpu and workers > 0,
                resources_per_worker=None if use_gpu or not workers else {"CPU": _cpus_for(workers)},
            ),
            run_config=RunConfig(
                name=config.run_folder.name,
                storage_path=str(self._output),
                callbacks=self._callbacks,
                checkpoint_config=CheckpointConfig(num_to_keep=config.save_total_limit, **by_loss),
                failure_config=FailureConfig(max_failures=config.max_failures),
                worker_runtime_env={"preload": _preloaded(config)} if workers and not use_gpu else None,
            ),
            resume_from_checkpoint=self._given_checkpoint(),
        )
        return trainer.fit()

    def _given_checkpoint(self) -> Any:
        from skate.train import Checkpoint

        given = self._config.resume_from_checkpoint
        if not isinstance(given, str):
            return None
        if not Path(given).is_dir():
            raise ValueError(f"resume_from_checkpoint is {given!r}, which is not a folder.")
        return Checkpoint.from_directory(given)

    def _checkpoint(self, trained: Result) -> Path:
        """Return the folder of the checkpoint to export: the best one with early stopping, otherwise the last."""
        assert trained.checkpoint is not None
        assert trained.best_checkpoints
        best = trained.best_checkpoints[-1][0] if self._config.early_stopping_patience else trained.checkpoint
        return Path(best.path)

    # ------------------------------------------------------------ after

    def _result(
        self, trained: Result, prepared: Prepared, checkpoint: Path, seconds: float
    ) -> FinetuneResult:
        config = self._config
        history = _history(config.run_folder)
        worker = trained.return_value
        times = {**self._seconds, **worker["seconds"]}
        evaluated = [row["eval_loss"] for row in history if "eval_loss" in row and row["step"] > 0]
        assert trained.metrics is not None
        return FinetuneResult(
            path=config.model_folder if config.save_model else None,
            adapter_path=self._output / "adapter" if config.save_model and config.adapter else None,
            best_loss=min(evaluated or [row["loss"] for row in history]),
            metrics=trained.metrics,
            history=history,
            seconds={**times, "other": seconds - sum(times.values()), "total": seconds},
            dead_letters=prepared.summary["dead_letters"],
            stopped_early=worker["stopped_early"],
            checkpoint=checkpoint,
        )

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[what] = time.perf_counter() - start


def workers_of(config: FinetuneConfig) -> tuple[int, bool]:
    """Return the number of workers, and whether they have a GPU each."""
    gpus = _count_gpus(config.num_workers) if config.use_gpu is not False else 0
    if config.use_gpu and not gpus:
        raise ValueError("use_gpu is true, but torch finds no GPU on this machine.")
    workers = config.num_workers if config.num_workers is not None else max(1, gpus)
    if config.use_gpu is None and gpus < workers:
        return workers, False
    return workers, bool(gpus)


def _count_gpus(workers: int | None) -> int:
    """Return the GPUs that workers may use. A trial of Tune or the driver of a cluster may have none of its own."""
    import torch

    import skate

    if workers == 0 or not skate.is_initialized() or torch.version.cuda is None:
        return torch.cuda.device_count()
    return int(skate.cluster_resources().get("GPU", 0))


def _cpus_for(workers: int) -> int:
    """Return the number of CPUs, and of threads, of each worker: an equal share, but not more than a node has."""
    import skate

    if not skate.is_initialized():
        skate.init()
    free = int(skate.available_resources().get("CPU", 1))
    largest = max(
        (int(node["Resources"].get("CPU", 0)) for node in skate.nodes() if node["Alive"]), default=free
    )
    return max(1, min(free // workers, largest))


def _history(run_folder: Path) -> list[dict[str, Any]]:
    """Return the last report of rank 0 for each step. After a restart, some steps are reported twice."""
    lines = (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    reports = [json.loads(line) for line in lines]
    rows = {each["metrics"]["step"]: each["metrics"] for each in reports if each["rank"] == 0}
    return [rows[step] for step in sorted(rows)]


def _preloaded(config: FinetuneConfig) -> list[str]:
    """Return the slow modules that the process from which workers are forked imports in advance."""
    from skate.llm._finetune.base_model import read_model_config

    kind = read_model_config(config.base_model).model_type
    modules = ["transformers.modeling_utils", f"transformers.models.{kind}.modeling_{kind}", "peft"]
    if config.strategy == "zero3":
        modules.append("deepspeed")
    return [name for name in modules if _is_importable(name)]


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package does not exist
        return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
