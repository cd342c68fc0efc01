"""From what a dataset is to how it is done: operations that can share a task become one step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from skate.data._exec import exchanges, operators, streaming_operators, transforms
from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.columns import Columns
from skate.data._exec.operators import Operator
from skate.data._exec.transforms import Transform
from skate.data._exec.work import Step
from skate.data._exec.writing import WriteBlocks
from skate.data._expressions.context import EvaluationContext
from skate.data._mixing import MixStoppingCondition
from skate.data._plan import barriers, nodes
from skate.data._plan.nodes import Compute
from skate.data._plan.schemas import check_union
from skate.data.context import DataContext
from skate.data.datasource.file_based_datasource import FileBasedDatasource


class Stage:
    """Transforms that have been found to share a task so far, and what they work on."""

    def __init__(
        self,
        planner: Planner,
        *,
        input: Operator | None = None,
        source: nodes.Read | None = None,
        compute: Compute | None = None,
    ) -> None:
        self._planner = planner
        self._input = input
        self._source = source
        self._compute = compute
        self._transforms: list[Transform] = []
        self._min_rows = 0
        self._cut: list[Any] | None = None

    def takes(self, compute: Compute) -> bool:
        """Tell whether a further transform that runs like this fits into the same task."""
        if self._source is not None and not self._transforms:
            # A limit of tasks is for the function that has it, and not for the reading: as in Ray.
            return compute == self._source.compute or (
                self._source.compute.runs_anywhere() and compute.actors is None and compute.most is None
            )
        return not self._transforms or compute == self._compute

    def reads_less_than(self, rows: int) -> bool:
        """Tell whether a part of the source has fewer rows than a task has to have: then parts have to be joined."""
        if self._source is None or not rows:
            return False
        known = [part.metadata.num_rows for part in self._parts()]
        return len(known) > 1 and any(each is not None and each < rows for each in known)

    def _parts(self) -> list[Any]:
        if self._cut is None:
            assert self._source is not None
            self._cut = self._planner.parts_of(self._source)
        return self._cut

    def add(self, transform: Transform, compute: Compute, min_rows: int = 0) -> None:
        """Add what is done next."""
        joins = bool(self._transforms) and isinstance(transform, transforms.EachRow)
        last = self._transforms[-1] if self._transforms else None
        if joins and isinstance(last, transforms.EachRow) and isinstance(transform, transforms.EachRow):
            self._transforms[-1] = transforms.EachRow(last.calls + transform.calls)
        else:
            self._transforms.append(transform)
        self._compute = compute
        self._min_rows = max(self._min_rows, min_rows)

    def done(self) -> Operator:
        """Return the operator for all of it."""
        if self._input is not None and not self._transforms:
            return self._input
        context = self._planner.context
        compute = self._compute or (self._source.compute if self._source is not None else Compute())
        at_once = self._source is not None and getattr(self._source.source, "reads_at_once", False)
        step = Step(
            tuple(self._transforms),
            None if at_once else context.target_max_block_size,
            None if self._source is None else self._source.title,
            context,
        )
        operator: operators.Tasks
        if self._source is not None:
            operator = operators.Read(step.name, step, self._parts(), in_order=self._in_order)
        else:
            assert self._input is not None
            operator = operators.Map(
                step.name,
                step,
                self._input,
                in_order=self._in_order,
                min_rows=self._min_rows,
                pool=self._pool(step, compute, context),
            )
        _apply(compute, operator)
        return operator

    @property
    def _in_order(self) -> bool:
        # What a write that can be gone on with has written is committed as soon as it is.
        last = self._transforms[-1] if self._transforms else None
        return self._planner.in_order and not (isinstance(last, WriteBlocks) and last.commits_parts)

    def _pool(self, step: Step, compute: Compute, context: DataContext) -> ActorPool | None:
        if compute.actors is None:
            return None
        smallest, largest, initial = compute.actors
        each = context.max_tasks_in_flight_per_actor or compute.tasks_per_actor
        options = {"max_restarts": -1, "max_task_retries": -1, **compute.options}
        return ActorPool(step, smallest, largest, initial, each, options, compute.options_fn)


def _apply(compute: Compute, operator: operators.Tasks) -> None:
    operator.max_running = compute.most
    if compute.actors is None:
        operator.options = dict(compute.options)
        operator.options_fn = compute.options_fn
        operator.cpus = float(
            compute.options.get("num_cpus") or (0 if compute.options.get("num_gpus") else 1)
        )


# How many times a part of an exchange has to fit into each processor's share of the object store.
_PARTS_IN_STORE = 4


class Planner:
    """Makes operators out of nodes.

    Args:
        context: The settings of the dataset.
        cpus: How many processors there are to use.
        runs_before: How often the dataset has been run.
        store: Bytes of the object store that tasks share; None where they share the memory of this process.
        seed: Decides all that is random and has no seed of its own, together with `runs_before`; None is chance.
    """

    def __init__(
        self,
        context: DataContext,
        cpus: float,
        runs_before: int = 0,
        store: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.context = context
        self.cpus = cpus
        self.runs_before = runs_before
        self._dice = random.Random(None if seed is None else f"{seed}/{runs_before}")
        self.in_order = context.execution_options.preserve_order
        self.part_bytes = context.partition_bytes
        if store is not None:
            # Tasks that run side by side have their parts mapped, all at once, and make as much again.
            self.part_bytes = max(1, min(self.part_bytes, int(store / max(1.0, cpus) / _PARTS_IN_STORE)))

    def plan(self, node: nodes.Node) -> Operator:
        """Return the operator that makes the blocks of a node, with those below it."""
        return self._stage(node).done()

    def draw(self) -> int:
        """Return a seed for something random that has none: planning the same again gives the same."""
        return self._dice.getrandbits(63)

    def parts_of(self, read: nodes.Read) -> list[Any]:
        """Return the parts that a source is read in."""
        wanted = self.wanted_parts(read)
        if isinstance(read.source, FileBasedDatasource):
            settings = self.context.copy()
            settings._execution_idx = self.runs_before  # by which files are shuffled
            settings._chance = self.draw()  # the same, where the user gave no seed
            return list(read.source.get_read_tasks(wanted, data_context=settings))
        return list(read.source.get_read_tasks(wanted))

    def wanted_parts(self, read: nodes.Read) -> int:
        """Return into how many parts to cut a source, if it can be."""
        return read.blocks or self._parallelism(read.source.estimate_inmemory_data_size())

    def _parallelism(self, size: int | None) -> int:
        """Return into how many parts to cut a source of so many bytes."""
        context = self.context
        least = max(context.read_op_min_num_blocks or 0, context.min_parallelism or 0)
        twice = max(1, int(2 * self.cpus))
        if size is None:
            return max(least, twice)
        by_size = math.ceil(size / (context.target_max_block_size or 128 * 1024 * 1024))
        small = math.ceil(size / max(1, context.target_min_block_size))
        return max(1, least, by_size, min(twice, small))

    def _stage(self, node: nodes.Node) -> Stage:
        if isinstance(node, nodes.Read):
            return Stage(self, source=node)
        if isinstance(node, nodes.Values):
            return Stage(self, input=operators.Values(node.title, node.items))
        make = _TRANSFORMS.get(type(node))
        if make is not None:
            stage = self._stage(node.inputs[0])
            compute: Compute = node.compute  # type: ignore[attr-defined]
            min_rows = _min_rows(node)
            if not stage.takes(compute) or stage.reads_less_than(min_rows):
                stage = Stage(self, input=stage.done())
            stage.add(make(node, self), compute, min_rows)
            return stage
        return Stage(self, input=self._operator(node))

    def _operator(self, node: nodes.Node) -> Operator:
        if isinstance(node, nodes.Aggregate):
            stage = self._stage(node.input)
            if not stage.takes(Compute()):
                stage = Stage(self, input=stage.done())
            stage.add(
                transforms.EachBlock(
                    "PartialAggregate", partial(barriers.partial_aggregate, node.keys, node.aggregates)
                ),
                Compute(),
            )
            return barriers.operator(node, [stage.done()], self)
        inputs = [self.plan(each) for each in node.inputs]
        match node:
            case nodes.MapGroups() if not node.compute.runs_anywhere():
                stage = Stage(self, input=barriers.groups_together(node, inputs[0], self))
                stage.add(barriers.each_group(node), node.compute)
                return stage.done()
            case nodes.Limit():
                return streaming_operators.Limit(node.title, inputs[0], node.rows)
            case nodes.Resize():
                work = exchanges.PartitionWork(node.title, exchanges.concatenate)
                return streaming_operators.Resize(node.title, work, inputs[0], node.rows, strict=node.strict)
            case nodes.Union():
                check_union(node)
                return streaming_operators.Union(node.title, inputs, in_order=self.in_order)
            case nodes.Mix():
                longest = node.stop_when == MixStoppingCondition.STOP_ON_LONGEST_DROP
                return streaming_operators.Mix(node.title, inputs, node.weights, to_the_longest=longest)
            case nodes.Zip():
                return streaming_operators.Zip(node.title, barriers.side_by_side(), inputs)
            case nodes.Join() if barriers.can_look_up(node):
                work = barriers.joined(node, self.context.target_max_block_size)
                return streaming_operators.Lookup(
                    node.title, work, inputs[0], inputs[1], in_order=self.in_order
                )
            case _:
                return barriers.operator(node, inputs, self)


def _min_rows(node: nodes.Node) -> int:
    """Return how many rows a task should get, where a batch is larger than blocks may be."""
    if isinstance(node, nodes.Write):
        return getattr(node.sink, "min_rows_per_write", None) or 0
    return node.size or 0 if isinstance(node, nodes.EachBatch) else 0


def _each_row(node: nodes.EachRow, _: Planner) -> Transform:
    return transforms.EachRow(((node.kind, node.udf, node.failures),))


def _each_batch(node: nodes.EachBatch, _: Planner) -> Transform:
    return transforms.EachBatch(node.udf, node.size, node.format, node.copies, node.at_once, node.failures)


def _each_block(node: nodes.EachBlock, _: Planner) -> Transform:
    return transforms.EachBlock(node.label, node.function)


def _project(node: nodes.Project, planner: Planner) -> Transform:
    return Columns(node.title, node.expressions, context=_evaluation(planner))


def _filter(node: nodes.Filter, planner: Planner) -> Transform:
    return Columns(node.title, (node.expression,), keeps=True, context=_evaluation(planner))


def _evaluation(planner: Planner) -> EvaluationContext:
    return EvaluationContext(seed=planner.draw(), execution_index=planner.runs_before)


def _write(node: nodes.Write, _: Planner) -> Transform:
    return WriteBlocks(node.title, node.sink, node.job, node.in_units)


_TRANSFORMS: dict[type[nodes.Node], Callable[[Any, Planner], Transform]] = {
    nodes.EachRow: _each_row,
    nodes.EachBatch: _each_batch,
    nodes.EachBlock: _each_block,
    nodes.Project: _project,
    nodes.Filter: _filter,
    nodes.Write: _write,
}
