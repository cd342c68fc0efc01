"""The structure of the package: import direction, exports and sizes of modules."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LONGEST_MODULE = 500

_Faults = TypeVar("_Faults", bound=Collection[str])

# Which area may import which. An area is the longest prefix named here that a module's name starts with. The area
# "skate" has the modules that no other prefix names: skate.actor, skate.remote_function, … The libraries use the
# public API and a few modules of `skate._api`, never an engine, which is why they run on every engine.
BASE = {"skate._base", "skate._base.suggestions", "skate.exceptions"}
CORE = {"skate", "skate.exceptions", "skate.util"}
# Also settings, payloads and messages that several libraries need.
SHARED = CORE | {"skate._api", "skate._base.suggestions"}
# The parts of the local engine, from the bottom to the top: each may import those before it.
LOCAL = tuple(
    f"skate._engine.local.{part}"
    for part in ("wire", "session", "state", "client", "worker", "node", "driver")
)
# The parts of training, from the bottom to the top: each may import those before it.
TRAIN = (
    "skate.train._failures",
    "skate.train._reports",
    "skate.train._storage",
    "skate.train._config",
    "skate.train._views",
    "skate.train._workers",
    "skate.train.backend",
    "skate.train._run",
    "skate.train.data_parallel_trainer",
    "skate.train._frameworks",
)
# The parts of datasets. The bottom ones (blocks, expressions, formats, settings) import each other; above them, each
# may import those before it. `skate.data` itself, with the methods of `Dataset` in `_dataset`, is above all of them.
DATA_BASE = {
    f"skate.data.{part}"
    for part in (
        "_aggregates",
        "_arguments",
        "_block",
        "_execution_options",
        "_expressions",
        "_io",
        "_kernels",
        "_schema",
        "_seeds",
        "aggregate",
        "block",
        "checkpoint",
        "collate_fn",
        "context",
        "datasource",
        "datatype",
        "exceptions",
        "expressions",
    )
}
DATA = (
    "skate.data._exec",
    "skate.data._plan",
    "skate.data._compute",
    "skate.data._execution",
    "skate.data._resuming",
    "skate.data._checkpointing",
    "skate.data._iteration",
)
DATASETS = {"skate.data", *(part for part in DATA_BASE if "._" not in part)}  # what is public of it
TRAINING = {"skate.train", *(part for part in TRAIN if "._" not in part)}  # what is public of it
# The parts of serving, from the bottom to the top, below those that talk to each other; each may import those before.
SERVE = (
    "skate.serve._config.defaults",
    "skate.serve._runtime",
    "skate.serve.exceptions",
    "skate.serve._config",
    "skate.serve._autoscaling",
    "skate.serve._schema",
    "skate.serve.config",
    "skate.serve.schema",
    "skate.serve.gang",
    "skate.serve.context",
    "skate.serve.metrics",
    "skate.serve._batching",
    "skate.serve._multiplex",
)
# The parts of Serve on the way of a request, from the bottom to the top: each may import those before it, and the
# modules of Serve that have no row.
SERVE_PATH = (
    "skate.serve._wire",
    "skate.serve._observability",
    "skate.serve._router",
    "skate.serve._replica",
    "skate.serve._proxy",
    "skate.serve._preloaded",
)
SERVING = {"skate.serve", *(part for part in SERVE if "._" not in part)}  # what is public of it
TUNING = SHARED | DATASETS | TRAINING | {"skate.air", "skate.train._reports", "skate.train._storage"}
LIBRARIES = {"skate.air", "skate.tune"} | DATASETS | SERVING | TRAINING
MAY_IMPORT: dict[str, set[str]] = {
    "skate._base": {"skate._base.suggestions"},
    "skate._base.suggestions": set(),
    # The first module of a child process, which stands above everything.
    "skate._base.alias.import_path": {"skate"},
    # Errors are words that everybody uses, from the engines up.
    "skate.exceptions": {"skate._base"},
    "skate._engine": BASE,
    # The engines do not know each other.
    "skate._engine.inline": BASE | {"skate._engine"},
    "skate._engine.local": BASE | {"skate._engine"},
    **{part: BASE | {"skate._engine"} | set(LOCAL[:below]) for below, part in enumerate(LOCAL)},
    "skate._engine.ray": BASE | {"skate._engine"},
    # `_api` starts an engine by its name. All other modules use `skate._engine.abc`.
    "skate._api": BASE | {"skate", "skate._engine", "skate._engine.inline", "skate._engine.ray"} | set(LOCAL),
    "skate": BASE | {"skate._api", "skate._engine"},
    "skate.util": {"skate", "skate._api", "skate._base.suggestions", "skate.exceptions"},
    # Groups of actors, made with the collective operations of `util`.
    "skate.experimental.collective": CORE,
    # Results are looked up in training when they are asked for.
    "skate.air": SHARED | {"skate.air.result"},
    # Older names of training, and callbacks for it and for trials, that Ray keeps here.
    "skate.air.session": {"skate", "skate.train", "skate.train._workers", "skate.tune"},
    "skate.air.result": {"skate.train"},
    "skate.air.integrations": CORE | TRAINING | {"skate.air", "skate.train._run", "skate.tune"},
    **{f"skate.tune.logger.{name}": {"skate.air.integrations"} for name in ("comet", "mlflow", "wandb")},
    **{part: SHARED | {"skate.air"} | DATA_BASE for part in DATA_BASE},
    **{part: SHARED | {"skate.air"} | DATA_BASE | set(DATA[:below]) for below, part in enumerate(DATA)},
    # Readers of a split are public iterators, and can keep their rows as a dataset.
    "skate.data._iteration.splits": SHARED | DATASETS | DATA_BASE | set(DATA),
    "skate.data": SHARED | {"skate.air", "skate.data._iteration.splits"} | DATA_BASE | set(DATA),
    # Training stores the positions of readers in its checkpoints.
    **{
        part: SHARED | DATASETS | {"skate.air", "skate.data._iteration"} | set(TRAIN[:below])
        for below, part in enumerate(TRAIN)
    },
    "skate.train": SHARED | DATASETS | {"skate.air", "skate.data._iteration"} | set(TRAIN),
    # Trials store checkpoints and results as training does, and the run of a trainer knows its trial.
    "skate.tune": TUNING | {"skate.tune._trainers", "skate.tune._workers.trainer_session"},
    "skate.tune._trainers": TUNING | {"skate.train._workers", "skate.tune"},
    "skate.tune._workers.trainer_session": {"skate.train._workers"},
    "skate.tune.integration": SHARED | TRAINING | {"skate.air", "skate.train._frameworks", "skate.tune"},
    **{part: SHARED | {"skate.air"} | set(SERVE[:below]) for below, part in enumerate(SERVE)},
    **{
        part: SHARED | {"skate.air", "skate.serve"} | set(SERVE) | set(SERVE_PATH[:below])
        for below, part in enumerate(SERVE_PATH)
    },
    # A replica and a proxy meet only through the router and the wire.
    "skate.serve._proxy": SHARED | {"skate.air", "skate.serve"} | set(SERVE) | set(SERVE_PATH[:3]),
    "skate.serve._preloaded": SHARED
    | {"skate.serve", "skate.serve._controller"}
    | set(SERVE)
    | set(SERVE_PATH),
    # An application is built of deployments, which know how to pickle themselves in a build, and of handles.
    "skate.serve._build": SHARED | {"skate.air", "skate.serve"} | set(SERVE),
    "skate.serve._controller": SHARED
    | {"skate.air", "skate.serve", "skate.serve._build"}
    | set(SERVE)
    | set(SERVE_PATH[:5]),
    "skate.serve": SHARED
    | DATASETS
    | TRAINING
    | {"skate.air", "skate.serve._build", "skate.serve._controller"}
    | set(SERVE)
    | set(SERVE_PATH),
    # Ray's names for the command lines.
    "skate.scripts": {"skate.cli"},
    "skate.serve.scripts": {"skate.cli"},
    "skate.tune.cli": {"skate.cli"},
    "skate.util.state.state_cli": {"skate.cli"},
    # Engines stand alone: a server and a batch job use them, and they use nothing of Skate.
    "skate.llm._engine": {"skate._base.suggestions"},
    "skate.llm": SHARED | LIBRARIES | {"skate.llm._engine"},
    "skate.serve.llm": SHARED | LIBRARIES | {"skate.llm"},
    "skate.data.llm": SHARED | LIBRARIES | {"skate.llm"},
    "skate.dashboard": SHARED | LIBRARIES | {"skate.serve._controller"},
    # It shows the metrics that all parts of Serve declare.
    "skate.dashboard._grafana": SHARED
    | SERVING
    | {"skate.serve._controller", "skate.serve.llm"}
    | {f"skate.serve.{part}" for part in ("_batching", "_multiplex", "_observability")},
    "skate.cli": SHARED
    | LIBRARIES
    | {"skate.serve._build", "skate.serve._controller", "skate.serve._schema"}
    | {"skate.dashboard", "skate.llm", "skate.serve.llm", "skate.data.llm"},
}

# Ray keeps a part of its core API under `util`. These modules are API, wherever they stand.
API_IN_UTIL = {
    "skate.util._metrics_cells",
    "skate.util._metrics_export",
    "skate.util._metrics_store",
    "skate.util._session",
    "skate.util.check_serialize",
    "skate.util.metrics",
    "skate.util.node",
    "skate.util.placement_group",
    "skate.util.rpdb",
    "skate.util.scheduling_strategies",
    "skate.util.serialization",
    "skate.util.state",
}

# Modules that make decisions, without I/O and without a clock: they stay plain functions of their input.
PURE = (
    "skate._engine.local.state",
    "skate.data._exec.exchanges",
    "skate.data._exec.scheduler",
    "skate.data._exec.operators",
    "skate.data._exec.streaming_operators",
    "skate.data._exec.actor_pool",
    "skate.data._exec.barrier_operators",
    "skate.serve._autoscaling",
    "skate.train._reports.report_ledger",
    "skate.train._workers.liveness",
)
IMPURE = {
    "asyncio",
    "multiprocessing",
    "os",
    "random",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
}

# `import skate` is on the way of every program and every worker.
HEAVY = {"asyncio", "click", "numpy", "psutil", "pyarrow", "rich", "torch"}


# Modules that import a framework which only `make frameworks` installs: tests/frameworks/test_exports.py.
NEED_FRAMEWORK = (
    "skate.air.integrations.keras",
    "skate.train.huggingface.transformers",
    "skate.train.lightgbm",
    "skate.train.lightning",
    "skate.train.tensorflow.keras",
    "skate.train.v2.lightgbm",
    "skate.train.v2.xgboost",
    "skate.train.xgboost",
    "skate.tune.integration.lightgbm",
    "skate.tune.integration.pytorch_lightning",
    "skate.tune.integration.xgboost",
)


@dataclass(frozen=True)
class Module:
    """One source file and its dotted name."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))


