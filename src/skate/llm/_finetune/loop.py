"""The training loop, which every worker of a fine-tuning run executes."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._finetune.config import FinetuneConfig
from skate.llm._finetune.packing import (
    LARGEST_DIFFERENCE,
    Bin,
    Micro,
    Plan,
    collate,
    divide,
    evaluation_bins,
    packed_difference,
)
from skate.llm._finetune.schedule import Intervals, Progress, learning_rate
from skate.llm._finetune.store import Prepared, open_prepared

if TYPE_CHECKING:
    from skate.llm._finetune.strategies import Strategy


def train_worker(settings: dict[str, Any]) -> dict[str, Any]:
    """Train on this worker.

    Args:
        settings: `config`, a `FinetuneConfig`, and `prepared`, the folder of the prepared data.

    Returns:
        The durations of the parts of the run, and its progress.
    """
    trainer = Trainer(settings["config"], open_prepared(settings["prepared"]))
    trainer.run()
    return trainer.summary()


class Trainer:
    """Trains a model on prepared data, as one worker of a run.

    Args:
        config: The configuration.
        prepared: The data.
    """

    def __init__(self, config: FinetuneConfig, prepared: Prepared) -> None:
        import torch

        from skate import train
        from skate.train.torch import get_device

        self._times: dict[str, float] = defaultdict(float)
        context = train.get_context()
        self.config, self.prepared = config, prepared
        self.rank, self.workers = context.get_world_rank(), context.get_world_size()
        self.device = torch.device("cpu") if config.use_gpu is False else get_device()
        self.plan = make_plan(config, prepared, workers=self.workers)
        self.intervals = Intervals.of(config, steps=self.plan.steps, epoch_steps=self.plan.first_epoch_steps)
        with self._timed("load_model"):
            self.model = build_model(config, self.device)
            if config.sample_packing:
                check_isolation(config, self.model, self.device)
            self.strategy = distribute(config, self.model, self.device)
            self.optimizer = self.strategy.attach(make_optimizer(config, self.model, self.device))
            self.progress = self._resume()

    # ------------------------------------------------------------ the run

    def run(self) -> None:
        """Train until the last step, or until the loss stops improving."""
        config, progress = self.config, self.progress
        if config.eval_on_start and progress.step == 0:
            with self._timed("evaluate"):
                evaluation = self._evaluate()
            self._report({"step": 0, "epoch": 0.0, "tokens": 0, **evaluation}, saves=False)
        while progress.step < self.plan.steps and not progress.is_hopeless(config.early_stopping_patience):
            with self._timed("train"):
                loss, norm, rate = self._train_step(progress.step)
            progress.step += 1
            done = progress.step
            evaluates = bool(len(self.prepared.evaluation)) and self.intervals.evaluates(done)
            is_hopeless = False
            metrics: dict[str, Any] = {}
            if evaluates:
                with self._timed("evaluate"):
                    metrics = self._evaluate()
                progress.evaluated(metrics["eval_loss"])
                is_hopeless = progress.is_hopeless(config.early_stopping_patience)
            saves = self.intervals.saves(done) or is_hopeless
            if not (evaluates or saves or done % config.logging_steps == 0 or done == 1):
                continue
            metrics = {
                "step": done,
                "epoch": round(self.plan.progress(done), 4),
                "loss": self._sum(loss),
                "learning_rate": rate,
                "grad_norm": float(norm),
                "tokens": progress.tokens,
                **metrics,
            }
            if not math.isfinite(metrics["loss"]):
                raise FloatingPointError(
                    f"the loss of step {done} is {metrics['loss']}: lower learning_rate, or set bf16: false."
                )
            self._report(metrics, saves=saves)

    def _train_step(self, step: int) -> tuple[Any, Any, float]:
        """Update the weights once. Return this worker's share of the loss, the gradient norm, and the learning rate."""
        import torch

        config, strategy = self.config, self.strategy
        # Dropout depends only on the step and the rank, so a resumed run repeats it.
        torch.manual_seed((config.seed * 1_000_003 + step) * 4_099 + self.rank)
        strategy.module.train()
        rate = learning_rate(config, step, self.plan.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        items = self._items(step)
        micros = self.plan.micros(step, self.rank)
        total = torch.zeros((), device=self.device)
        for number, micro in enumerate(micros):
            with strategy.accumulating(last=number == len(micros) - 1):
                loss, _ = self._forward(micro)
                # Gradients are averaged over the workers; the factor turns the average into a sum.
                strategy.backward(loss * (self.workers / items))
            total += loss.detach() / items
        norm = strategy.step(self.optimizer, config.max_grad_norm)
        self.progress.tokens += self.plan.trained_tokens(step)
        return total, norm, rate

    def _items(self, step: int) -> int:
        """Return the divisor of the loss of a step: the number of trained tokens, or of pairs, of all workers."""
        if self.config.rl == "dpo":
            return sum(len(each) for each in self.plan.step_bins(step))
        return self.plan.trained_tokens(step)

    def _forward(self, micro: Micro) -> tuple[Any, Any]:
        """Return the summed loss of a micro-batch and, for preferences, the number of pairs in the right order."""
        flat = is_flat(self.config)
        batch = {
            name: each.to(self.device, non_blocking=True)
            for name, each in collate(self.prepared, micro, flat=flat).items()
        }
        with autocast(self.config, self.device):
            result = self.strategy.module(**batch)
        return result if isinstance(result, tuple) else (result, None)

    def _evaluate(self) -> dict[str, float]:
        """Return the loss on the evaluation rows."""
        import torch

        config = self.config
        bins = evaluation_bins(self.prepared, config.sequence_len, packed=bool(config.sample_packing))
        self.strategy.module.eval()
        total, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        with torch.no_grad():
            for micro in divide(bins, config.micro_batch_size, self.workers)[self.rank]:
                loss, ordered = self._forward(micro)
                total += loss
                if ordered is not None:
                    right += ordered
        self.strategy.module.train()
        if config.rl == "dpo":
            return {"eval_loss": self._sum(total) / len(bins), "eval_accuracy": self._sum(right) / len(bins)}
        return {"eval_loss": self._sum(total) / trained_tokens(self.prepared, bins)}

    def _sum(self, value: Any) -> float:
        """Return the sum of a value over all workers."""
        import torch.distributed as dist

        if self.workers > 1:
            value = value.clone()
            dist.all_reduce(value)
        return float(value)

    # ------------------------------------------------------------ reports and checkpoints

    def _report(self, metrics: dict[str, Any], *, saves: bool) -> None:
        from skate import train
        from skate.train import Checkpoint

        if self.rank > 0 and not self.strategy.is_sharded:
            return
        if not saves:
            train.report(metrics)
            return
        with self._timed("checkpoint"), tempfile.TemporaryDirectory() as folder:
            self.strategy.save(Path(folder), self.optimizer, self.progress)
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))

    def _resume(self) -> Progress:
        """Load the checkpoint of the run, if there is one."""
        from skate import train

        batch = self.config.micro_batch_size * self.config.gradient_accumulation_steps * self.workers
        checkpoint = train.get_checkpoint()
        if checkpoint is None:
            return Progress(batch=batch)
        with checkpoint.as_directory() as folder:
            progress: Progress = self.strategy.load(Path(folder), self.optimizer)
        if progress.batch != batch:
            raise ValueError(
                f"the checkpoint is from a run with {progress.batch} sequences per step, but this run has {batch}: "
                "adapt micro_batch_size and gradient_accumulation_steps to the number of workers, or set another "
                "output_dir."
            )
        return progress

    def summary(self) -> dict[str, Any]:
        """Return the durations of the parts of the run, and its progress."""
        import torch

        found: dict[str, Any] = {
            "seconds": dict(self._times),
            "steps": self.progress.step,
            "tokens": self.progress.tokens,
            "best_eval_loss": self.progress.best_loss,
            "stopped_early": self.progress.step < self.plan.steps,
        }
        if self.device.type == "cuda":
            found["peak_memory"] = torch.cuda.max_memory_allocated(self.device)
        return found

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._times[what] += time.perf_counter() - start


