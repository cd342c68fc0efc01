"""Plans the operators of a logical plan; operations that can share a task become one step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from skate.data._exec import exchanges, operators, streaming_operators, transforms
from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.operators import Operator
from skate.data._exec.transforms import ColumnExpressions, Transform
from skate.data._exec.work import PartitionWork, Step
from skate.data._exec.writing import WriteBlocks
from skate.data._expressions.context import EvaluationContext
from skate.data._plan import barriers, nodes
from skate.data._plan.nodes import Compute
from skate.data._plan.schemas import check_union
from skate.data.context import DataContext
from skate.data.datasource.file_based_datasource import FileBasedDatasource


class Stage:
    """A chain of transforms that share a task, and their input."""

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
        """Return whether a transform with this compute can join the task."""
        if self._source is not None and not self._transforms:
            # A limit of tasks applies to its function and not to the read, as in Ray.
            return compute == self._source.compute or (
                self._source.compute.runs_anywhere() and compute.actors is None and compute.max_tasks is None
            )
        return not self._transforms or compute == self._compute

    def reads_less_than(self, rows: int) -> bool:
        """Return whether a part of the source has fewer rows than a task needs, so that parts must be combined."""
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
        """Add a transform to the end of the chain."""
        joins = bool(self._transforms) and isinstance(transform, transforms.EachRow)
        last = self._transforms[-1] if self._transforms else None
        if joins and isinstance(last, transforms.EachRow) and isinstance(transform, transforms.EachRow):
            self._transforms[-1] = transforms.EachRow(last.calls + transform.calls)
        else:
            self._transforms.append(transform)
        self._compute = compute
        self._min_rows = max(self._min_rows, min_rows)

    def done(self) -> Operator:
        """Return the operator of the stage."""
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
        # Resumable and checkpointed writes commit each task as soon as it ends.
        last = self._transforms[-1] if self._transforms else None
        return self._planner.in_order and not (isinstance(last, WriteBlocks) and last.commits_parts)

    def _pool(self, step: Step, compute: Compute, context: DataContext) -> ActorPool | None:
        if compute.actors is None:
            return None
        min_size, max_size, initial_size = compute.actors
        each = context.max_tasks_in_flight_per_actor or compute.tasks_per_actor
        options = {"max_restarts": -1, "max_task_retries": -1, **compute.options}
        return ActorPool(
            step,
            min_size,
            max_size,
            initial_size,
            each,
            options,
            compute.options_fn,
            context.max_consecutive_actor_init_deaths,
        )


def _apply(compute: Compute, operator: operators.Tasks) -> None:
    operator.max_running = compute.max_tasks
    if compute.actors is None:
        operator.options = dict(compute.options)
        operator.options_fn = compute.options_fn
        operator.cpus = float(
            compute.options.get("num_cpus") or (0 if compute.options.get("num_gpus") else 1)
        )


# A partition of an exchange has at most this fraction of each processor's share of the object store.
_STORE_DIVISOR = 4
# Bytes that a task reads if blocks have no maximum size.
_READ_TASK_BYTES = 128 * 1024 * 1024


class Planner:
    """Plans the operators of a logical plan.

    Args:
        context: The settings of the dataset.
        cpus: Number of available processors.
        runs_before: Number of earlier executions of the dataset.
        store: Bytes of the object store; None if tasks share the memory of this process.
        seed: Together with `runs_before`, the seed of random operations that have none; None draws one.
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
            # Concurrent tasks map their partitions at the same time, and create as much output.
            self.part_bytes = max(1, min(self.part_bytes, int(store / max(1.0, cpus) / _STORE_DIVISOR)))

    def plan(self, node: nodes.Node) -> Operator:
        """Return the operator of a node, with its inputs."""
        return self._stage(node).done()

    def draw(self) -> int:
        """Return a seed for a random operation without one; planning again with the same seed returns the same."""
        return self._dice.getrandbits(63)

    def parts_of(self, read: nodes.Read) -> list[Any]:
        """Return the read tasks of a source."""
        wanted = self.wanted_parts(read)
        if isinstance(read.source, FileBasedDatasource):
            settings = self.context.copy()
            settings._execution_idx = self.runs_before  # part of the seed of shuffled files
            settings._chance = self.draw()  # their seed if the user gave none
            return list(read.source.get_read_tasks(wanted, data_context=settings))
        return list(read.source.get_read_tasks(wanted))

    def wanted_parts(self, read: nodes.Read) -> int:
        """Return the requested number of read tasks of a source."""
        return read.blocks or self._parallelism(read.source.estimate_inmemory_data_size())

    def _parallelism(self, size: int | None) -> int:
        """Return the number of read tasks of a source with this size in bytes."""
        context = self.context
        least = max(context.read_op_min_num_blocks or 0, context.min_parallelism or 0)
        twice = max(1, int(2 * self.cpus))
        if size is None:
            return max(least, twice)
        by_size = math.ceil(size / (context.target_max_block_size or _READ_TASK_BYTES))
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
            return barriers.plan_barrier(node, [stage.done()], self)
        inputs = [self.plan(each) for each in node.inputs]
        match node:
            case nodes.MapGroups() if not node.compute.runs_anywhere():
                stage = Stage(self, input=barriers.plan_grouping(node, inputs[0], self))
                stage.add(barriers.each_group(node), node.compute)
                return stage.done()
            case nodes.Limit():
                return streaming_operators.Limit(node.title, inputs[0], node.rows)
            case nodes.Resize():
                work = PartitionWork(node.title, exchanges.concatenate)
                return streaming_operators.Resize(node.title, work, inputs[0], node.rows, strict=node.strict)
            case nodes.Union():
                check_union(node)
                return streaming_operators.Union(node.title, inputs, in_order=self.in_order)
            case nodes.Mix():
                longest = node.stop_when == nodes.MixStoppingCondition.STOP_ON_LONGEST_DROP
                return streaming_operators.Mix(node.title, inputs, node.weights, to_the_longest=longest)
            case nodes.Zip():
                return streaming_operators.Zip(node.title, barriers.zip_work(), inputs)
            case nodes.Join() if barriers.can_stream_join(node):
                work = barriers.join_work(node, self.context.target_max_block_size)
                return streaming_operators.Lookup(
                    node.title, work, inputs[0], inputs[1], in_order=self.in_order
                )
            case _:
                return barriers.plan_barrier(node, inputs, self)


def _min_rows(node: nodes.Node) -> int:
    """Return the minimum number of rows of a task, for batches and files larger than blocks."""
    if isinstance(node, nodes.Write):
        return getattr(node.sink, "min_rows_per_write", None) or 0
    return node.call.size or 0 if isinstance(node, nodes.EachBatch) else 0


def _each_row(node: nodes.EachRow, _: Planner) -> Transform:
    return transforms.EachRow(((node.kind, node.udf, node.failures),))


def _each_batch(node: nodes.EachBatch, _: Planner) -> Transform:
    return node.call


def _each_block(node: nodes.EachBlock, _: Planner) -> Transform:
    return transforms.EachBlock(node.label, node.function)


def _project(node: nodes.Project, planner: Planner) -> Transform:
    return ColumnExpressions(node.title, node.expressions, context=_evaluation(planner))


def _filter(node: nodes.Filter, planner: Planner) -> Transform:
    return ColumnExpressions(node.title, (node.expression,), is_filter=True, context=_evaluation(planner))


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
