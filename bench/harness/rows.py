"""The table of rows: what each one means, who can run it, and the bar Skate must reach.

Every bar stands here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["moonshot", "bar met", "below bar", "faster", "slower", "failed", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What Skate must reach, and what it dreams of.

    Args:
        need: The bar.
        dream: The moonshot.
        absolute: The numbers are figures in the row's unit; otherwise they are ratios to Ray.
    """

    need: float
    dream: float
    absolute: bool = False


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The raw cost below which no system on this machine can go."""

    row: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Args:
        name: What `--only` takes; also the name of the function in the programs.
        title: What the table shows.
        program: The file in `programs/` that runs on Skate and on Ray.
        unit: `/s` and `GB/s` are better when larger; `s`, `MB` and `%` when smaller.
        bar: None for the rows that only inform.
        peers: Which of the other systems can do the job at all.
        limits: The raw limits to show beside the row.
        observed: The harness takes the figure from outside instead of the program reporting it.
        paired: One process measures Skate and Ray turn by turn, and reports both.
        alone: The figure compares Skate with itself, so that Ray does not run the row.
    """

    name: str
    title: str
    program: str
    unit: Literal["/s", "GB/s", "s", "MB", "%"] = "/s"
    bar: Bar | None = None
    peers: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    observed: Literal["", "startup", "memory", "peak"] = ""
    paired: bool = False
    alone: bool = False

    @property
    def smaller_is_better(self) -> bool:
        """Return whether the figure is a cost rather than a rate."""
        return self.unit in ("s", "MB", "%")

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times better `ours` is than `theirs`."""
        return theirs / ours if self.smaller_is_better else ours / theirs

    def bar_ratios(self, ray: float | None) -> tuple[float, float] | None:
        """Return bar and moonshot as ratios to Ray; None where there is none or it cannot be said."""
        if self.bar is None:
            return None
        if not self.bar.absolute:
            return self.bar.need, self.bar.dream
        if ray is None:
            return None
        return self.ratio(self.bar.need, ray), self.ratio(self.bar.dream, ray)

    def verdict(self, skate: float | None, ray: float | None) -> Verdict:
        """Judge Skate's figure by the bar, or, on a row without one, by Ray."""
        if skate is None:
            return "not measured"
        if self.bar is not None and self.bar.absolute:
            score, need, dream = 1.0, self.ratio(self.bar.need, skate), self.ratio(self.bar.dream, skate)
        elif ray is None:
            return "not measured"
        elif self.bar is None:
            return "faster" if self.ratio(skate, ray) >= 1 else "slower"
        else:
            score, need, dream = self.ratio(skate, ray), self.bar.need, self.bar.dream
        if score >= dream:
            return "moonshot"
        return "bar met" if score >= need else "below bar"


# Peers, by the name of their program `peer_<name>.py`, and what the table calls them.
PEERS = {
    "mp": "multiprocessing",
    "loky": "joblib/loky",
    "dask": "dask",
    "polars": "Polars",
    "duckdb": "DuckDB",
    "daft": "Daft",
    "datasets": "HF datasets",
    "optuna": "Optuna",
    "transformers": "transformers",
    "uvicorn": "uvicorn + Starlette",
    "litserve": "LitServe",
    "bentoml": "BentoML",
}
# Those of them that have an environment of their own, `bench/.venv-serving`, as PyPI calls them, too.
IN_SERVING_VENV = ("litserve", "bentoml")
# Those that are in Skate's own environment.
IN_SKATES_VENV = ("transformers",)

_ALL = ("mp", "loky", "dask")
_RELATIONAL = ("polars", "duckdb", "daft")
_FUNCTIONS = ("daft", "datasets")  # they call functions of the user's in Python

_SERVERS = ("uvicorn", *IN_SERVING_VENV)

_SOCKET = Limit(row="ping_pong", label="socket ping-pong")
_STREAM = Limit(row="stream", label="socket stream")
_COPY_WARM = Limit(row="memcpy_warm", label="memcpy warm")
_COPY_COLD = Limit(row="memcpy_cold", label="cold")

# Skate with the ray engine beside plain Ray: what it adds may be 5 % at most.
_ON_RAY = Bar(need=0.95, dream=0.99)

# Operations that need all rows at once.
_ALL_ROWS = Bar(need=5, dream=15)