def modules_under(source: Path) -> dict[str, Module]:
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def area_of(name: str) -> str:
    """Return the longest prefix in the map that the module's name starts with."""
    while name not in MAY_IMPORT:
        if name in API_IN_UTIL:
            return "skate"
        name = name.rpartition(".")[0]
    return name


def needs_framework(name: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in NEED_FRAMEWORK)


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of all that is imported, also inside functions and by `import_module("name")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=args):
                yield from ((node.lineno, str(a.value)) for a in args[:1] if isinstance(a, ast.Constant))


def wrong_imports(module: Module, known: Collection[str]) -> list[str]:
    """Return a line for each import that the map does not allow."""
    own = area_of(module.name)
    wrong = []
    for line, target in imported_names(module.tree):
        if target.partition(".")[0] != "skate":
            continue
        if target not in known:  # `from skate.x import name`: the module is skate.x
            target = target.rpartition(".")[0] or target
        area = area_of(target)
        if area != own and area not in MAY_IMPORT[own]:
            wrong.append(f"{module.path.name}:{line}: {own} may not import {area} ({target})")
    return wrong


def exported(module: Module) -> list[str] | None:
    """Return the literal `__all__` of a module, or None."""
    for node in module.tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return [str(name) for name in ast.literal_eval(value)]
    return None


def definitions_in_init(module: Module) -> list[str]:
    """Return a line for each statement of an `__init__.py` that is more than a re-export."""
    wrong = []
    for node in module.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()) | ast.If():
                continue
            case ast.Assign(value=ast.Name() | ast.Attribute() | ast.BinOp(op=ast.BitOr())):
                continue  # another name for what is imported, or for one of several
            case ast.FunctionDef(name="__getattr__" | "__dir__"):  # how a subpackage loads lazily
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name.startswith("_"):
                    continue
        wrong.append(f"{module.path}:{node.lineno}: {ast.unparse(node).splitlines()[0]}")
    return wrong


MODULES = modules_under(SOURCE)
PACKAGES = {name: module for name, module in MODULES.items() if module.is_package}
PUBLIC = {name: module for name, module in MODULES.items() if module.is_public}


@cache
def exporting() -> dict[str, Module]:
    """Return the modules with an `__all__`, which needs their syntax trees."""
    return {name: module for name, module in MODULES.items() if exported(module) is not None}


def faults_of(modules: Iterable[str], find: Callable[[str], _Faults]) -> dict[str, _Faults]:
    """Return what is found in each module, without the modules in which nothing is found."""
    return {name: faults for name in modules if (faults := find(name))}


def test_the_source_tree_was_found() -> None:
    assert {"skate", "skate._base", "skate._engine", "skate.util", "skate.exceptions"} <= MODULES.keys()


# Each rule is one test of all modules: a test for each of a thousand modules takes longer than what it checks.


def test_imports_point_downwards() -> None:
    assert faults_of(MODULES, lambda name: wrong_imports(MODULES[name], MODULES.keys())) == {}


def is_pure(name: str) -> bool:
    return any(f"{name}.".startswith(f"{area}.") for area in PURE)


def test_what_decides_does_no_io_and_has_no_clock() -> None:
    def impure(name: str) -> set[str]:
        return IMPURE & {target.partition(".")[0] for _, target in imported_names(MODULES[name].tree)}

    pure = [name for name in MODULES if is_pure(name)]
    assert all(any(f"{name}.".startswith(f"{area}.") for name in pure) for area in PURE)
    assert faults_of(pure, impure) == {}


def test_a_module_is_short_enough_to_read() -> None:
    lines = {name: len(each.path.read_text(encoding="utf-8").splitlines()) for name, each in MODULES.items()}
    long = {name: count for name, count in lines.items() if count > LONGEST_MODULE}
    assert long == {}, f"split them by idea: no module may have more than {LONGEST_MODULE} lines"


def test_a_public_module_says_what_it_is_for() -> None:
    assert [name for name, module in PUBLIC.items() if not ast.get_docstring(module.tree)] == []


def test_an_init_file_only_re_exports() -> None:
    assert faults_of(PACKAGES, lambda name: definitions_in_init(PACKAGES[name])) == {}


def test_a_public_package_names_what_it_exports() -> None:
    assert PACKAGES.keys() & PUBLIC.keys() - exporting().keys() == set(), "a package without __all__"


def wrong_exports(name: str) -> list[str]:
    """Return a line for each name in `__all__` that the module lacks, names twice, or that is private."""
    names = exported(MODULES[name]) or []
    module = importlib.import_module(name)
    return [
        *(f"{each} stands twice" for each, count in Counter(names).items() if count > 1),
        *(f"{each} is missing" for each in names if not hasattr(module, each)),
        *(f"{each} is private" for each in names if each.startswith("_") and each != "__version__"),
    ]


def test_what_is_exported_exists_once_and_is_public() -> None:
    modules = [name for name in exporting() if not needs_framework(name)]
    assert faults_of(modules, wrong_exports) == {}


def test_what_an_init_file_imports_is_exported() -> None:
    def hidden(name: str) -> set[str]:
        imported = {
            alias.asname or alias.name
            for node in PACKAGES[name].tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "skate"
            for alias in node.names
        }
        return {each for each in imported if not each.startswith("_")} - set(exported(PACKAGES[name]) or [])

    assert faults_of(PACKAGES.keys() & exporting().keys(), hidden) == {}


def test_importing_skate_is_light() -> None:
    program = "import sys; import skate; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "skate" in loaded
    assert HEAVY & set(loaded) == set()


def test_a_first_task_imports_neither_a_debugger_nor_tools_for_files(tmp_path: Path) -> None:
    """Each of these modules imports several others, in the driver and in the template of all workers."""
    script = tmp_path / "first_task.py"
    script.write_text(
        "import sys, skate\n"
        "modules = skate.remote(lambda: list(sys.modules))\n"
        "print(*sys.modules, *skate.get(modules.remote()))\n"
        "print(*sys.modules)\n"
    )
    loaded = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded.count("skate") == 3
    assert {"pathlib", "pdb", "random", "shutil", "tempfile", "urllib"} & set(loaded) == set()


def test_the_package_and_its_metadata_agree_on_the_version() -> None:
    skate = importlib.import_module("skate")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert skate.__version__ == declared


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in declared} - {"skate"}
    pins = [
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert len(pins) == len(set(pins))
    assert names - set(pins) == set()


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "skate" / "py.typed").is_file()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the source folder of a package that breaks each rule once."""
    files = {
        "skate/__init__.py": "from skate.actor import kill, _hidden\n__all__ = ['kill']\ndef get(): ...\n",
        "skate/actor.py": "from skate._engine import protocol\n",
        "skate/_base/__init__.py": "",
        "skate/_base/ids.py": "import os\n",
        "skate/_engine/__init__.py": "",
        "skate/_engine/protocol.py": "def f():\n    from skate import actor\n",
        "skate/_engine/inline/__init__.py": "import importlib as i\ni.import_module('skate._engine.local')\n",
        "skate/_engine/local/__init__.py": "import skate._base\n",
        "skate/util/__init__.py": "import skate\nfrom skate._base import ids, nothing\n",
        "skate/util/state.py": "import skate._engine\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_upward_import_is_found_even_inside_a_function(tree: Path) -> None:
    modules = modules_under(tree)
    found = {name: wrong_imports(module, modules) for name, module in modules.items()}
    assert {name: lines for name, lines in found.items() if lines} == {
        "skate._engine.protocol": ["protocol.py:2: skate._engine may not import skate (skate.actor)"],
        "skate._engine.inline": [
            "__init__.py:2: skate._engine.inline may not import skate._engine.local (skate._engine.local)"
        ],
        "skate.util": [
            "__init__.py:2: skate.util may not import skate._base (skate._base.ids)",
            "__init__.py:2: skate.util may not import skate._base (skate._base)",
        ],
    }


def test_a_definition_in_an_init_file_is_found(tree: Path) -> None:
    (found,) = definitions_in_init(modules_under(tree)["skate"])
    assert found.endswith("__init__.py:3: def get():")
