"""Plans barrier operators: chooses their exchange and the work of its tasks.

The work is a `functools.partial` of functions of this module, which a worker finds by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec import exchanges, transforms
from skate.data._exec.barrier_operators import Barrier, Exchange
from skate.data._exec.exchanges import PartitionSizes
from skate.data._exec.items import Item
from skate.data._exec.operators import Operator
from skate.data._exec.work import PartitionWork
from skate.data._plan import estimates, nodes
from skate.data._seeds import RandomSeedConfig
from skate.data.context import DataContext

if TYPE_CHECKING:
    from skate.data._plan.planner import Planner

_SMALL_SIDE = 8 * 1024 * 1024  # maximum bytes of a join side that every task hashes
_SAMPLED_ROWS = 200  # per block: enough for even partitions, and cheap compared with the sort


def plan_barrier(node: nodes.Node, inputs: list[Operator], planner: Planner) -> Operator:
    """Return the barrier operator of a node."""
    context = planner.context
    sizes = PartitionSizes(planner.part_bytes)
    size = context.target_max_block_size
    exchange: Callable[..., Exchange]
    match node:
        case nodes.Sort():
            exchange = _sort_exchange(node, sizes, PartitionWork(node.title, partial(_sort, _by(node)), size))
        case nodes.Shuffle():
            seed = _resolve_seed(node.seed, planner)
            cut = PartitionWork(node.title, partial(_random_parts, seed))
            exchange = exchanges.random_exchange(
                cut, PartitionWork(node.title, partial(_permute, seed), size), sizes
            )
        case nodes.ShuffleBlocks():
            exchange = _shuffle_blocks_exchange(_resolve_seed(node.seed, planner))
        case nodes.Repartition():
            exchange = _repartition_exchange(node, sizes, planner)
        case nodes.Aggregate():
            exchange = _aggregate_exchange(node, sizes, size, context)
        case nodes.MapGroups():
            exchange = _map_groups_exchange(node, size, planner)
        case nodes.Join():
            exchange = _join_exchange(node, sizes, size)
        case _:
            raise NotImplementedError(f"{node.title} has no operator")
    return Barrier(node.title, inputs, exchange, PartitionWork(node.title, exchanges.concatenate))


# ------------------------------------------------------------ sorting

By = tuple[tuple[str, ...], tuple[bool, ...]]


def _by(node: nodes.Sort) -> By:
    return node.keys, node.descending


def _sort_exchange(
    node: nodes.Sort, sizes: PartitionSizes, finish: PartitionWork
) -> Callable[[list[Item]], Exchange]:
    if node.boundaries is None:
        return _range_exchange(_by(node), sizes, finish, node.title)
    cut = PartitionWork(f"{node.title}Parts", partial(_split_at_boundaries, _by(node), node.boundaries))

    def exchange(items: list[Item]) -> Exchange:
        pieces = yield [(cut, None, [item]) for item in items if item.rows]
        return [(finish, None, list(part)) for part in zip(*pieces, strict=True)]

    return exchange


def _split_at_boundaries(
    by: By, bounds: tuple[Any, ...], blocks: Sequence[pa.Table], _: Any
) -> Iterator[pa.Table]:
    """Partition blocks at the boundaries of the user."""
    from skate.data._kernels import sorting

    ordered = pa.table({by[0][0]: sorted(bounds, reverse=by[1][0])})
    for block in blocks:
        yield from sorting.range_partition(block, by[0][:1], by[1][:1], ordered)


def _range_exchange(
    by: By, sizes: PartitionSizes, finish: PartitionWork, title: str
) -> Callable[[list[Item]], Exchange]:
    return exchanges.range_exchange(
        PartitionWork(f"{title}Sample", partial(_sample, by)),
        PartitionWork(f"{title}Bounds", partial(_bounds, by)),
        PartitionWork(f"{title}Parts", partial(_range_parts, by)),
        finish,
        sizes,
    )


def _sample(by: By, blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
    import numpy as np

    from skate.data._kernels import taking

    for block in blocks:
        rows = min(block.num_rows, _SAMPLED_ROWS)
        places = np.random.default_rng(0).choice(block.num_rows, rows, replace=False)
        yield taking.take(block.select(list(by[0])), places)


def _bounds(by: By, blocks: Sequence[pa.Table], parts: int) -> Iterator[pa.Table]:
    from skate.data._kernels import sorting

    yield sorting.sample_bounds(blocks, by[0], by[1], parts)


def _range_parts(by: By, blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
    from skate.data._kernels import sorting

    bounds, block = blocks
    yield from sorting.range_partition(block, by[0], by[1], bounds)


def _sort(by: By, blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
    from skate.data._kernels import sorting

    if blocks:
        yield sorting.sort(tables.concat(list(blocks)), by[0], by[1])


# ------------------------------------------------------------ shuffling, repartitioning, zipping


def _resolve_seed(config: RandomSeedConfig, planner: Planner) -> int:
    """Return the seed of this execution."""
    if config.seed is None:
        return planner.draw()
    return config.seed + (planner.runs_before << 32 if config.reseed_after_execution else 0)


def _random_parts(seed: int, blocks: Sequence[pa.Table], argument: tuple[int, int]) -> Iterator[pa.Table]:
    from skate.data._kernels import partitioning

    parts, place = argument
    for block in blocks:
        yield from partitioning.random_partition(block, parts, [seed, place])


def _permute(seed: int, blocks: Sequence[pa.Table], part: int) -> Iterator[pa.Table]:
    from skate.data._kernels import partitioning

    if blocks:
        yield partitioning.permute(tables.concat(list(blocks)), [seed, part])


def _shuffle_blocks_exchange(seed: int) -> Callable[[list[Item]], Exchange]:
    def exchange(items: list[Item]) -> Exchange:
        shuffled = list(items)
        random.Random(seed).shuffle(shuffled)
        return exchanges.single_round(list(shuffled))

    return exchange


def _repartition_exchange(
    node: nodes.Repartition, sizes: PartitionSizes, planner: Planner
) -> Callable[[list[Item]], Exchange]:
    join = PartitionWork(node.title, exchanges.concatenate)
    if node.keys:
        finish = (
            PartitionWork(node.title, partial(_sort, (node.keys, (False,) * len(node.keys))))
            if node.sort
            else join
        )
        cut = PartitionWork(node.title, partial(_hash_parts, node.keys))
        return exchanges.hash_exchange([cut], finish, sizes, exactly=node.blocks)
    if node.shuffle:
        seed = planner.draw()
        cut = PartitionWork(node.title, partial(_random_parts, seed))
        shuffle = exchanges.random_exchange(cut, PartitionWork(node.title, partial(_permute, seed)), sizes)
        return _chain(shuffle, exchanges.position_exchange(node.blocks, join))
    return exchanges.position_exchange(node.blocks, join)


def _chain(
    first: Callable[[list[Item]], Exchange], second: Callable[[list[Item]], Exchange]
) -> Callable[[list[Item]], Exchange]:
    """Return the exchange that runs one exchange after another."""

    def exchange(items: list[Item]) -> Exchange:
        tasks = yield from first(items)
        made = yield tasks
        return (yield from second([item for each in made for item in each]))

    return exchange


def zip_work() -> PartitionWork:
    """Return the work that combines the columns of blocks."""
    return PartitionWork("Zip", _zip_columns)


def _zip_columns(blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
    columns: dict[str, Any] = {}
    for block in blocks:
        for name, column in zip(block.column_names, block.columns, strict=True):
            unique, number = name, 1
            while unique in columns:
                unique, number = f"{name}_{number}", number + 1
            columns[unique] = column
    yield pa.table(columns)


# ------------------------------------------------------------ groups and joins


def _hash_parts(keys: tuple[str, ...], blocks: Sequence[pa.Table], parts: int) -> Iterator[pa.Table]:
    from skate.data._kernels import partitioning

    for block in blocks:
        yield from partitioning.hash_partition(block, keys, parts)


def partial_aggregate(
    keys: tuple[str, ...], aggregates: tuple[Any, ...], block: pa.Table, index: int
) -> pa.Table:
    """Return the state of each group of a block, before the states of all blocks are combined."""
    from skate.data._kernels import grouping

    return grouping.partial_aggregate(block, list(keys), list(aggregates))


def _aggregate_exchange(
    node: nodes.Aggregate, sizes: PartitionSizes, block_size: int | None, context: DataContext
) -> Callable[..., Exchange]:
    finish = PartitionWork(
        node.title, partial(_combine, node.keys, node.aggregates), block_size, context=context
    )
    if not node.keys:
        return exchanges.single_task(finish)
    return _range_exchange((node.keys, (False,) * len(node.keys)), sizes, finish, node.title)


def _combine(
    keys: tuple[str, ...], aggregates: tuple[Any, ...], blocks: Sequence[pa.Table], _: Any
) -> Iterator[pa.Table]:
    from skate.data._kernels import grouping

    states = grouping.combine(tables.concat(list(blocks)), list(keys), list(aggregates))
    yield grouping.finalize(states, list(keys), list(aggregates))


def plan_grouping(node: nodes.MapGroups, input: Operator, planner: Planner) -> Operator:
    """Return the operator that creates blocks of whole groups, for a function with its own tasks or actors."""
    work = PartitionWork("GroupBy", exchanges.concatenate)
    return Barrier(work.name, [input], _grouping_exchange(node, work, planner), work)


def _map_groups_exchange(
    node: nodes.MapGroups, block_size: int | None, planner: Planner
) -> Callable[..., Exchange]:
    finish = PartitionWork(
        node.title, exchanges.concatenate, block_size, (each_group(node),), planner.context
    )
    return _grouping_exchange(node, finish, planner)


def _grouping_exchange(
    node: nodes.MapGroups, finish: PartitionWork, planner: Planner
) -> Callable[..., Exchange]:
    if not node.keys:
        return exchanges.single_task(finish)
    # A user function should run in parallel on small data too.
    actors = 0 if node.compute.actors is None else node.compute.actors[0]
    sizes = PartitionSizes(planner.part_bytes, node.parts or max(1, int(planner.cpus), actors))
    return _range_exchange((node.keys, (False,) * len(node.keys)), sizes, finish, "GroupBy")


def each_group(node: nodes.MapGroups) -> transforms.EachGroup:
    """Return the transform that calls the function with each group."""
    return transforms.EachGroup(node.keys, node.call)


def _join_exchange(
    node: nodes.Join, sizes: PartitionSizes, block_size: int | None
) -> Callable[..., Exchange]:
    cuts = [
        PartitionWork(f"{node.title}Parts", partial(_hash_parts, keys))
        for keys in (node.left_keys, node.right_keys)
    ]
    return exchanges.hash_exchange(cuts, join_work(node, block_size), sizes)


def can_stream_join(node: nodes.Join) -> bool:
    """Return whether the left side can be streamed, because the right side is small enough for every task."""
    if node.how not in ("inner", "left_outer", "left_semi", "left_anti"):
        return False  # these need the unmatched rows of the right side
    size = estimates.source_bytes(node.right)
    return size is not None and size <= _SMALL_SIDE


def join_work(node: nodes.Join, block_size: int | None) -> PartitionWork:
    """Return the work that joins blocks; its argument is the number of blocks of each side."""
    function = partial(_join, node.left_keys, node.right_keys, node.how, node.suffixes)
    return PartitionWork(node.title, function, block_size)


def _join(
    left_keys: tuple[str, ...],
    right_keys: tuple[str, ...],
    how: str,
    suffixes: tuple[str | None, str | None],
    blocks: Sequence[pa.Table],
    counts: tuple[int, int],
) -> Iterator[pa.Table]:
    from skate.data._kernels import joining

    left = tables.concat(list(blocks[: counts[0]]))
    right = tables.concat(list(blocks[counts[0] :]))
    kind: Any = how  # checked when the plan was made
    yield joining.join(left, right, kind, list(left_keys), list(right_keys), *suffixes)
