"""Prepared data: the tokens of all rows, in files that every worker reads or maps into memory.

`skate.data` reads and tokenizes the rows, in parallel if there are many. Every worker has access to all rows, so each
worker can compute which rows belong to a step, and how many tokens the step trains in total.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._finetune.config import DatasetConfig, FinetuneConfig
from skate.llm._finetune.masking import Encoder
from skate.llm._finetune.rows import RowError, parse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEAD_LETTERS = "dead_letters.jsonl"
TOO_LONG = "longer than sequence_len"
_MAPPED = 2**25  # files with at least this many tokens are mapped into memory instead of read
_BATCH = 256  # rows that a task encodes at a time
_SHOWN = 300  # characters of a dead-letter row to store
_SPLIT = re.compile(r"^\w+(?:\[(?P<start>\d+%?)?:(?P<end>\d+%?)?\])?$")


@dataclass(frozen=True)
class Prepared:
    """Sequences of tokens with their masks.

    Attributes:
        tokens: The tokens of all sequences, concatenated.
        mask: For each token, whether it is trained.
        starts: The start of each sequence in `tokens`, and the end of the last sequence.
        train: The rows to train on; a row is one sequence, or a pair of sequences for preferences.
        evaluation: The rows to evaluate on.
        sequences_per_row: 2 for preferences, otherwise 1.
        summary: Counts of rows and tokens, and of dead-letter rows by reason.
    """

    tokens: NDArray[np.int32]
    mask: NDArray[np.bool_]
    starts: NDArray[np.int64]
    train: NDArray[np.int64]
    evaluation: NDArray[np.int64]
    sequences_per_row: int
    summary: Mapping[str, Any]

    def sequence(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return the tokens and the mask of a sequence."""
        start, end = self.starts[number], self.starts[number + 1]
        return self.tokens[start:end], self.mask[start:end]

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each sequence."""
        return self.starts[1:] - self.starts[:-1]

    def trained(self) -> NDArray[np.int64]:
        """Return the number of trained tokens of each sequence."""
        import numpy as np

        sums = np.concatenate(([0], np.cumsum(self.mask, dtype=np.int64)))
        counts: NDArray[np.int64] = sums[self.starts[1:]] - sums[self.starts[:-1]]
        # Nothing predicts the first token of a sequence.
        return counts - self.mask[self.starts[:-1]]


def open_prepared(folder: str | os.PathLike[str]) -> Prepared:
    """Read prepared data. Large data is mapped into memory."""
    import numpy as np

    folder = Path(folder)
    index = np.load(folder / "index.npz")
    size = int(index["starts"][-1])

    def mapped(name: str, dtype: Any) -> Any:
        if size < _MAPPED:
            return np.fromfile(folder / name, dtype)
        return np.memmap(folder / name, dtype, mode="r", shape=(size,))

    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Prepared(
        mapped("tokens.bin", np.int32),
        mapped("mask.bin", np.bool_),
        index["starts"],
        index["train"],
        index["evaluation"],
        int(index["sequences_per_row"]),
        summary,
    )


def prepare(config: FinetuneConfig, encoder: Encoder, folder: Path, *, reuse: bool = False) -> Prepared:
    """Encode all rows of the configuration, and store them in a folder.

    Args:
        config: The configuration.
        encoder: Encodes rows.
        folder: The folder to write.
        reuse: Whether to reuse data that an earlier run with the same configuration has prepared.

    Raises:
        ValueError: If no row can be trained on. The error lists the reasons.
    """
    key = _key(config, encoder)
    if reuse and (folder / "summary.json").is_file():
        prepared = open_prepared(folder)
        if prepared.summary["key"] == key:
            return prepared
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    summary = {"key": key, **_Writer(config, encoder, temporary).write()}
    (temporary / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    temporary.rename(folder)
    return open_prepared(folder)


class _Writer:
    """Writes the files of one folder."""

    def __init__(self, config: FinetuneConfig, encoder: Encoder, folder: Path) -> None:
        self._config = config
        self._encoder = encoder
        self._folder = folder
        self._reasons: Counter[str] = Counter()
        self._starts = [0]
        self._read = 0

    def write(self) -> dict[str, Any]:
        import numpy as np

        config = self._config
        per_row = 2 if config.rl == "dpo" else 1
        with (
            (self._folder / "tokens.bin").open("wb") as self._tokens,
            (self._folder / "mask.bin").open("wb") as self._mask,
            (self._folder / DEAD_LETTERS).open("w", encoding="utf-8") as self._dead,
        ):
            for source in config.datasets:
                self._add(source)
            rows = (len(self._starts) - 1) // per_row
            for source in config.test_datasets:
                self._add(source)
        evaluated = np.arange(rows, (len(self._starts) - 1) // per_row)
        train = np.arange(rows)
        if config.val_set_size:
            size = config.val_set_size
            number = max(1, round(size * rows)) if size < 1 else int(size)
            order = np.random.default_rng(config.seed).permutation(rows)
            evaluated, train = np.sort(order[:number]), np.sort(order[number:])
        if not len(train):
            raise ValueError(self._nothing_left(rows))
        if (config.test_datasets or config.val_set_size) and not len(evaluated):
            raise ValueError(f"no row is left to evaluate on: {self._reason_counts()}")
        np.savez(
            self._folder / "index.npz",
            starts=np.array(self._starts, np.int64),
            train=train,
            evaluation=evaluated,
            sequences_per_row=per_row,
        )
        return {
            "rows_read": self._read,
            "rows": rows,
            "train_rows": len(train),
            "eval_rows": len(evaluated),
            "tokens": self._starts[-1],
            "dead_letters": dict(self._reasons),
        }

    def _nothing_left(self, rows: int) -> str:
        if rows:
            return f"val_set_size takes all {rows} rows, so none is left to train on."
        if not self._read:
            return "the datasets have no rows."
        return f"none of {self._read} rows can be trained on: {self._reason_counts()}"

    def _reason_counts(self) -> str:
        return (
            "; ".join(f"{reason} ({number})" for reason, number in self._reasons.most_common()) or "no rows"
        )

    def _add(self, source: DatasetConfig) -> None:
        import numpy as np

        for row in encoded_rows(source, self._encoder, self._config.sequence_len):
            self._read += 1
            if row["reason"]:
                self._reasons[row["reason"]] += 1
                letter = {"dataset": str(source.path), "reason": row["reason"], "detail": row["detail"]}
                self._dead.write(json.dumps({**letter, "row": row["shown"]}, ensure_ascii=False) + "\n")
                continue
            ids, mask = np.asarray(row["ids"], np.int32), np.asarray(row["mask"], np.bool_)
            self._tokens.write(ids.tobytes())
            self._mask.write(mask.tobytes())
            for length in row["lengths"]:
                self._starts.append(self._starts[-1] + int(length))


def encoded_rows(source: DatasetConfig, encoder: Encoder, sequence_len: int) -> Iterator[dict[str, Any]]:
    """Yield `ids`, `mask` and `lengths` of the sequences of each row, or the `reason` why the row is a dead letter."""
    import functools

    dataset = read(source)
    encode = functools.partial(
        _encode_batch, source=_without_data(source), encoder=encoder, max_tokens=sequence_len
    )
    return iter(dataset.map_batches(encode, batch_size=_BATCH, batch_format="pyarrow").iter_rows())


def read(source: DatasetConfig) -> Any:
    """Return the dataset of a source, with its split."""
    import skate.data

    if not isinstance(source.path, str):
        dataset: Any = source.path
    else:
        suffix = _suffix(source.path)
        if suffix in (".jsonl", ".ndjson"):
            # Read as lines, so that a line that is not JSON becomes a dead letter instead of failing the run.
            dataset = skate.data.read_text(source.path).rename_columns({"text": "__line__"})
        elif suffix == ".json":
            dataset = skate.data.read_json(source.path)
        elif suffix == ".parquet":
            dataset = skate.data.read_parquet(source.path)
        elif suffix == ".csv":
            dataset = skate.data.read_csv(source.path)
        elif suffix in (".txt", ".text", ".md"):
            dataset = skate.data.read_text(source.path)
        else:
            raise ValueError(
                f"datasets: {source.path!r} is not a supported file: it must end in .jsonl, .json, .parquet, .csv or "
                ".txt, or be a folder or a glob of such files."
            )
    return _split(dataset, source.split)


def _suffix(path: str) -> str:
    """Return the suffix of the file at a path, or of the first file of a folder or a glob."""
    import glob

    files = [path]
    if os.path.isdir(path):
        files = sorted(each for each in glob.glob(f"{path}/**", recursive=True) if os.path.isfile(each))
    elif glob.has_magic(path):
        files = sorted(glob.glob(path))
    if "://" not in path and (not files or not os.path.exists(files[0])):
        raise ValueError(f"datasets: there is no file {path!r}.")
    return Path(files[0]).suffix.lower()


def _split(dataset: Any, split: str) -> Any:
    found = _SPLIT.match(split)
    if found is None:
        raise ValueError(
            f"datasets: split is {split!r}; it must be a name such as `train`, or `train[10%:20%]`."
        )
    if found["start"] is None and found["end"] is None:
        return dataset
    rows = int(dataset.count())

    def at(text: str | None, default: int) -> int:
        if text is None:
            return default
        return min(rows, rows * int(text[:-1]) // 100 if text.endswith("%") else int(text))

    start, end = at(found["start"], 0), at(found["end"], rows)
    if start >= end:
        raise ValueError(f"datasets: split {split!r} selects none of {rows} rows.")
    parts = dataset.split_at_indices([start, end] if start else [end])
    return parts[1 if start else 0]


def _without_data(source: DatasetConfig) -> DatasetConfig:
    """Return a source without its data, so that it can be sent to a worker."""
    return DatasetConfig(**{**vars(source), "path": str(source.path)})


def _encode_batch(batch: Any, *, source: DatasetConfig, encoder: Encoder, max_tokens: int) -> Any:
    """Encode the rows of an Arrow table."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {
        name: [] for name in ("ids", "mask", "lengths", "reason", "detail", "shown")
    }
    for row in batch.to_pylist():
        made: dict[str, Any] = {"ids": [], "mask": [], "lengths": [], "reason": "", "detail": "", "shown": ""}
        try:
            encoded = encoder.encode(parse(_parse_line(row), source))
            longest = max(len(each.ids) for each in encoded)
            if longest > max_tokens:
                raise RowError(TOO_LONG, f"{longest} tokens, but sequence_len is {max_tokens}")
            if not all(each.trained for each in encoded):
                raise RowError("no token of the row is trained")
            made["ids"] = [id_ for each in encoded for id_ in each.ids]
            made["mask"] = [trained for each in encoded for trained in each.mask]
            made["lengths"] = [len(each.ids) for each in encoded]
        except RowError as error:
            shown = row.get("__line__") or json.dumps(row, default=str, ensure_ascii=False)
            made.update(reason=error.reason, detail=error.detail, shown=shown[:_SHOWN])
        for name, value in made.items():
            columns[name].append(value)
    text, numbers = pa.string(), pa.list_(pa.int32())
    types = {
        "ids": numbers,
        "mask": pa.list_(pa.bool_()),
        "lengths": numbers,
        "reason": text,
        "detail": text,
        "shown": text,
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def _parse_line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row, parsed if it is a line of JSON."""
    if "__line__" not in row:
        return row
    try:
        found = json.loads(row["__line__"])
    except (json.JSONDecodeError, RecursionError) as error:
        raise RowError("the line is not JSON", str(error)[:80]) from error
    if not isinstance(found, dict):
        raise RowError("the line is not a JSON object")
    return found


def _key(config: FinetuneConfig, encoder: Encoder) -> str:
    """Return a hash of everything that determines the prepared data, except the contents of files."""
    values = config.as_dict()
    names = ("datasets", "test_datasets", "val_set_size", "sequence_len", "train_on_inputs", "rl", "seed")
    parts: dict[str, Any] = {name: values[name] for name in names}
    parts["tokenizer"] = [len(encoder.tokenizer), encoder.tokenizer.chat_template, config.base_model]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
