"""Take a tour: what tasks, actors and objects cost here, a job that uses them all, and a picture of it.

Run it with `python examples/04_tour.py [picture.png]`. SKATE_ENGINE chooses the engine.
"""

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
import skate  # noqa: E402  (the tour also measures what the import costs)

IMPORTED = time.perf_counter()

import matplotlib  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

matplotlib.use("Agg")  # A picture in a file needs no display.
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

MEGABYTE = 1_000_000


@skate.remote
def nothing() -> None:
    """Do nothing: what is left is the cost of a task."""


@skate.remote
class Echo:
    """Answer what it is told: what is left is the cost of a call."""

    def say(self, value: Any) -> Any:
        return value


def seconds(action: Callable[[], object]) -> float:
    """Return how long the action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def each(count: int, action: Callable[[], object]) -> float:
    """Return how long one of `count` actions takes, made one after the other."""
    return seconds(lambda: [action() for _ in range(count)]) / count


def readable(duration: float) -> str:
    """Return a duration with the unit that suits it."""
    unit, factor = next(
        (u, f) for u, f in (("s", 1), ("ms", 1e3), ("µs", 1e6)) if duration * f >= 1 or u == "µs"
    )
    return f"{duration * factor:,.1f} {unit}"


def memory() -> tuple[int, int]:
    """Return how many processes Skate added to this one, and what they hold in memory, in bytes.

    Shared pages count once, divided among those who share them, if the system reports it (Linux).
    """
    children = psutil.Process().children(recursive=True)
    held = [child.memory_full_info() for child in children]
    return len(children), sum(getattr(info, "pss", info.uss) for info in held)


def measure(console: Console) -> None:
    """Print what the building blocks cost."""
    first_task = seconds(lambda: skate.get(nothing.remote()))
    skate.get([nothing.remote() for _ in range(200)])  # Workers start on demand; measure when they are there.
    echo = Echo.remote()
    skate.get(echo.say.remote(None))
    array = np.ones(100 * MEGABYTE // 8)
    skate.put(array)  # Fresh shared memory is slow the first time; then it is used again.

    many = 2_000
    put_array = seconds(lambda: skate.put(array))
    ref = skate.put(array)
    small = skate.put("small")
    costs = {
        "import skate": IMPORTED - STARTED,
        "start a session and run the first task": first_task,
        "a task, waiting for each": each(500, lambda: skate.get(nothing.remote())),
        "a task, many at once": seconds(lambda: skate.get([nothing.remote() for _ in range(many)])) / many,
        "an actor call, waiting for each": each(500, lambda: skate.get(echo.say.remote(1))),
        "an actor call, many at once": seconds(lambda: skate.get([echo.say.remote(1) for _ in range(many)]))
        / many,
        "start an actor and call it": each(5, lambda: skate.get(Echo.remote().say.remote(1))),
        "put a small value": each(many, lambda: skate.put("small")),
        "get a small value": each(many, lambda: skate.get(small)),
        "put an array of 100 MB": put_array,
        "get an array of 100 MB": each(10, lambda: skate.get(ref)),
    }
    table = Table("what", "one takes", "per second", title="What it costs here")
    table.columns[1].justify = table.columns[2].justify = "right"
    for what, duration in costs.items():
        table.add_row(what, readable(duration), f"{1 / duration:,.0f}")
    console.print(table)
    processes, held = memory()
    console.print(f"{processes} processes beside this one, holding {held / MEGABYTE:,.0f} MB\n")


@skate.remote
def assign(
    points: np.ndarray, first: int, last: int, centres: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Assign a block of points to their nearest centres: return sums, counts and squared distance."""
    block = points[first:last]
    distances = ((block[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    counts = np.bincount(nearest, minlength=len(centres))
    sums = np.stack([np.bincount(nearest, column, len(centres)) for column in block.T], axis=1)
    return sums, counts, float(distances.min(axis=1).sum())


@skate.remote
class Model:
    """Hold the centres, and move each to the middle of its points."""

    def __init__(self, centres: np.ndarray) -> None:
        self.centres = centres

    def update(self, *parts: tuple[np.ndarray, np.ndarray, float]) -> float:
        sums, counts, distance = (sum(column) for column in zip(*parts, strict=True))
        filled = counts > 0
        self.centres = self.centres.copy()
        self.centres[filled] = sums[filled] / counts[filled, None]
        return distance

    def read(self) -> np.ndarray:
        return self.centres


def cluster(console: Console, rounds: int = 6, blocks: int = 8) -> None:
    """Group points with k-means: the points are an object, each block a task, the model an actor."""
    rng = np.random.default_rng(seed=7)
    truth = rng.uniform(-10, 10, size=(8, 2))
    data = np.concatenate([rng.normal(centre, 1.0, size=(25_000, 2)) for centre in truth])
    rng.shuffle(data)

    points = skate.put(data)
    model = Model.remote(data[:8].copy())
    edges = np.linspace(0, len(data), blocks + 1, dtype=int)
    distances = []
    for _ in range(rounds):
        centres = model.read.remote()
        parts = [assign.remote(points, *edge, centres) for edge in pairwise(edges)]
        distances.append(model.update.remote(*parts))  # No waiting here: references are enough.
    spread = [distance / len(data) for distance in skate.get(distances)]
    console.print(
        f"k-means: {len(data):,} points in {len(truth)} groups; "
        f"mean squared distance {' → '.join(f'{value:.2f}' for value in spread)}"
    )


def draw(events: list[dict[str, Any]], path: Path) -> int:
    """Draw who ran what when, one row a process; return how many bars there are."""
    bars = [event for event in events if event["ph"] == "X" and event["cat"].startswith("task::")]
    bars.sort(key=lambda event: event["ts"])
    rows = {row: index for index, row in enumerate(dict.fromkeys((bar["pid"], bar["tid"]) for bar in bars))}
    names = [bar["cat"].removeprefix("task::") for bar in bars]
    colours = {name: plt.get_cmap("tab10")(index % 10) for index, name in enumerate(dict.fromkeys(names))}
    origin = min(bar["ts"] for bar in bars)

    figure, axes = plt.subplots(figsize=(11, 2 + 0.4 * len(rows)), layout="constrained")
    for name, bar in zip(names, bars, strict=True):
        start, width = (bar["ts"] - origin) / 1e3, bar["dur"] / 1e3
        row, colour = rows[bar["pid"], bar["tid"]], colours[name]
        axes.barh(row, width, left=start, height=0.7, color=colour, edgecolor=colour, linewidth=0.5)
    axes.set_yticks(list(rows.values()), [str(tid)[:16] for _, tid in rows])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title("What ran when")
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return len(bars)


def main() -> None:
    console = Console()
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "out/timeline.png")

    measure(console)
    skate.shutdown()

    with skate.init():  # A session of its own, so that the picture shows the job alone.
        cluster(console)
        bars = draw(skate.timeline(), picture)
    console.print(f"{picture} shows what ran when ({bars} bars)")


if __name__ == "__main__":
    main()
