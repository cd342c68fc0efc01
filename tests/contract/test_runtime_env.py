"""Runtime environments: variables, folders, modules and packages per job, task and actor."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.runtime_env import RuntimeEnv
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@skate.remote
class Reader:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)


def env(**variables: str) -> dict[str, Any]:
    return {"env_vars": variables}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file and a module that is nowhere else."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "data.txt").write_text("from the folder")
    (tmp_path / "code" / "contract_module.py").write_text("ANSWER = 42\n")
    return tmp_path / "code"


@skate.remote
def read_file(name: str) -> str:
    return Path(name).read_text()


@skate.remote
def import_module(name: str, attribute: str) -> Any:
    import importlib

    return getattr(importlib.import_module(name), attribute)


def test_a_task_sees_its_variables() -> None:
    assert skate.get(variable.options(runtime_env=env(COLOUR="blue")).remote("COLOUR")) == "blue"


def test_variables_of_one_task_are_not_seen_by_another() -> None:
    skate.get(variable.options(runtime_env=env(SECRET="x")).remote("SECRET"))
    assert skate.get([variable.remote("SECRET") for _ in range(4)]) == [None] * 4


def test_variables_are_not_seen_by_the_driver() -> None:
    skate.get(variable.options(runtime_env=env(REMOTE_ONLY="x")).remote("REMOTE_ONLY"))
    assert "REMOTE_ONLY" not in os.environ


def test_an_actor_sees_its_variables() -> None:
    reader = Reader.options(runtime_env=env(COLOUR="green")).remote()
    assert skate.get([reader.variable.remote("COLOUR") for _ in range(2)]) == ["green", "green"]


def test_two_actors_see_their_own_variables() -> None:
    readers = [Reader.options(runtime_env=env(WHO=name)).remote() for name in ("a", "b")]
    assert skate.get([reader.variable.remote("WHO") for reader in readers]) == ["a", "b"]


def test_the_decorator_takes_a_runtime_env() -> None:
    @skate.remote(runtime_env=env(DECORATED="yes"))
    def read() -> str | None:
        return os.environ.get("DECORATED")

    assert skate.get(read.remote()) == "yes"


def test_a_runtime_env_object_works_like_a_dict() -> None:
    environment = RuntimeEnv(env_vars={"TYPED": "yes"})
    assert skate.get(variable.options(runtime_env=environment).remote("TYPED")) == "yes"


def test_a_field_that_resembles_no_known_one_is_ignored() -> None:
    environment = {"LOG_EVERY_TASK": "1", "env_vars": {"COLOUR": "blue"}}
    assert skate.get(variable.options(runtime_env=environment).remote("COLOUR")) == "blue"


def test_a_child_task_inherits_the_variables_of_its_parent() -> None:
    @skate.remote
    def parent() -> str | None:
        return skate.get(variable.remote("INHERITED"))

    assert skate.get(parent.options(runtime_env=env(INHERITED="yes")).remote()) == "yes"


def test_variables_of_a_child_add_to_those_of_its_parent() -> None:
    @skate.remote
    def both() -> tuple[str | None, str | None]:
        return os.environ.get("OUTER"), os.environ.get("INNER")

    @skate.remote
    def parent() -> Any:
        return skate.get(both.options(runtime_env=env(INNER="2")).remote())

    assert skate.get(parent.options(runtime_env=env(OUTER="1")).remote()) == ("1", "2")


def test_variables_of_a_job_reach_every_task(fresh: Start) -> None:
    fresh(runtime_env=env(JOB="mine"))
    assert skate.get(variable.remote("JOB")) == "mine"
    assert skate.get(Reader.remote().variable.remote("JOB")) == "mine"


def test_variables_of_a_task_win_over_those_of_the_job(fresh: Start) -> None:
    fresh(runtime_env=env(LEVEL="job", KEPT="job"))
    task = variable.options(runtime_env=env(LEVEL="task"))
    assert skate.get([task.remote("LEVEL"), task.remote("KEPT")]) == ["task", "job"]


def test_a_variable_may_refer_to_an_older_value(fresh: Start) -> None:
    fresh(runtime_env=env(PATH="${PATH}:/extra/bin"))
    path = skate.get(variable.remote("PATH"))
    assert path.endswith(":/extra/bin")
    assert path.startswith(os.environ["PATH"].split(":")[0])


def test_the_runtime_context_shows_the_environment() -> None:
    @skate.remote
    def shown() -> Any:
        return dict(skate.get_runtime_context().runtime_env)

    assert skate.get(shown.options(runtime_env=env(SHOWN="1")).remote())["env_vars"] == {"SHOWN": "1"}


def test_working_dir_of_a_job_is_where_its_tasks_run(fresh: Start, folder: Path) -> None:
    fresh(runtime_env={"working_dir": str(folder)})
    assert skate.get(read_file.remote("data.txt")) == "from the folder"


def test_modules_in_the_working_dir_can_be_imported(fresh: Start, folder: Path) -> None:
    fresh(runtime_env={"working_dir": str(folder)})
    assert skate.get(import_module.remote("contract_module", "ANSWER")) == 42


def test_working_dir_is_a_copy(fresh: Start, folder: Path) -> None:
    fresh(runtime_env={"working_dir": str(folder)})

    @skate.remote
    def overwrite() -> str:
        Path("data.txt").write_text("changed")
        return os.getcwd()

    assert skate.get(overwrite.remote()) != str(folder)
    assert (folder / "data.txt").read_text() == "from the folder"


def test_changes_in_a_working_dir_do_not_reach_the_next_session(fresh: Start, folder: Path) -> None:
    @skate.remote
    def overwrite() -> None:
        Path("data.txt").write_text("changed")

    fresh(runtime_env={"working_dir": str(folder)})
    skate.get(overwrite.remote())
    skate.shutdown()
    fresh(runtime_env={"working_dir": str(folder)})
    assert skate.get(read_file.remote("data.txt")) == "from the folder"


def test_excludes_leave_files_out_of_the_working_dir(fresh: Start, folder: Path) -> None:
    (folder / "skip.bin").write_text("large")
    fresh(runtime_env={"working_dir": str(folder), "excludes": ["*.bin"]})

    @skate.remote
    def names() -> list[str]:
        return sorted(os.listdir())

    found = skate.get(names.remote())
    assert "data.txt" in found
    assert "skip.bin" not in found


@pytest.fixture
def archive(folder: Path) -> str:
    """The folder as an archive, by its URI."""
    return Path(shutil.make_archive(str(folder), "zip", folder)).as_uri()


def test_an_actor_may_have_a_working_dir_of_its_own(archive: str) -> None:
    @skate.remote
    class FileReader:
        def read(self, name: str) -> str:
            return Path(name).read_text()

    reader = FileReader.options(runtime_env={"working_dir": archive}).remote()
    assert skate.get(reader.read.remote("data.txt")) == "from the folder"


def test_a_task_may_have_a_working_dir_of_its_own(archive: str) -> None:
    task = read_file.options(runtime_env={"working_dir": archive})
    assert skate.get(task.remote("data.txt")) == "from the folder"
    with pytest.raises(FileNotFoundError):
        skate.get(read_file.remote("data.txt"))


def test_a_local_working_dir_belongs_to_a_job(folder: Path) -> None:
    with pytest.raises(ValueError, match="init"):
        read_file.options(runtime_env={"working_dir": str(folder)}).remote("data.txt")


def test_py_modules_can_be_imported(fresh: Start, tmp_path: Path) -> None:
    package = tmp_path / "contract_package"
    package.mkdir()
    (package / "__init__.py").write_text("NAME = 'packaged'\n")
    fresh(runtime_env={"py_modules": [str(package)]})
    assert skate.get(import_module.remote("contract_package", "NAME")) == "packaged"


def test_a_setup_hook_runs_in_every_worker(fresh: Start) -> None:
    def set_up() -> None:
        os.environ["HOOKED"] = "yes"

    fresh(runtime_env={"worker_process_setup_hook": set_up})
    assert skate.get([variable.remote("HOOKED"), Reader.remote().variable.remote("HOOKED")]) == ["yes", "yes"]


def break_set_up() -> None:
    raise ValueError("the hook is broken")


@pytest.mark.parametrize("hook", ["contract_hooks.that_is_nowhere", break_set_up])
def test_a_setup_hook_that_fails_fails_the_tasks(fresh: Start, hook: Any) -> None:
    fresh(runtime_env={"worker_process_setup_hook": hook})
    with pytest.raises(skate.exceptions.RuntimeEnvSetupError, match="execute the setup hook method"):
        skate.get(variable.remote("HOOKED"))


@pytest.mark.parametrize("hook", ["contract_hooks.that_is_nowhere", break_set_up])
def test_a_setup_hook_that_fails_fails_the_actors(fresh: Start, hook: Any) -> None:
    fresh(runtime_env={"worker_process_setup_hook": hook})
    with pytest.raises(skate.exceptions.RayActorError, match="execute the setup hook method"):
        skate.get(Reader.remote().variable.remote("HOOKED"))


def make_wheel(folder: Path, name: str) -> Path:
    """Write a wheel with one module by hand: installing it needs no index and no build tool."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "VALUE = 'installed'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_package_is_installed_for_one_actor_only(tool: str, tmp_path: Path) -> None:
    if tool == "uv" and shutil.which("uv") is None:
        pytest.skip("uv is not installed")

    @skate.remote
    class Importer:
        def value(self, module: str) -> Any:
            import importlib

            return importlib.import_module(module).VALUE

    module = f"skate_contract_{tool}"
    wheel = make_wheel(tmp_path, module)
    importer = Importer.options(runtime_env={tool: [str(wheel)]}).remote()
    assert skate.get(importer.value.remote(module)) == "installed"
    with pytest.raises(ModuleNotFoundError):
        skate.get(Importer.remote().value.remote(module))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_package_that_cannot_be_installed_fails_the_task(tmp_path: Path) -> None:
    missing = tmp_path / "missing-1.0-py3-none-any.whl"
    with pytest.raises(skate.exceptions.RuntimeEnvSetupError, match=r"missing-1\.0"):
        skate.get(variable.options(runtime_env={"pip": [str(missing)]}).remote("X"))
    assert skate.get(variable.remote("X")) is None


@pytest.mark.parametrize(
    ("environment", "error", "words"),
    [
        ({"env_var": {"A": "1"}}, ValueError, "env_var"),
        ({"env_vars": {"A": 1}}, TypeError, "env_vars"),
        ({"env_vars": ["A=1"]}, TypeError, "env_vars"),
        ({"working_dir": 3}, TypeError, "working_dir"),
        ({"pip": 3}, TypeError, "pip"),
        ({"pip": ["a"], "uv": ["a"]}, ValueError, "pip"),
        ({"excludes": "*.bin"}, TypeError, "excludes"),
        ({"py_modules": "module"}, TypeError, "py_modules"),
    ],
    ids=[
        "misspelt",
        "number",
        "list",
        "folder_number",
        "pip_number",
        "pip_and_uv",
        "exclude_text",
        "module_text",
    ],
)
def test_a_wrong_environment_is_refused(environment: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        variable.options(runtime_env=environment).remote("A")


def test_a_working_dir_that_does_not_exist_is_refused(fresh: Start, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        fresh(runtime_env={"working_dir": str(tmp_path / "nowhere")})
    assert not skate.is_initialized()
