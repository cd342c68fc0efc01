"""Plausible data for every topic of the dashboard: a session in which much happens, or nothing."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from typing import Any

Data = dict[str, Any]

STARTED = time.time() - 754.0
GIB = 1 << 30
MIB = 1 << 20
WORKERS = 6
FUNCTIONS = ("load_shard", "tokenize", "normalize", "train_step", "evaluate", "write_parquet", "Counter.add")


def make_id(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def session() -> Data:
    return {
        "connected": True,
        "engine": "local",
        "address": "/tmp/skate/session_2026-11-18_12-00-00",
        "pid": 41207,
        "started": STARTED,
        "version": "0.1.0",
        "python": "3.12.4",
        "namespace": "default",
        "ray_dashboard": None,
        "problem": None,
    }


def _wave(count: int, base: float, swing: float, period: float, seed: int) -> list[float]:
    noise = random.Random(seed)
    return [
        max(0.0, base + swing * math.sin(i / period) + noise.uniform(-0.15, 0.15) * swing)
        for i in range(count)
    ]


def overview() -> Data:
    now = math.floor(time.time())
    count = 600
    return {
        "resources": [
            {"name": "CPU", "total": 16.0, "used": 13.5},
            {"name": "GPU", "total": 1.0, "used": 1.0},
            {"name": "memory", "total": 48 * GIB, "used": 9.5 * GIB},
            {"name": "object_store_memory", "total": 12 * GIB, "used": 4.2 * GIB},
            {"name": "licence", "total": 2.0, "used": 2.0},
        ],
        "tasks": {
            "RUNNING": 13,
            "PENDING_NODE_ASSIGNMENT": 4,
            "PENDING_ARGS_AVAIL": 2,
            "FINISHED": 18432,
            "FAILED": 3,
        },
        "calls": {"RUNNING": 4},
        "actors": {"ALIVE": 7, "PENDING_CREATION": 1, "DEAD": 2},
        "workers": WORKERS,
        "waiting": [
            {"id": make_id("task", 3), "name": "train_step", "kind": "task", "since": now - 42},
            {"id": make_id("task", 4), "name": "evaluate", "kind": "task", "since": now - 12},
            {"id": make_id("actor", 1), "name": "Tokenizer", "kind": "actor", "since": now - 5},
            {"id": make_id("group", 1), "name": "two-gpus", "kind": "placement_group", "since": now - 95},
        ],
        "object_store": {"used": 4.2 * GIB, "limit": 12 * GIB, "spilled": 734 * MIB, "objects": 1290},
        "history": {
            "time": [now - count + i for i in range(count)],
            "cpu": [min(100.0, each) for each in _wave(count, 62, 26, 40, 1)],
            "memory": [each * GIB for each in _wave(count, 24, 6, 90, 2)],
            "memory_limit": 64 * GIB,
            "gpu": [
                {
                    "index": 0,
                    "name": "NVIDIA L4",
                    "utilization": [min(100.0, each) for each in _wave(count, 71, 22, 33, 3)],
                    "memory": [each * GIB for each in _wave(count, 15, 3, 70, 4)],
                    "memory_limit": 24 * GIB,
                }
            ],
            "object_store": [each * GIB for each in _wave(count, 3.4, 1.1, 60, 5)],
            "running": [math.floor(each) for each in _wave(count, 10, 4, 25, 6)],
        },
    }


def tasks() -> list[Data]:
    now = time.time() * 1000
    states = ["RUNNING", "RUNNING", "FAILED", "PENDING_NODE_ASSIGNMENT", "PENDING_ARGS_AVAIL"] + [
        "FINISHED"
    ] * 6
    rows = []
    for index in range(33):
        state = states[index % len(states)]
        started = state in ("RUNNING", "FINISHED", "FAILED")
        begun = now - index * 900 - 3000
        rows.append(
            {
                "task_id": make_id("task", index),
                "attempt_number": 0,
                "name": FUNCTIONS[index % len(FUNCTIONS)],
                "state": state,
                "job_id": "01000000",
                "actor_id": make_id("actor", 0) if index % 7 == 6 else None,
                "type": "ACTOR_TASK" if index % 7 == 6 else "NORMAL_TASK",
                "func_or_class_name": FUNCTIONS[index % len(FUNCTIONS)],
                "parent_task_id": make_id("driver"),
                "node_id": make_id("node"),
                "worker_id": make_id("worker", index % WORKERS) if started else None,
                "worker_pid": 41300 + index % WORKERS if started else None,
                "error_type": "TASK_EXECUTION_EXCEPTION" if state == "FAILED" else None,
                "required_resources": {"CPU": 1.0},
                "creation_time_ms": begun - 350,
                "start_time_ms": begun if started else None,
                "end_time_ms": begun + 640 + index * 7 if state in ("FINISHED", "FAILED") else None,
                "error_message": _ERROR if state == "FAILED" else None,
                "events": [
                    {"state": "PENDING_ARGS_AVAIL", "created_ms": begun - 350},
                    *([{"state": "RUNNING", "created_ms": begun}] if started else []),
                ],
            }
        )
    return rows


_ERROR = """Traceback (most recent call last):
  File "pipeline.py", line 41, in normalize
    return (x - x.mean()) / x.std()
