"""Check a configuration before a run: which tokens are trained, whether the model learns to stop, time and memory."""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skate.llm._finetune.config import FinetuneConfig
from skate.llm._finetune.packing import Micro, collate, fill, packed_difference, row_lengths
from skate.llm._finetune.store import Prepared

ROWS = 2_000  # rows to read: enough to find problems, and few enough to be fast
SHOWN = 3


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of a row, and whether they are trained."""

    text: str
    trained: bool


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The result of `check`. The configuration is valid if there are no problems.

    Attributes:
        problems: Why the configuration must not be used.
        rows: The first rows, as pieces of text.
        stop_token: The token that ends a trained part.
        rows_read: The number of rows that were read.
        rows_kept: The number of rows that can be trained on.
        dead_letters: The number of rows that are left out, by reason.
        fill: The fraction of the packed sequences that is filled with tokens; None without packing.
        leak: By how much the loss of a row changes when another is packed before it; None without packing.
        loss: The mean loss of the largest micro-batch.
        worst_tokens: The number of tokens in that micro-batch.
        parameters: The number of parameters of the model.
        trained_parameters: The number of parameters that are trained.
        step_seconds: The estimated duration of a step in seconds.
        steps: The number of steps of the run, as far as rows were read.
        total_seconds: The estimated duration of these steps in seconds.
        memory_bytes: The peak memory of training on the largest micro-batch: of the GPU, or of this process.
        seconds: The duration of the check in seconds.
    """

    problems: list[str]
    rows: list[list[Piece]]
    stop_token: str
    rows_read: int
    rows_kept: int
    dead_letters: dict[str, int]
    fill: float | None
    leak: float | None
    loss: float
    worst_tokens: int
    parameters: int
    trained_parameters: int
    step_seconds: float
    steps: int
    total_seconds: float
    memory_bytes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict of JSON values."""
        return dataclasses.asdict(self)


def check(config: FinetuneConfig) -> CheckReport:
    """Check a configuration: encode rows, test packing, and train once on the largest micro-batch.

    Nothing is written to `output_dir`.

    Raises:
        ValueError: If no row can be trained on, or the model cannot be loaded.
    """
    folder = Path(tempfile.mkdtemp(prefix="skate-check-"))
    try:
        return _Check(config, folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Check:
    """One call of `check`."""

    def __init__(self, config: FinetuneConfig, folder: Path) -> None:
        from skate.llm._finetune.base_model import check_context, load_tokenizer, with_model_folder
        from skate.llm._finetune.masking import Encoder

        self._config = config = with_model_folder(config)
        self._folder = folder
        self._start = time.perf_counter()
        check_context(config)
        self._encoder = Encoder(load_tokenizer(config), train_on_inputs=config.train_on_inputs)
        self._problems: list[str] = []

    def run(self) -> CheckReport:
        import torch

        from skate.llm._finetune import loop
        from skate.llm._finetune.api import workers_of
        from skate.llm._finetune.base_model import count_parameters
        from skate.llm._finetune.store import prepare

        config = self._config
        prepared = prepare(_shortened(config), self._encoder, self._folder / "prepared")
        stop = self._check_stop(prepared)
        workers, use_gpu = workers_of(config)
        plan = loop.make_plan(config, prepared, workers=max(1, workers))
        device = torch.device("cuda" if use_gpu else "cpu")
        unsharded = dataclasses.replace(config, strategy="ddp")
        module = loop.build_model(unsharded, device).to(device)
        parameters, trained_parameters = count_parameters(module)
        leak = self._check_leak(module, device) if config.sample_packing else None
        micro = plan.worst()
        loss, seconds, memory = self._train_worst(prepared, micro, module, device)
        micros = min(config.gradient_accumulation_steps, len(plan.micros(0, 0)))
        return CheckReport(
            problems=self._problems,
            rows=[self._pieces(prepared, row) for row in prepared.train[:SHOWN]],
            stop_token=stop,
            rows_read=prepared.summary["rows_read"],
            rows_kept=prepared.summary["rows"],
            dead_letters=prepared.summary["dead_letters"],
            fill=fill(plan.bins(0), row_lengths(prepared), config.sequence_len)
            if config.sample_packing
            else None,
            leak=leak,
            loss=loss,
            worst_tokens=int(collate(prepared, micro)["input_ids"].numel()),
            parameters=parameters,
            trained_parameters=trained_parameters,
            step_seconds=seconds * micros,
            steps=plan.steps,
            total_seconds=seconds * micros * plan.steps,
            memory_bytes=memory,
            seconds=time.perf_counter() - self._start,
        )

    # ------------------------------------------------------------ data

    def _check_stop(self, prepared: Prepared) -> str:
        """Check that every row trains a stop token, and return the stop token."""
        tokenizer = self._encoder.tokenizer
        chats = any(each.type != "text" for each in self._config.datasets) and tokenizer.chat_template
        stop = self._encoder.stop_id if chats else tokenizer.eos_token_id
        ends = {stop, tokenizer.eos_token_id}
        missing = 0
        for number in range(len(prepared.starts) - 1):
            ids, mask = prepared.sequence(number)
            missing += int(ids[mask.nonzero()[0][-1]]) not in ends
        if missing:
            self._problems.append(
                f"{missing} of {len(prepared.starts) - 1} rows do not train a stop token, so the model would not learn "
                "to stop."
            )
        return str(tokenizer.convert_ids_to_tokens(int(stop)))

    def _pieces(self, prepared: Prepared, row: int) -> list[Piece]:
        """Return the text of a row, split where the trained parts start and end."""
        ids, mask = prepared.sequence(int(row) * prepared.sequences_per_row)
        pieces: list[Piece] = []
        start = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or mask[end] != mask[start]:
                text = self._encoder.tokenizer.decode(ids[start:end].tolist())
                pieces.append(Piece(text, bool(mask[start])))
                start = end
        return pieces

    # ------------------------------------------------------------ model

    def _check_leak(self, module: Any, device: Any) -> float:
        from skate.llm._finetune.loop import autocast, check_isolation

        try:
            return check_isolation(self._config, module, device)
        except ValueError as error:
            self._problems.append(str(error))
        with autocast(self._config, device):
            return packed_difference(module, device)

    def _train_worst(
        self, prepared: Prepared, micro: Micro, module: Any, device: Any
    ) -> tuple[float, float, int]:
        """Train on a micro-batch. Return its mean loss, the duration in seconds, and the peak memory in bytes."""
        import torch

        from skate.llm._finetune import loop

        config = self._config
        optimizer = loop.make_optimizer(config, module, device)
        batch = {
            name: each.to(device)
            for name, each in collate(prepared, micro, flat=loop.is_flat(config)).items()
        }
        items = int((batch["labels"] != -100).sum()) if config.rl is None else len(micro.bins)
        module.train()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        losses, seconds = [], []
        for _ in range(2):  # the first step also allocates memory and chooses kernels
            start = time.perf_counter()
            with loop.autocast(config, device):
                result = module(**batch)
            loss = (result[0] if isinstance(result, tuple) else result) / max(1, items)
            loss.backward()
            gradients = [each.grad for each in module.parameters() if each.grad is not None]
            has_gradient = any(bool(each.any()) for each in gradients)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(float(loss.detach()))
            seconds.append(time.perf_counter() - start)
            if not math.isfinite(losses[-1]):
                self._problems.append(f"the loss of the largest micro-batch is {losses[-1]}.")
                break
            if not has_gradient:
                self._problems.append("no weight has a gradient, so nothing would be trained.")
                break
            if seconds[0] > 5:
                break
        return losses[0], seconds[-1], _peak_memory(device)


def _shortened(config: FinetuneConfig) -> FinetuneConfig:
    """Return the configuration with only the first rows of its datasets."""
    from skate.llm._finetune.store import read

    def short(sources: Any) -> Any:
        return tuple(
            dataclasses.replace(each, path=read(each).limit(ROWS), split="train") for each in sources
        )

    return dataclasses.replace(
        config, datasets=short(config.datasets), test_datasets=short(config.test_datasets)
    )


def _peak_memory(device: Any) -> int:
    import resource
    import sys

    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