# ------------------------------------------------------------ also used by `check`


def make_plan(config: FinetuneConfig, prepared: Prepared, *, workers: int) -> Plan:
    """Return the steps of a run."""
    return Plan(
        prepared,
        capacity=config.sequence_len,
        packed=bool(config.sample_packing),
        micro_batch_size=config.micro_batch_size,
        accumulation=config.gradient_accumulation_steps,
        workers=workers,
        epochs=config.num_epochs,
        max_steps=config.max_steps,
        seed=config.seed,
    )


def build_model(config: FinetuneConfig, device: Any) -> Any:
    """Return the model to train, with its adapter and its loss.

    Raises:
        ValueError: If the base model cannot be loaded, or new tokens would not be trained.
    """
    import torch

    from skate.llm._finetune.base_model import (
        add_adapter,
        fit_embeddings,
        load_base_model,
        load_tokenizer,
        quantization_config,
    )
    from skate.llm._finetune.loss import LanguageModelLoss, PreferenceLoss, default_chunk_size

    if device.type == "cuda" and config.tf32:
        torch.set_float32_matmul_precision("high")
    base = load_base_model(
        config.base_model,
        dtype=weight_dtype(config, device),
        attn_implementation=config.attn_implementation,
        quantization=quantization_config(config, bf16=uses_bf16(config, device)),
        device=device,
    )
    fit_embeddings(base, load_tokenizer(config), config)
    model = add_adapter(base, config)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    vocabulary = base.get_input_embeddings().weight.shape[0]
    loss = LanguageModelLoss(
        model, chunk_size=config.loss_chunk_size or default_chunk_size(device, vocabulary)
    )
    return PreferenceLoss(loss, beta=config.beta) if config.rl == "dpo" else loss


