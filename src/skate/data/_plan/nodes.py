"""The logical plan of a dataset: a tree of operations.

Nodes are immutable and independent of their execution. A dataset has one node; each transformation adds another above
it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from skate.data._exec.failures import RAISE_ERRORS, Failures
from skate.data._exec.items import Item
from skate.data._exec.transforms import EachBatch as BatchCall
from skate.data._exec.udf import Udf
from skate.data._expressions.printing import inline
from skate.data._seeds import RandomSeedConfig

RANDOM = RandomSeedConfig()


class MixStoppingCondition(enum.StrEnum):
    """When `Dataset.mix` ends.

    Attributes:
        STOP_ON_SHORTEST: End when the first dataset is exhausted.
        STOP_ON_LONGEST_DROP: With the last dataset; datasets that end earlier are dropped from the mix.
    """

    STOP_ON_SHORTEST = "stop_on_shortest"
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"


@dataclass(frozen=True)
class Compute:
    """Where a user function runs: in tasks or in a pool of actors.

    Attributes:
        actors: Minimum, maximum and initial number of actors; None runs tasks.
        max_tasks: Maximum number of concurrent tasks; None is limited by the processors only.
        tasks_per_actor: Number of tasks that an actor has at a time.
        options: Options of the tasks or actors, such as resources and runtime environment.
        options_fn: Returns further options each time a task or actor starts.
    """

    actors: tuple[int, int, int] | None = None
    max_tasks: int | None = None
    tasks_per_actor: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    options_fn: Callable[[], dict[str, Any]] | None = None

    def runs_anywhere(self) -> bool:
        """Return whether the function has no requirements: it may share a task with others, or run in this process."""
        return self == Compute()


@dataclass(frozen=True, eq=False)
class Node:
    """An operation on datasets."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of the operation."""
        return ()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return type(self).__name__

    def walk(self) -> Iterator[Node]:
        """Yield all nodes below this one, and then this one."""
        for each in self.inputs:
            yield from each.walk()
        yield self


@dataclass(frozen=True, eq=False)
class Read(Node):
    """Read a source.

    Attributes:
        source: A Datasource.
        blocks: Number of parts to read the source in; None lets the planner choose.
    """

    source: Any
    blocks: int | None = None
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        name: str = self.source.get_name()
        return name if name.startswith("Read") else f"Read{name}"


@dataclass(frozen=True, eq=False)
class Values(Node):
    """Existing blocks."""

    items: tuple[Item, ...]
    label: str = "Input"

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return self.label


@dataclass(frozen=True, eq=False)
class OneInput(Node):
    """An operation on one dataset."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of the operation."""
        return (self.input,)


@dataclass(frozen=True, eq=False)
class EachRow(OneInput):
    """Call a function with each row: "Map", "FlatMap" or "Filter"."""

    kind: str
    udf: Udf
    failures: Failures = RAISE_ERRORS
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"{self.kind}({self.udf.name})"


@dataclass(frozen=True, eq=False)
class EachBatch(OneInput):
    """Call a function with each batch."""

    call: BatchCall
    compute: Compute = Compute()

    @property
    def udf(self) -> Udf:
        """The function."""
        return self.call.udf

    @property
    def failures(self) -> Failures:
        """The handling of errors."""
        return self.call.failures

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return self.call.name


@dataclass(frozen=True, eq=False)
class EachBlock(OneInput):
    """Call an internal function with each block and the index of its task.

    Attributes:
        keeps_rows: The function returns one row for each row.
    """

    label: str
    function: Callable[[pa.Table, int], pa.Table]
    keeps_rows: bool = False
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return self.label


@dataclass(frozen=True, eq=False)
class Project(OneInput):
    """Compute columns by expressions."""

    expressions: tuple[Any, ...]
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"Project({', '.join(map(inline, self.expressions))})"


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """Keep the rows for which an expression is true."""

    expression: Any
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"Filter({inline(self.expression)})"


@dataclass(frozen=True, eq=False)
class Limit(OneInput):
    """Keep the first rows."""

    rows: int

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"Limit[{self.rows}]"


@dataclass(frozen=True, eq=False)
class Sort(OneInput):
    """Sort rows."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None


@dataclass(frozen=True, eq=False)
class Shuffle(OneInput):
    """Shuffle rows."""

    seed: RandomSeedConfig = RANDOM

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return "RandomShuffle"


@dataclass(frozen=True, eq=False)
class ShuffleBlocks(OneInput):
    """Shuffle blocks."""

    seed: RandomSeedConfig = RANDOM

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return "RandomizeBlockOrder"


@dataclass(frozen=True, eq=False)
class Repartition(OneInput):
    """Create a given number of blocks, of equal size or by a hash of keys."""

    blocks: int
    shuffle: bool = False
    keys: tuple[str, ...] = ()
    sort: bool = False


@dataclass(frozen=True, eq=False)
class Resize(OneInput):
    """Create blocks with a given number of rows, while rows stream."""

    rows: int
    strict: bool = False

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"StreamingRepartition[num_rows_per_block={self.rows}]"


@dataclass(frozen=True, eq=False)
class Aggregate(OneInput):
    """Aggregate each group to one row."""

    keys: tuple[str, ...]
    aggregates: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class MapGroups(OneInput):
    """Call a function with all rows of each group."""

    keys: tuple[str, ...]
    call: BatchCall
    compute: Compute = Compute()
    parts: int | None = None

    @property
    def udf(self) -> Udf:
        """The function."""
        return self.call.udf

    @property
    def failures(self) -> Failures:
        """The handling of errors."""
        return self.call.failures

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"MapGroups({self.udf.name})"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Join the rows of two datasets that have equal keys."""

    left: Node
    right: Node
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    suffixes: tuple[str | None, str | None] = (None, None)
    parts: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of the operation."""
        return (self.left, self.right)

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        return f"Join({self.how})"


@dataclass(frozen=True, eq=False)
class ManyInputs(Node):
    """An operation on several datasets."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs of the operation."""
        return self.parts


@dataclass(frozen=True, eq=False)
class Zip(ManyInputs):
    """Combine datasets side by side."""


@dataclass(frozen=True, eq=False)
class Union(ManyInputs):
    """Concatenate datasets."""


@dataclass(frozen=True, eq=False)
class Mix(ManyInputs):
    """Take rows from several datasets alternately, in given proportions."""

    weights: tuple[float, ...]
    stop_when: str


@dataclass(frozen=True, eq=False)
class Write(OneInput):
    """Write to a sink.

    Attributes:
        sink: A Datasink.
        job: A unique name of the write.
        in_units: The write is resumable: the names of its files contain their unit.
    """

    sink: Any
    job: str
    compute: Compute = Compute()
    in_units: bool = False

    @property
    def title(self) -> str:
        """The name of the operation in plans."""
        name: str = self.sink.get_name()
        return name if name.startswith("Write") else f"Write{name}"


def map_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node whose inputs are replaced by the results of a function."""
    inputs = [change(each) for each in node.inputs]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    if isinstance(node, OneInput):
        return replace(node, input=inputs[0])
    if isinstance(node, Join):
        return replace(node, left=inputs[0], right=inputs[1])
    assert isinstance(node, ManyInputs)
    return replace(node, parts=tuple(inputs))