ROWS: tuple[Row, ...] = (
    Row(
        name="startup",
        title="import + init + first task",
        program="startup",
        unit="s",
        bar=Bar(need=0.25, dream=0.1, absolute=True),
        peers=_ALL,
        limits=(Limit(row="startup", label="bare Python"),),
        observed="startup",
    ),
    Row(
        name="memory",
        title="idle memory (PSS, all processes)",
        program="startup",
        unit="MB",
        bar=Bar(need=80, dream=50, absolute=True),
        peers=_ALL,
        limits=(Limit(row="memory", label="bare Python"),),
        observed="memory",
    ),
    Row(
        name="tasks_sync",
        title="tasks, sync",
        program="tasks",
        bar=Bar(need=10, dream=20),
        peers=_ALL,
        limits=(_SOCKET,),
    ),
    Row(
        name="tasks_async",
        title="tasks, async",
        program="tasks",
        bar=Bar(need=15, dream=25),
        peers=_ALL,
        limits=(_STREAM,),
    ),
    Row(
        name="actor_sync",
        title="actor calls, sync (1:1)",
        program="actors",
        bar=Bar(need=10, dream=20),
        peers=("mp", "dask"),
        limits=(_SOCKET,),
    ),
    Row(
        name="actor_async",
        title="actor calls, async (1:1)",
        program="actors",
        bar=Bar(need=20, dream=40),
        peers=("dask",),
        limits=(_STREAM,),
    ),
    Row(
        name="asyncio_actor",
        title="asyncio actor calls, async",
        program="actors",
        bar=Bar(need=8, dream=15),
        peers=("dask",),
        limits=(_STREAM,),
    ),
    Row(
        name="put_small",
        title="put small",
        program="objects",
        bar=Bar(need=10, dream=50),
        peers=("dask",),
    ),
    Row(
        name="get_small",
        title="get small",
        program="objects",
        bar=Bar(need=10, dream=50),
        peers=("dask",),
    ),
    Row(
        name="put_large",
        title="put 100 MB arrays, warm",
        program="objects",
        unit="GB/s",
        bar=Bar(need=1, dream=1.1),
        peers=("dask",),
        limits=(_COPY_WARM, _COPY_COLD),
    ),
    Row(
        name="get_large",
        title="get 100 MB arrays",
        program="objects",
        bar=Bar(need=1, dream=1.1),
        peers=("dask",),
    ),
    Row(
        name="wait_1k",
        title="wait over 1k refs, one by one",
        program="waiting",
        bar=Bar(need=20, dream=50),
        peers=("loky", "dask"),
    ),
    Row(
        name="get_10k_refs",
        title="get an object holding 10k refs",
        program="waiting",
        bar=Bar(need=10, dream=20),
    ),
    Row(
        name="ten_actors",
        title="10 actors created, first call each",
        program="actors",
        unit="s",
        bar=Bar(need=20, dream=50),
        peers=("mp",),
        limits=(Limit(row="ten_forks", label="10 forks"),),
    ),
    Row(
        name="put_10gb",
        title="put 100 MB arrays, the first 10 GB",
        program="objects",
        unit="GB/s",
        peers=("dask",),
        limits=(_COPY_WARM, _COPY_COLD),
    ),
    Row(name="pool_map", title="Pool.map, 10k items", program="pool", peers=_ALL),
    Row(name="n_to_n", title="actor calls, async (n:n)", program="actors", limits=(_STREAM,)),
    Row(name="task_1mb", title="tasks with a 1 MB argument", program="tasks", peers=_ALL),
    Row(name="tasks_10k", title="10,000 tasks at once", program="tasks", peers=_ALL, limits=(_STREAM,)),
    Row(name="tasks_nested", title="100 tasks that wait for tasks that wait", program="tasks"),
    Row(name="on_ray_tasks", title="ray engine: tasks, async", program="on_ray", bar=_ON_RAY, paired=True),
    Row(
        name="on_ray_calls",
        title="ray engine: actor calls, async",
        program="on_ray",
        bar=_ON_RAY,
        paired=True,
    ),
    Row(name="on_ray_put", title="ray engine: put small", program="on_ray", bar=_ON_RAY, paired=True),
    Row(name="on_ray_get", title="ray engine: get small", program="on_ray", bar=_ON_RAY, paired=True),
    Row(
        name="data_five_rows",
        title="data: 5 rows through a filter",
        program="data",
        unit="s",
        bar=Bar(need=100, dream=300),
        peers=_RELATIONAL,
    ),
    Row(
        name="data_first_job",
        title="data: import + init + first job on actors",
        program="data_startup",
        unit="s",
        bar=Bar(need=3, dream=6),
        observed="startup",
    ),
    Row(
        name="data_batches",
        title="data: 2M rows, map_batches, iterate",
        program="data",
        unit="s",
        bar=Bar(need=3, dream=6),
        peers=("daft",),
    ),
    Row(
        name="data_batches_arrow",
        title="data: 2M rows, map_batches, iterate: Arrow",
        program="data",
        unit="s",
        bar=Bar(need=3, dream=6),
        peers=_FUNCTIONS,
    ),
    Row(
        name="data_map",
        title="data: map over 200k rows",
        program="data",
        unit="s",
        bar=Bar(need=5, dream=15),
        peers=_FUNCTIONS,
    ),
    Row(
        name="data_sort",
        title="data: sort 2M rows",
        program="data",
        unit="s",
        bar=_ALL_ROWS,
        peers=_RELATIONAL,
    ),
    Row(
        name="data_groupby",
        title="data: group 2M rows",
        program="data",
        unit="s",
        bar=_ALL_ROWS,
        peers=_RELATIONAL,
    ),
    Row(
        name="data_join",
        title="data: join 2M rows with 1k",
        program="data",
        unit="s",
        bar=_ALL_ROWS,
        peers=_RELATIONAL,
    ),
    Row(
        name="data_shuffle",
        title="data: shuffle 2M rows",
        program="data",
        unit="s",
        bar=_ALL_ROWS,
        peers=("polars",),
    ),
    Row(
        name="data_write",
        title="data: 2M rows, map_batches, write",
        program="data",
        unit="s",
        bar=Bar(need=3, dream=6),
        peers=_FUNCTIONS,
    ),
    Row(
        name="data_slow_consumer",
        title="data: 6 GB, taken slowly: peak memory",
        program="streaming",
        unit="MB",
        bar=Bar(need=1500, dream=750, absolute=True),
        observed="peak",
    ),
    Row(
        name="data_fast_consumer",
        title="data: 1 GB, taken fast: time with a budget",
        program="streaming",
        unit="%",
        bar=Bar(need=110, dream=102, absolute=True),
        alone=True,
    ),
    Row(
        name="data_feeding",
        title="data: tokenised text, training waits",
        program="feeding",
        unit="%",
        bar=Bar(need=2, dream=0.5, absolute=True),
        alone=True,
    ),
    Row(
        name="train_fit",
        title="train: 50 steps on 2 workers",
        program="train",
        unit="s",
        bar=Bar(need=5, dream=8),
    ),
    Row(
        name="train_steps",
        title="train: a step, of torchrun's time",
        program="train_steps",
        unit="%",
        bar=Bar(need=103, dream=100, absolute=True),
        alone=True,
    ),
    Row(
        name="train_first_step",
        title="train: fit() to first step, of torchrun's",
        program="train_steps",
        unit="%",
        bar=Bar(need=100, dream=50, absolute=True),
        alone=True,
    ),
    Row(
        name="tune_50",
        title="tune: 50 trials that do nothing, Optuna's search",
        program="tune",
        unit="s",
        bar=Bar(need=30, dream=100),
        peers=("optuna",),
    ),
    Row(
        name="tune_1000",
        title="tune: 1,000 trials that do nothing",
        program="tune",
        unit="s",
        bar=Bar(need=5, dream=2, absolute=True),
        peers=("optuna",),
        alone=True,
    ),
    Row(
        name="tune_asha",
        title="tune: work of ASHA to reach the score of random search",
        program="tune_asha",
        unit="%",
        bar=Bar(need=33, dream=20, absolute=True),
        alone=True,
    ),
    Row(
        name="tune_idle",
        title="tune: idle time of workers, trials of 10 ms",
        program="tune",
        unit="%",
        bar=Bar(need=10, dream=5, absolute=True),
        alone=True,
    ),
    Row(
        name="tune_memory",
        title="tune: growth of memory from trial 1,000 to 10,000",
        program="tune",
        unit="MB",
        bar=Bar(need=45, dream=20, absolute=True),  # 5 KB and 2.2 KB for each trial, whose result is kept
        alone=True,
    ),
    Row(
        name="state_tracking_tasks",
        title="tasks: fewer of them because they are recorded",
        program="state_tracking",
        unit="%",
        bar=Bar(need=3, dream=1, absolute=True),
        alone=True,
    ),
    Row(
        name="state_tracking_calls",
        title="actor calls: fewer of them because they are recorded",
        program="state_tracking",
        unit="%",
        bar=Bar(need=3, dream=1, absolute=True),
        alone=True,
    ),
    Row(
        name="dashboard_open",
        title="tasks: fewer of them while a page of the dashboard is open",
        program="dashboard",
        unit="%",
        bar=Bar(need=5, dream=2, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_16",
        title="llm: 135M parameters on the CPU, 16 streams",
        program="llm",
        bar=Bar(need=100, dream=130, absolute=True),
        peers=IN_SKATES_VENV,
        alone=True,
    ),
    Row(
        name="llm_16_int4",
        title="llm: the same, weights of 4 bits",
        program="llm",
        bar=Bar(need=200, dream=250, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_16_bfloat16",
        title="llm: the same, products in bfloat16",
        program="llm",
        bar=Bar(need=200, dream=250, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_serve_start",
        title="llm: skate llm serve to the first token",
        program="llm_serve",
        unit="s",
        bar=Bar(need=5, dream=3, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_serve_16",
        title="llm: tokens that HTTP costs, 16 streams",
        program="llm_serve",
        unit="%",
        bar=Bar(need=5, dream=2, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_serve_first",
        title="llm: time to the first token that HTTP adds, 16 streams",
        program="llm_serve",
        unit="s",
        bar=Bar(need=0.005, dream=0.002, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_serve_cpu",
        title="llm: CPU time of a token in the server, 16 streams",
        program="llm_serve",
        unit="s",
        bar=Bar(need=100e-6, dream=50e-6, absolute=True),
        alone=True,
    ),
    Row(
        name="llm_int4_perplexity",
        title="llm: perplexity that weights of 4 bits add",
        program="llm",
        unit="%",
        alone=True,
    ),
    Row(
        name="llm_bfloat16_perplexity",
        title="llm: perplexity that products in bfloat16 add",
        program="llm",
        unit="%",
        alone=True,
    ),
    Row(
        name="serve_up",
        title="serve: serve.run to the first answer",
        program="serve",
        unit="s",
        bar=Bar(need=20, dream=40),
        peers=_SERVERS,
    ),
    Row(
        name="serve_http_1",
        title="serve: no-op over HTTP, 1 client",
        program="serve",
        bar=Bar(need=10, dream=20),
        peers=_SERVERS,
    ),
    Row(
        name="serve_http_16",
        title="serve: no-op over HTTP, 16 clients",
        program="serve",
        bar=Bar(need=10, dream=20),
        peers=_SERVERS,
    ),
    Row(
        name="serve_http_64",
        title="serve: no-op over HTTP, 64 clients",
        program="serve",
        bar=Bar(need=10, dream=20),
        peers=_SERVERS,
    ),
    Row(
        name="serve_p99",
        title="serve: p99 at half of the peak load",
        program="serve",
        unit="s",
        bar=Bar(need=0.010, dream=0.005, absolute=True),
        peers=_SERVERS,
    ),
    Row(
        name="serve_handle_sync",
        title="serve: handle calls, one after the other",
        program="serve",
        bar=Bar(need=15, dream=30),
    ),
    Row(
        name="serve_handle_async",
        title="serve: handle calls, 100 at once",
        program="serve",
        bar=Bar(need=15, dream=30),
    ),
    Row(
        name="serve_stream",
        title="serve: 1,000 parts to 16 clients",
        program="serve",
        unit="s",
        peers=_SERVERS,
    ),
    Row(name="fan_in", title="fan-in tree of 1,000 tasks", program="tasks", peers=("dask",)),
)


def choose(names: list[str] | None) -> list[Row]:
    """Return the named rows in the table's order, or all of them.

    Raises:
        ValueError: A name is not in the table; the message lists the ones that are.
    """
    if not names:
        return list(ROWS)
    known = {row.name for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)}; the rows are {', '.join(r.name for r in ROWS)}")
    return [row for row in ROWS if row.name in names]