def check_isolation(config: FinetuneConfig, module: Any, device: Any) -> float:
    """Return by how much the loss of a row changes when another is packed before it.

    Raises:
        ValueError: If rows that are packed into one sequence see each other.
    """
    with autocast(config, device):
        difference = packed_difference(module.to(device), device)
    most = LARGEST_DIFFERENCE["bfloat16" if uses_bf16(config, device) else "float32"]
    if not difference <= most:
        raise ValueError(
            f"rows that are packed into one sequence see each other: the loss of a row changes by {difference:.2g} "
            "when another row precedes it. Set sample_packing: false, or another attn_implementation."
        )
    return difference


def distribute(config: FinetuneConfig, model: Any, device: Any) -> Strategy:
    """Return the model, distributed over the workers as the configuration specifies."""
    import torch

    from skate.llm._finetune.strategies import Replicated, Sharded

    if config.strategy == "zero3":
        from skate.llm._finetune.zero import ZeroSharded

        return ZeroSharded(model, device, config, bf16=uses_bf16(config, device))
    if config.strategy == "fsdp2":
        return Sharded(model, device, compute=torch.bfloat16 if uses_bf16(config, device) else None)
    return Replicated(model, device)


def make_optimizer(config: FinetuneConfig, module: Any, device: Any) -> Any:
    """Return AdamW for the trained weights. Vectors, which are norms and biases, have no weight decay."""
    import torch

    trained = [each for each in module.parameters() if each.requires_grad]
    assert config.learning_rate is not None
    assert config.weight_decay is not None
    groups: list[dict[str, Any]] = [
        {"params": [each for each in trained if each.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [each for each in trained if each.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=device.type in ("cuda", "cpu"),
    )


def uses_bf16(config: FinetuneConfig, device: Any) -> bool:
    """Return whether to compute in bfloat16. `auto` does so on GPUs that support it."""
    import torch

    if config.bf16 == "auto":
        return bool(device.type == "cuda" and torch.cuda.is_bf16_supported())
    return bool(config.bf16)


def weight_dtype(config: FinetuneConfig, device: Any) -> Any:
    """Return the data type of the base model's weights: bfloat16 if they are frozen, or with `bf16: full`."""
    import torch

    narrow = uses_bf16(config, device) and (config.adapter is not None or config.bf16 == "full")
    return torch.bfloat16 if narrow and config.strategy == "ddp" else torch.float32


def autocast(config: FinetuneConfig, device: Any) -> Any:
    """Return the autocast context of a forward pass."""
    import torch

    if not uses_bf16(config, device) or config.strategy != "ddp":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def is_flat(config: FinetuneConfig) -> bool:
    """Return whether a micro-batch is one sequence without padding, as flash attention requires."""
    return config.rl is None and "flash" in (config.attn_implementation or "")


def trained_tokens(prepared: Prepared, bins: list[Bin]) -> int:
    """Return the number of trained tokens in packed sequences."""
    trained = prepared.trained()
    return sum(int(trained[row]) for each in bins for row in each)


def without_data(config: FinetuneConfig) -> FinetuneConfig:
    """Return the configuration without the data of its datasets, so that it can be sent to workers."""
    return dataclasses.replace(
        config,
        datasets=tuple(dataclasses.replace(each, path=str(each.path)) for each in config.datasets),
        test_datasets=tuple(dataclasses.replace(each, path=str(each.path)) for each in config.test_datasets),
    )
