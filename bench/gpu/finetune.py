"""Fine-tune a language model on one GPU: `skate.llm.finetune` beside a plain loop over the same model and tokens.

The model is the one of `generate.py`, in bfloat16, and a step trains 4 rows of 2,000 tokens. Each way runs in a process
of its own. The first steps of a run are not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import generate

ROWS, LENGTH, UNCOUNTED = 4, 2000, 10


def write_rows(path: Path, count: int) -> None:
    """Write texts of as many tokens as characters."""
    rng = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            text = "".join(rng.choices(string.ascii_letters, k=LENGTH - 1))  # a token for the end is added
            file.write(json.dumps({"text": text}) + "\n")


def train_with_skate(model: Path, data: Path, out: Path, steps: int) -> float:
    """Return the tokens that are trained in a second."""
    from skate.llm import finetune
    from skate.train import UserCallback

    reports: list[tuple[int, float]] = []

    class Times(UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            reports.append(
                (metrics[0]["step"], metrics[0]["at"] if "at" in metrics[0] else time.perf_counter())
            )

    finetune(
        base_model=str(model),
        datasets=[{"path": str(data), "type": "completion"}],
        sequence_len=LENGTH,
        sample_packing=False,
        micro_batch_size=ROWS,
        max_steps=steps,
        bf16="full",
        output_dir=str(out),
        save_model=False,
        logging_steps=UNCOUNTED,
        save_steps=10 * steps,
        callbacks=[Times()],
    )
    # The last report waits for the checkpoint.
    (first, start), (last, end) = next(each for each in reports if each[0] == UNCOUNTED), reports[-2]
    return (last - first) * ROWS * LENGTH / (end - start)


def train_plainly(model: Path, data: Path, steps: int) -> float:
    """Return the tokens that are trained in a second."""
    import torch
    from tokenizers import Tokenizer
    from torch.nn import functional
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    rows = [[*tokenizer.encode(json.loads(line)["text"]).ids, 0] for line in data.open()]
    tokens = torch.tensor(rows).pin_memory() if device == "cuda" else torch.tensor(rows)
    decoder = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).to(device).train()
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=2e-5, weight_decay=0.01, fused=device == "cuda")
    start = 0.0
    for step in range(steps):
        if step == UNCOUNTED:
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        chosen = torch.arange(step * ROWS, (step + 1) * ROWS) % len(tokens)
        batch = tokens[chosen].to(device, non_blocking=True)
        logits = decoder(input_ids=batch, use_cache=False).logits
        loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % UNCOUNTED == 0:
            loss.item()
    if device == "cuda":
        torch.cuda.synchronize()
    return (steps - UNCOUNTED) * ROWS * LENGTH / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument(
        "--tiny", action="store_true", help="a small model and short rows, to check the program"
    )
    parser.add_argument("--child", choices=["skate", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    config = generate.CONFIG
    if options.tiny:
        global ROWS, LENGTH, UNCOUNTED
        ROWS, LENGTH, UNCOUNTED, options.steps = 2, 16, 2, 6
        config = generate.TINY
    if options.child:
        model, data = options.folder / "model", options.folder / "rows.jsonl"
        if options.child == "skate":
            with tempfile.TemporaryDirectory() as out:
                print(json.dumps(train_with_skate(model, data, Path(out), options.steps)))
        else:
            print(json.dumps(train_plainly(model, data, options.steps)))
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates: dict[str, list[float]] = {"plain": [], "skate": []}
    with tempfile.TemporaryDirectory(prefix="bench-llm-") as holder:
        folder = Path(holder)
        (folder / "model").mkdir()
        generate.write_model(folder / "model", config, device)
        write_rows(folder / "rows.jsonl", ROWS * options.steps)
        if device == "cuda":
            torch.cuda.empty_cache()
        for number in range(options.rounds):
            for way in ("plain", "skate") if number % 2 == 0 else ("skate", "plain"):
                command = [sys.executable, __file__, "--child", way, "--folder", holder]
                command += ["--steps", str(options.steps), *(["--tiny"] if options.tiny else [])]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                rates[way].append(json.loads(done.stdout.splitlines()[-1]))
    figures = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
        "tokens_per_s": rates,
        "ratio": statistics.median(rates["skate"]) / statistics.median(rates["plain"]),
    }
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
