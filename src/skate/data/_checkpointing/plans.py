"""Plans of which ids can tell what is done, and the same plans without the rows that are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from skate.data._plan import nodes
from skate.data.checkpoint.interfaces import InvalidCheckpointingOperators
from skate.data.datasource import Datasink, SaveMode
from skate.data.datasource.file_datasink import _FileDatasink

# What makes rows out of single rows, or gives the rows that it gets: what becomes of a row does not depend on which
# others are there.
_ROW_BY_ROW = (
    *(nodes.Read, nodes.Values, nodes.EachRow, nodes.EachBatch, nodes.EachBlock, nodes.Project, nodes.Filter),
    *(
        nodes.Union,
        nodes.Sort,
        nodes.Shuffle,
        nodes.ShuffleBlocks,
        nodes.Repartition,
        nodes.Resize,
        nodes.Write,
    ),
)
_INSTEAD = "Write what goes into it with a checkpoint, read that, and write the rest without one"


def check(write: nodes.Write) -> None:
    """Make sure that rows can be left out of a plan without a change of the others.

    Raises:
        InvalidCheckpointingOperators: They cannot.
    """
    for node in write.walk():
        if not isinstance(node, _ROW_BY_ROW):
            raise InvalidCheckpointingOperators(
                f"what {node.title} makes depends on all rows that it gets, and a run that leaves out the rows of an "
                f"earlier one would make something else. {_INSTEAD}; or set checkpoint_config = None"
            )
        if isinstance(node, nodes.Filter) and not node.expression.is_deterministic():
            raise InvalidCheckpointingOperators(
                f"{node.title} keeps other rows in each run, so that those an earlier one has left out might be "
                f"written now. {_INSTEAD}; or choose by a value of the row, such as a hash of its id"
            )
    _check_sink(write.sink)


def _check_sink(sink: Datasink[Any]) -> None:
    name = type(sink).__name__
    if isinstance(sink, _FileDatasink):
        if sink.mode != SaveMode.APPEND:
            raise InvalidCheckpointingOperators(
                f"mode={str(sink.mode)!r} and checkpoint_config contradict each other: to go on is to add to what an "
                f"earlier run has written. Leave out mode, or pass mode='append'"
            )
    elif type(sink).on_write_complete is not Datasink.on_write_complete:
        raise InvalidCheckpointingOperators(
            f"{name} finishes in on_write_complete, when all parts are written: what a killed program has written is "
            f"lost, whatever ids it has noted. Write files (write_parquet, write_csv, …) with a checkpoint, and load "
            f"these; or set checkpoint_config = None"
        )


def without_done(node: nodes.Node, done: Callable[[pa.Table, int], pa.Table]) -> nodes.Node:
    """Return a plan in which every source gives what `done` leaves of its blocks."""
    if isinstance(node, nodes.Read):
        return nodes.EachBlock(node, "CheckpointFilter", done, compute=node.compute)
    if isinstance(node, nodes.Values):
        return nodes.EachBlock(node, "CheckpointFilter", done)
    return nodes.map_inputs(node, lambda each: without_done(each, done))
