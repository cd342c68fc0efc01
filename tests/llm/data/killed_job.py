"""A program that completes prompts and is killed while it writes the answers; run it again to finish.

python -m tests.llm.data.killed_job MODEL FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import skate
import skate.data
from skate.data.llm import build_processor, vLLMEngineProcessorConfig
from tests.serve.waiting import until

ROWS, PARTS = 24, 6
SAMPLING = {"temperature": 0.0, "max_tokens": 4}


def prompt_of(number: int) -> str:
    return f"The quick {number}"


def ask(row: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": prompt_of(row["id"]), "sampling_params": SAMPLING}


def keep(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row to write; kill the program at the last row, once an answer has been written."""
    folder = os.environ.get("DIE_WHEN_WRITTEN")
    if folder is not None and row["id"] == ROWS - 1:
        until(lambda: list(Path(folder).glob("*.parquet")))
        os.kill(int(os.environ["PROGRAM"]), signal.SIGKILL)
    return {"id": row["id"], "answer": row["generated_text"]}


if __name__ == "__main__":
    model, folder = sys.argv[1:]
    os.environ["PROGRAM"] = str(os.getpid())
    skate.init(num_cpus=3)
    config = vLLMEngineProcessorConfig(
        model_source=model, engine_kwargs={"num_threads": 1}, batch_size=2, max_concurrent_batches=1
    )
    processor = build_processor(config, preprocess=ask, postprocess=keep)
    questions = skate.data.range(ROWS, override_num_blocks=PARTS)
    processor(questions).write_parquet(folder, resume=True)
    skate.shutdown()
