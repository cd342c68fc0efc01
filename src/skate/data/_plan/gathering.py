"""How operations that need all rows are done: which exchange they use, and what its tasks do.

What tasks do is given as `functools.partial` of functions of this module, so that a worker finds them by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec import exchanges, transforms
from skate.data._exec.exchanges import Sizes, Whole
from skate.data._exec.items import Item
from skate.data._exec.operators import Exchange, Gather, Operator
from skate.data._plan import estimates, nodes
from skate.data._seeds import RandomSeedConfig
from skate.data.context import DataContext

if TYPE_CHECKING:
    from skate.data._plan.planner import Planner

_SMALL_SIDE = 8 * 1024 * 1024  # bytes of a side of a join that every task may get: it hashes them each time
_SAMPLED_ROWS = 200  # of each block: enough for even parts, and nothing beside the sort itself


def operator(node: nodes.Node, inputs: list[Operator], planner: Planner) -> Operator:
    """Return the operator for a node that needs all rows of its inputs."""
    context = planner.context
    sizes = Sizes(planner.part_bytes)
    size = context.target_max_block_size
    exchange: Callable[..., Exchange]
    match node:
        case nodes.Sort():
            exchange = _sorting(node, sizes, Whole(node.title, partial(_sort, _by(node)), size))
        case nodes.Shuffle():
            seed = _drawn(node.seed, planner)
            cut = Whole(node.title, partial(_random_parts, seed))
            exchange = exchanges.at_random(cut, Whole(node.title, partial(_permute, seed), size), sizes)
        case nodes.ShuffleBlocks():
            exchange = _block_shuffle(_drawn(node.seed, planner))
        case nodes.Repartition():
            exchange = _repartitioning(node, sizes, planner)
        case nodes.Aggregate():
            exchange = _aggregating(node, sizes, size, context)
        case nodes.MapGroups():
            exchange = _mapping_groups(node, size, planner)
        case nodes.Join():
            exchange = _joining(node, sizes, size)
        case _:
            raise NotImplementedError(f"no operator for {node.title}")
    return Gather(node.title, inputs, exchange, Whole(node.title, exchanges.concatenated))


# ------------------------------------------------------------ sorting

By = tuple[tuple[str, ...], tuple[bool, ...]]


def _by(node: nodes.Sort) -> By:
    return node.keys, node.descending


def _sorting(node: nodes.Sort, sizes: Sizes, finish: Whole) -> Callable[[list[Item]], Exchange]:
    if node.boundaries is None:
        return _ranges(_by(node), sizes, finish, node.title)
    cut = Whole(f"{node.title}Parts", partial(_given_ranges, _by(node), node.boundaries))

    def exchange(items: list[Item]) -> Exchange:
        pieces = yield [(cut, None, [item]) for item in items if item.rows]
        return [(finish, None, list(part)) for part in zip(*pieces, strict=True)]

    return exchange


def _given_ranges(by: By, bounds: tuple[Any, ...], blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
    """Cut blocks where the user wants the borders to be."""
    from skate.data._kernels import sorting

    ordered = pa.table({by[0][0]: sorted(bounds, reverse=by[1][0])})
    for block in blocks:
        yield from sorting.range_partition(block, by[0][:1], by[1][:1], ordered)


def _ranges(by: By, sizes: Sizes, finish: Whole, title: str) -> Callable[[list[Item]], Exchange]:
    return exchanges.by_range(
        Whole(f"{title}Sample", partial(_sample, by)),
        Whole(f"{title}Bounds", partial(_bounds, by)),
        Whole(f"{title}Parts", partial(_range_parts, by)),
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


# ------------------------------------------------------------ shuffling, cutting, joining blocks


def _drawn(config: RandomSeedConfig, planner: Planner) -> int:
    """Return the seed of this run."""
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


def _block_shuffle(seed: int) -> Callable[[list[Item]], Exchange]:
    def exchange(items: list[Item]) -> Exchange:
        shuffled = list(items)
        random.Random(seed).shuffle(shuffled)
        return exchanges.at_once(list(shuffled))

    return exchange


def _repartitioning(
    node: nodes.Repartition, sizes: Sizes, planner: Planner
) -> Callable[[list[Item]], Exchange]:
    join = Whole(node.title, exchanges.concatenated)
    if node.keys:
        finish = (
            Whole(node.title, partial(_sort, (node.keys, (False,) * len(node.keys)))) if node.sort else join
        )
        cut = Whole(node.title, partial(_hash_parts, node.keys))
        return exchanges.by_hash([cut], finish, sizes, exactly=node.blocks)
    if node.shuffle:
        seed = planner.draw()
        cut = Whole(node.title, partial(_random_parts, seed))
        shuffle = exchanges.at_random(cut, Whole(node.title, partial(_permute, seed)), sizes)
        return _then(shuffle, exchanges.by_position(node.blocks, join))
    return exchanges.by_position(node.blocks, join)


def _then(
    first: Callable[[list[Item]], Exchange], second: Callable[[list[Item]], Exchange]
) -> Callable[[list[Item]], Exchange]:
    """Return the exchange that does one and then the other."""

    def exchange(items: list[Item]) -> Exchange:
        tasks = yield from first(items)
        made = yield tasks
        return (yield from second([item for each in made for item in each]))

    return exchange


def side_by_side() -> Whole:
    """Return the work that lays the columns of blocks side by side."""
    return Whole("Zip", _zipped)


def _zipped(blocks: Sequence[pa.Table], _: Any) -> Iterator[pa.Table]:
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
    """Return the state of each group in a block: what is done with each block before groups meet."""
    from skate.data._kernels import grouping

    return grouping.partial_aggregate(block, list(keys), list(aggregates))


def _aggregating(
    node: nodes.Aggregate, sizes: Sizes, block_size: int | None, context: DataContext
) -> Callable[..., Exchange]:
    finish = Whole(node.title, partial(_combined, node.keys, node.aggregates), block_size, context=context)
    if not node.keys:
        return exchanges.one_task(finish)
    return _ranges((node.keys, (False,) * len(node.keys)), sizes, finish, node.title)


def _combined(
    keys: tuple[str, ...], aggregates: tuple[Any, ...], blocks: Sequence[pa.Table], _: Any
) -> Iterator[pa.Table]:
    from skate.data._kernels import grouping

    states = grouping.combine(tables.concat(list(blocks)), list(keys), list(aggregates))
    yield grouping.finalize(states, list(keys), list(aggregates))


def groups_together(node: nodes.MapGroups, input: Operator, planner: Planner) -> Operator:
    """Return the operator that makes blocks of whole groups, for a function that runs where the user says."""
    work = Whole("GroupBy", exchanges.concatenated)
    return Gather(work.name, [input], _groups_together(node, work, planner), work)


def _mapping_groups(
    node: nodes.MapGroups, block_size: int | None, planner: Planner
) -> Callable[..., Exchange]:
    finish = Whole(node.title, exchanges.concatenated, block_size, (each_group(node),), planner.context)
    return _groups_together(node, finish, planner)


def _groups_together(node: nodes.MapGroups, finish: Whole, planner: Planner) -> Callable[..., Exchange]:
    if not node.keys:
        return exchanges.one_task(finish)
    # The function is the user's, and so worth more than one task however small the data.
    actors = 0 if node.compute.actors is None else node.compute.actors[0]
    sizes = Sizes(planner.part_bytes, node.parts or max(1, int(planner.cpus), actors))
    return _ranges((node.keys, (False,) * len(node.keys)), sizes, finish, "GroupBy")


def each_group(node: nodes.MapGroups) -> transforms.EachGroup:
    """Return the transform that calls the function with each group."""
    call = transforms.EachBatch(node.udf, None, node.format, node.copies, failures=node.failures)
    return transforms.EachGroup(node.keys, call)


def _joining(node: nodes.Join, sizes: Sizes, block_size: int | None) -> Callable[..., Exchange]:
    cuts = [
        Whole(f"{node.title}Parts", partial(_hash_parts, keys)) for keys in (node.left_keys, node.right_keys)
    ]
    return exchanges.by_hash(cuts, joined(node, block_size), sizes)


def can_look_up(node: nodes.Join) -> bool:
    """Tell whether each row of the left side can be joined by itself, with a right side that every task gets."""
    if node.how not in ("inner", "left_outer", "left_semi", "left_anti"):
        return False  # somebody has to know which rows of the right side no row of the left has met
    size = estimates.source_bytes(node.right)
    return size is not None and size <= _SMALL_SIDE


def joined(node: nodes.Join, block_size: int | None) -> Whole:
    """Return the work that joins blocks; its argument says how many blocks are of each side."""
    function = partial(_joined, node.left_keys, node.right_keys, node.how, node.suffixes)
    return Whole(node.title, function, block_size)


def _joined(
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
    kind: Any = how  # looked at when the plan was made
    yield joining.join(left, right, kind, list(left_keys), list(right_keys), *suffixes)
