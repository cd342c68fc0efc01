"""What a dataset is: a tree of operations that nobody has done yet.

Nodes are immutable and know nothing of how they are done. A dataset holds one; each transformation makes another above
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from skate.data._exec.failures import RAISE_ERRORS, Failures
from skate.data._exec.items import Item
from skate.data._exec.udf import Udf
from skate.data._expressions.printing import inline
from skate.data._seeds import RandomSeedConfig

RANDOM = RandomSeedConfig()


@dataclass(frozen=True)
class Compute:
    """Where the calls of a user's function run.

    Attributes:
        actors: Fewest, most and first number of actors; None runs tasks.
        most: Tasks at a time; None leaves it to the number of processors.
        tasks_per_actor: Tasks that an actor has at a time.
        options: Those of the tasks or actors: resources, runtime environment, …
        options_fn: Called for further options when a task or actor starts.
    """

    actors: tuple[int, int, int] | None = None
    most: int | None = None
    tasks_per_actor: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    options_fn: Callable[[], dict[str, Any]] | None = None

    def runs_anywhere(self) -> bool:
        """Tell whether nothing is asked for: it may share a task with others, or run in this process."""
        return self == Compute()


@dataclass(frozen=True, eq=False)
class Node:
    """An operation on datasets."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it works on."""
        return ()

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return type(self).__name__

    def walk(self) -> Iterator[Node]:
        """Yield all nodes below, and then this one."""
        for each in self.inputs:
            yield from each.walk()
        yield self


@dataclass(frozen=True, eq=False)
class Read(Node):
    """Read a source.

    Attributes:
        source: A Datasource.
        blocks: How many parts to read it in; None lets the planner choose.
    """

    source: Any
    blocks: int | None = None
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        name: str = self.source.get_name()
        return name if name.startswith("Read") else f"Read{name}"


@dataclass(frozen=True, eq=False)
class Values(Node):
    """Blocks that are there."""

    items: tuple[Item, ...]
    label: str = "Input"

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return self.label


@dataclass(frozen=True, eq=False)
class OneInput(Node):
    """An operation on one dataset."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it works on."""
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
        """What it is called where plans are shown."""
        return f"{self.kind}({self.udf.name})"


@dataclass(frozen=True, eq=False)
class EachBatch(OneInput):
    """Call a function with each batch."""

    udf: Udf
    size: int | None
    format: str | None
    copies: bool = False
    failures: Failures = RAISE_ERRORS
    compute: Compute = Compute()
    at_once: int = 1

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"MapBatches({self.udf.name})"


@dataclass(frozen=True, eq=False)
class EachBlock(OneInput):
    """Call a function of Skate's own with each block and the place of its task.

    Attributes:
        keeps_rows: It makes one row of each.
    """

    label: str
    function: Callable[[pa.Table, int], pa.Table]
    keeps_rows: bool = False
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return self.label


@dataclass(frozen=True, eq=False)
class Project(OneInput):
    """Make columns out of columns."""

    expressions: tuple[Any, ...]
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"Project({', '.join(map(inline, self.expressions))})"


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """Keep the rows for which an expression is true."""

    expression: Any
    compute: Compute = Compute()

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"Filter({inline(self.expression)})"


@dataclass(frozen=True, eq=False)
class Limit(OneInput):
    """Keep the first rows."""

    rows: int

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"Limit[{self.rows}]"


@dataclass(frozen=True, eq=False)
class Sort(OneInput):
    """Bring rows into an order."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None


@dataclass(frozen=True, eq=False)
class Shuffle(OneInput):
    """Bring rows into a random order."""

    seed: RandomSeedConfig = RANDOM

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return "RandomShuffle"


@dataclass(frozen=True, eq=False)
class ShuffleBlocks(OneInput):
    """Bring blocks into a random order."""

    seed: RandomSeedConfig = RANDOM

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return "RandomizeBlockOrder"


@dataclass(frozen=True, eq=False)
class Repartition(OneInput):
    """Make a given number of blocks: of equal size, or with equal keys together."""

    blocks: int
    shuffle: bool = False
    keys: tuple[str, ...] = ()
    sort: bool = False


@dataclass(frozen=True, eq=False)
class Resize(OneInput):
    """Make blocks with a given number of rows, as rows come by."""

    rows: int
    strict: bool = False

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"StreamingRepartition[num_rows_per_block={self.rows}]"


@dataclass(frozen=True, eq=False)
class Aggregate(OneInput):
    """Make one row out of the rows of each group."""

    keys: tuple[str, ...]
    aggregates: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class MapGroups(OneInput):
    """Call a function with all rows of each group."""

    keys: tuple[str, ...]
    udf: Udf
    format: str | None
    copies: bool = False
    failures: Failures = RAISE_ERRORS
    compute: Compute = Compute()
    parts: int | None = None

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"MapGroups({self.udf.name})"


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Bring rows of two datasets together that have the same keys."""

    left: Node
    right: Node
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    suffixes: tuple[str | None, str | None] = (None, None)
    parts: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it works on."""
        return (self.left, self.right)

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        return f"Join({self.how})"


@dataclass(frozen=True, eq=False)
class ManyInputs(Node):
    """An operation on several datasets."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it works on."""
        return self.parts


@dataclass(frozen=True, eq=False)
class Zip(ManyInputs):
    """Lay datasets side by side."""


@dataclass(frozen=True, eq=False)
class Union(ManyInputs):
    """Put datasets one after the other."""


@dataclass(frozen=True, eq=False)
class Mix(ManyInputs):
    """Take rows from several datasets in turn, in given shares."""

    weights: tuple[float, ...]
    stop_when: str


@dataclass(frozen=True, eq=False)
class Write(OneInput):
    """Write to a sink.

    Attributes:
        sink: A Datasink.
        job: A name of the whole write.
        in_units: It can be resumed: what is written is named by its unit.
    """

    sink: Any
    job: str
    compute: Compute = Compute()
    in_units: bool = False

    @property
    def title(self) -> str:
        """What it is called where plans are shown."""
        name: str = self.sink.get_name()
        return name if name.startswith("Write") else f"Write{name}"


def over(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with something done to each of its inputs."""
    inputs = [change(each) for each in node.inputs]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    if isinstance(node, OneInput):
        return replace(node, input=inputs[0])
    if isinstance(node, Join):
        return replace(node, left=inputs[0], right=inputs[1])
    assert isinstance(node, ManyInputs)
    return replace(node, parts=tuple(inputs))