ValueError: the column "price" has <b>no</b> numbers"""


def actors() -> list[Data]:
    states = [
        "ALIVE",
        "PENDING_CREATION",
        "ALIVE",
        "ALIVE",
        "RESTARTING",
        "ALIVE",
        "DEAD",
        "ALIVE",
        "ALIVE",
        "DEAD",
    ]
    names = ["Counter", "Tokenizer", "ReplayBuffer", "ParameterServer", "Sampler"]
    return [
        {
            "actor_id": make_id("actor", index),
            "class_name": names[index % len(names)],
            "state": state,
            "job_id": "01000000",
            "name": f"{names[index % len(names)].lower()}-{index}" if index % 2 else None,
            "node_id": make_id("node"),
            "pid": 41300 + index if state == "ALIVE" else None,
            "ray_namespace": "default",
            "num_restarts": index % 3,
            "required_resources": {"CPU": 1.0},
            "is_detached": index % 4 == 0,
            "death_cause": {"error_message": "killed by skate.kill"} if state == "DEAD" else None,
        }
        for index, state in enumerate(states)
    ]


def objects() -> list[Data]:
    kinds = ["LOCAL_REFERENCE", "PINNED_IN_MEMORY", "USED_BY_PENDING_TASK"]
    return [
        {
            "object_id": make_id("object", index),
            "object_size": (index * 7919 % 97 + 1) * MIB if index % 9 else -1,
            "task_status": "FINISHED" if index % 9 else "PENDING_ARGS_AVAIL",
            "attempt_number": 0,
            "reference_type": kinds[index % 3],
            "call_site": f"pipeline.py:{20 + index}",
            "type": "WORKER",
            "pid": 41300 + index % WORKERS,
            "ip": "127.0.0.1",
        }
        for index in range(20)
    ]


def placement_groups() -> list[Data]:
    return [
        {
            "placement_group_id": make_id("group", index),
            "name": name,
            "creator_job_id": "01000000",
            "state": state,
            "bundles": [{"bundle_id": {"bundle_index": i}, "unit_resources": bundle} for i in range(2)],
            "is_detached": False,
            "stats": {"scheduling_state": state},
        }
        for index, (name, state, bundle) in enumerate(
            [
                ("trainers", "CREATED", {"CPU": 2}),
                ("two-gpus", "PENDING", {"CPU": 1, "GPU": 1}),
                ("", "REMOVED", {"CPU": 4}),
            ]
        )
    ]


def workers() -> list[Data]:
    now = time.time() * 1000
    return [
        {
            "worker_id": make_id("worker", index),
            "is_alive": index != 5,
            "worker_type": "DRIVER" if index == 0 else "WORKER",
            "exit_type": "SYSTEM_ERROR" if index == 5 else None,
            "node_id": make_id("node"),
            "ip": "127.0.0.1",
            "pid": 41300 + index,
            "exit_detail": "killed by signal 9 (SIGKILL)" if index == 5 else None,
            "start_time_ms": now - 700_000 + index * 1000,
            "end_time_ms": now - 20_000 if index == 5 else 0,
        }
        for index in range(WORKERS)
    ]


def jobs() -> list[Data]:
    now = time.time() * 1000
    return [
        {
            "job_id": "01000000",
            "submission_id": None,
            "type": "DRIVER",
            "status": "RUNNING",
            "entrypoint": "python pipeline.py --epochs 10",
            "message": None,
            "start_time": now - 740_000,
            "end_time": 0,
        },
        *(
            {
                "job_id": None,
                "submission_id": f"raysubmit_{make_id(status)[:16]}",
                "type": "SUBMISSION",
                "status": status,
                "entrypoint": f"python nightly.py --part {index}",
                "message": "Job finished with exit code 1." if status == "FAILED" else "",
                "start_time": now - 500_000 + index * 60_000,
                "end_time": now - 450_000 + index * 60_000 if status in ("SUCCEEDED", "FAILED") else 0,
            }
            for index, status in enumerate(["SUCCEEDED", "FAILED", "RUNNING", "PENDING"])
        ),
    ]


def nodes() -> list[Data]:
    return [{"node_id": make_id("node"), "node_ip": "127.0.0.1", "state": "ALIVE", "node_name": "laptop"}]


TABLES: dict[str, tuple[str, Callable[[], list[Data]]]] = {
    "tasks": ("task_id", tasks),
    "actors": ("actor_id", actors),
    "objects": ("object_id", objects),
    "placement_groups": ("placement_group_id", placement_groups),
    "workers": ("worker_id", workers),
    "nodes": ("node_id", nodes),
    "jobs": ("submission_id", jobs),
}


def why(id: str) -> Data:
    return {
        "id": id,
        "lines": [
            "It needs 2 GPU, and the machine has 1 GPU in all: it never starts as it is.",
            "The GPU is held by train_step (PID 41302) since 11 min 4 s.",
            'Start with skate.init(resources={"GPU": 2}), or ask for less: @skate.remote(num_gpus=1).',
        ],
    }


def timeline(since: float, limit: int, events_per_worker: int) -> Data:
    """Return events that were there from the beginning, and one of each worker that is running."""
    now = time.time()
    events = []
    for worker in range(WORKERS):
        chance = random.Random(worker)
        end = STARTED + 700  # the events are the same at each call
        for index in range(events_per_worker):
            length = chance.uniform(0.02, 0.5) * (60 / events_per_worker) * 4
            start = end - length - chance.uniform(0, 0.1)
            name = FUNCTIONS[chance.randrange(len(FUNCTIONS))]
            failed = chance.random() < 0.01
            if end >= since:
                events.append(_event(worker, index, name, start, end, "FAILED" if failed else "FINISHED"))
            end = start
        begun = now - (now + worker) % 7 - 3  # so that a task runs on every track, at any time
        for turn in range(6):
            start = begun - 7 * turn
            if start > STARTED + 700:
                state, end_or_none = ("RUNNING", None) if turn == 0 else ("FINISHED", start + 6.5)
                if end_or_none is None or end_or_none >= since:
                    events.append(
                        _event(worker, f"turn {start:.0f}", FUNCTIONS[worker], start, end_or_none, state)
                    )
    events.sort(key=lambda event: float(event["start"]))
    return {
        "now": now,
        "tracks": [{"id": str(index), "pid": 41300 + index, "title": "worker"} for index in range(WORKERS)],
        "events": events[-limit:],
        "dropped": max(0, len(events) - limit),
    }


def _event(worker: int, index: object, name: str, start: float, end: float | None, state: str) -> Data:
    id = make_id("event", worker, index)
    track = str(worker)
    return {
        "id": id,
        "track": track,
        "name": name,
        "start": start,
        "end": end,
        "state": state,
        "kind": "NORMAL_TASK",
    }


def logs() -> Data:
    now = time.time()
    job = f"job-driver-raysubmit_{make_id('FAILED')[:16]}.log"
    names = ["worker-1.out", "worker-1.err", "worker-2.out", "node.log", job]
    return {
        "files": [
            {
                "name": name,
                "size": 48_211 * (index + 1),
                "modified": now - index * 30,
                "pid": 41301 if name.startswith("worker-1") else None,
                "title": "node" if name == "node.log" else f"worker {41300 + index}",
            }
            for index, name in enumerate(names)
        ]
    }


def logs_after_a_write() -> Data:
    """Return the logs when the oldest is written to, and a new one appears."""
    files = logs()["files"]
    written = files.pop() | {"size": 999, "modified": time.time() + 5}
    return {"files": [written, *files, {**written, "name": "worker-9.out"}]}


def log_lines(name: str) -> list[str]:
    lines = [
        f"2026-11-18 12:{i // 60:02d}:{i % 60:02d} INFO {name} shard {i} read, {i * 37} rows"
        for i in range(80)
    ]
    lines[40] = "ValueError: <script>alert(1)</script> is no number"
    lines[41] = "x" * 400
    return lines


def memory() -> Data:
    return {
        "budget": 12 * GIB,
        "used": 4.2 * GIB,
        "spilled": 734 * MIB,
        "mapped": 2.9 * GIB,
        "processes": [
            {
                "pid": 41300 + index,
                "title": "driver pipeline.py" if index == 0 else f"worker {FUNCTIONS[index]}",
                "rss": (310 + index * 80) * MIB,
                "uss": (200 + index * 50) * MIB,
                "objects": 12 * index,
                "bytes": index * 213 * MIB,
            }
            for index in range(WORKERS)
        ],
        "objects": [
            {
                "id": make_id("object", index),
                "size": (900 - index * 40) * MIB,
                "state": "READY",
                "owner_pid": 41300,
                "holders": [
                    {
                        "pid": 41301 + index % 4,
                        "title": f"worker {41301 + index % 4}",
                        "kind": "LOCAL_REFERENCE",
                    }
                ],
                "created_at": f"pipeline.py:{30 + index}" if index % 3 else None,
                "pinned": index % 2 == 0,
                "spilled": index % 5 == 4,
            }
            for index in range(14)
        ],
    }


def _run(id: str, kind: str, name: str, status: str, age: float, length: float | None, summary: Any) -> Data:
    started = time.time() - age
    ended = None if length is None else started + length
    facts = {"id": id, "kind": kind, "name": name, "status": status, "started": started, "ended": ended}
    error = "RuntimeError: rank 2: loss is <i>nan</i> at iteration 14" if status == "FAILED" else None
    return {**facts, "pid": 41300, "summary": summary, "error": error}


def runs() -> list[Data]:
    return [
        _run("data-2", "data", "read_parquet → tokenize → write", "RUNNING", 64, None, {"rows": 1_204_000}),
        _run("data-1", "data", "range → map", "FINISHED", 400, 12.4, {"rows": 1_000_000}),
        _run(
            "train-2", "train", "TorchTrainer_smollm", "RUNNING", 300, None, {"loss": 1.83, "iteration": 240}
        ),
        _run("train-1", "train", "TorchTrainer_first", "FAILED", 700, 61, {"loss": 3.1, "iteration": 14}),
        _run("tune-1", "tune", "learning-rates", "RUNNING", 500, None, {"trials": 20, "running": 4}),
    ]


def run(id: str) -> Data | None:
    found = next((each for each in runs() if each["id"] == id), None)
    if found is None:
        return None
    return {**found, **{"data": _data_run, "train": _train_run, "tune": _tune_run}[found["kind"]](found)}


def _data_run(found: Data) -> Data:
    finished = found["status"] == "FINISHED"
    names = ["ReadParquet", "MapBatches(tokenize)", "Join(labels)", "MapBatches(Embedder)", "Write"]
    states = ["finished", "running", "waiting", "running", "running"]
    inputs = [[], ["0"], ["1", "5"], ["2"], ["3"]]
    operators = [
        {
            "id": str(index),
            "name": name,
            "inputs": inputs[index],
            "rows_in": 2_000_000 - index * 190_000,
            "rows_out": 1_900_000 - index * 190_000,
            "bytes_out": (1900 - index * 190) * MIB,
            "blocks_queued": index * 3,
            "tasks_active": 0 if states[index] != "running" else 4 - index % 3,
            "rate": 0.0 if states[index] == "finished" else 21_500.0 / (index + 1),
            "state": "finished" if finished else states[index],
            "backpressure": "waits for MapBatches(Embedder): 9 blocks (1.1 GiB) are queued"
            if index == 2
            else None,
        }
        for index, name in enumerate(names)
    ]
    labels = {**operators[0], "id": "5", "name": "ReadCSV(labels)", "rows_out": 210_000}
    return {"operators": [*operators, labels], "rows": 1_204_000, "total_rows": 2_000_000}


def _train_run(found: Data) -> Data:
    count = 240 if found["status"] == "RUNNING" else 14
    noise = random.Random(5)
    loss = [1.6 + 3 * math.exp(-i / 60) + noise.uniform(-0.08, 0.08) for i in range(count)]
    return {
        "workers": [
            {"rank": rank, "pid": 41310 + rank, "node": make_id("node"), "status": found["status"]}
            for rank in range(4)
        ],
        "metrics": {
            "time": [found["started"] + i for i in range(count)],
            "iteration": list(range(1, count + 1)),
            "values": {
                "loss": loss,
                "val_loss": [each * 1.06 if i % 10 == 0 else None for i, each in enumerate(loss)],
                "learning_rate": [3e-4 * min(1, (i + 1) / 30) for i in range(count)],
                "tokens_per_s": [8000 + noise.uniform(-300, 300) for _ in range(count)],
                "grad_norm": [1.0 + noise.uniform(0, 0.4) for _ in range(count)],
            },
        },
        "checkpoints": [
            {
                "path": f"/home/me/results/TorchTrainer_smollm/checkpoint_{i:06d}",
                "iteration": i * 80,
                "metrics": {"loss": 3.2 - i * 0.5},
            }
            for i in range(1, 4)
        ],
    }


def _tune_run(_: Data) -> Data:
    chance = random.Random(11)
    trials = []
    for index in range(20):
        config = {
            "lr": 10 ** chance.uniform(-4, -1),
            "batch_size": chance.choice([16, 32, 64, 128]),
            "dropout": round(chance.uniform(0, 0.5), 3),
            "optimizer": chance.choice(["adam", "sgd", "lion"]),
        }
        status = "ERROR" if index == 7 else "RUNNING" if index >= 17 else "TERMINATED"
        loss = abs(math.log10(config["lr"]) + 2.5) * 0.4 + config["dropout"] + chance.uniform(0.2, 0.4)
        trials.append(
            {
                "id": f"{make_id('trial', index)[:5]}_{index:05d}",
                "status": status,
                "config": config,
                "iteration": 1 + index % 20,
                "metrics": {"loss": loss, "accuracy": 1 - loss / 3} if status != "ERROR" else {},
                "error": "OutOfMemoryError: 18.2 GiB of 16 GiB" if status == "ERROR" else None,
            }
        )
    best = min((trial for trial in trials if trial["metrics"]), key=lambda trial: trial["metrics"]["loss"])
    parameters = ["lr", "batch_size", "dropout", "optimizer"]
    return {"metric": "loss", "mode": "min", "parameters": parameters, "trials": trials, "best": best["id"]}


def serve() -> Data:
    bounds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    return {
        "applications": [
            {
                "name": "shop",
                "route": "/shop",
                "status": "RUNNING",
                "message": "",
                "deployments": [
                    _deployment(
                        "Gateway", "HEALTHY", 2, bounds, [0, 3, 40, 212, 130, 44, 12, 5, 2, 0, 0, 0, 0]
                    ),
                    _deployment(
                        "Ranker", "UPDATING", 3, bounds, [0, 0, 0, 8, 52, 210, 180, 61, 20, 7, 1, 0, 2]
                    ),
                ],
            },
            {
                "name": "admin",
                "route": "/admin",
                "status": "DEPLOY_FAILED",
                "message": "The constructor of Admin raised ValueError: no password",
                "deployments": [_deployment("Admin", "UNHEALTHY", 1, bounds, [0] * 13)],
            },
        ],
        "proxies": [{"id": "proxy-1", "status": "HEALTHY"}],
        "http": "http://127.0.0.1:8000",
    }


def _deployment(name: str, status: str, target: int, bounds: list[int], counts: list[int]) -> Data:
    states = ["RUNNING"] * target
    if status != "HEALTHY":
        states[-1] = "STARTING"
    return {
        "name": name,
        "status": status,
        "message": "" if status == "HEALTHY" else "1 replica is starting",
        "replicas": [
            {"id": make_id(name, i), "state": state, "pid": 41400 + i if state == "RUNNING" else None}
            for i, state in enumerate(states)
        ],
        "target": target,
        "requests_per_s": 118.2 if any(counts) else 0.0,
        "errors_per_s": 0.4 if any(counts) else 0.0,
        "running": 9,
        "queued": 3,
        "latency": {"buckets_ms": bounds, "counts": counts, "p50": 8.4, "p90": 31.0, "p99": 140.0},
    }


def llm() -> Data:
    return {
        "models": [
            {
                "id": name,
                "application": "llm",
                "base_url": "http://127.0.0.1:8000/v1",
                "tokens_per_s": 412.5 / (index + 1),
                "prompt_tokens_per_s": 2310.0 / (index + 1),
                "running": 12 - index,
                "waiting": 3,
                "prompt_tokens": 120_000,
                "cached_prompt_tokens": 74_400,
                "ttft": {"p50": 0.084, "p90": 0.21, "p99": 0.61},
                "itl": {"p50": 0.011, "p90": 0.016, "p99": 0.048},
            }
            for index, name in enumerate(["smollm2-135m-instruct", "smollm2-135m-instruct:support"])
        ]
    }


EMPTY_TABLE: Data = {"columns": [], "rows": [], "total": 0, "dropped": 0}


def empty(path: str) -> Data:
    """Return the data of a topic in a session in which nothing has happened."""
    now = math.floor(time.time())
    quiet: dict[str, Data] = {
        "overview": {
            "resources": [{"name": "CPU", "total": 2.0, "used": 0.0}],
            "tasks": {},
            "calls": {},
            "actors": {},
            "workers": 0,
            "waiting": [],
            "object_store": {"used": 0, "limit": GIB, "spilled": 0, "objects": 0},
            "history": {
                "time": [now - 1, now],
                "cpu": [1.0, 2.0],
                "memory": [GIB, GIB],
                "memory_limit": 8 * GIB,
                "gpu": [],
                "object_store": [0, 0],
                "running": [0, 0],
            },
        },
        "timeline": {"now": now, "tracks": [], "events": [], "dropped": 0},
        "logs": {"files": []},
        "memory": {"budget": GIB, "used": 0, "spilled": 0, "mapped": 0, "processes": [], "objects": []},
        "runs": {"runs": []},
        "serve": {"applications": [], "proxies": [], "http": None},
        "llm": {"models": []},
    }
    return quiet.get(path, EMPTY_TABLE)
