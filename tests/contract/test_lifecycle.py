"""Sessions: starting, ending, starting again, and what is left of an old one."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import skate
from tests.contract.support import EVENT_TIMEOUT_S, Counter, eventually
from tests.plugins.sessions import NUM_CPUS, Arguments, Start


@skate.remote
def echo(value: Any) -> Any:
    return value


def script(body: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(body)]


@pytest.fixture
def environment(engine_name: str, init_arguments: Arguments) -> dict[str, str]:
    """Variables that give a program of its own the engine of the test."""
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PYTHONPATH": paths, "SKATE_ENGINE": engine_name}
    if engine_name == "ray":
        variables["SKATE_ADDRESS"] = init_arguments({})["address"]
    return variables


def test_is_initialized_follows_init_and_shutdown(fresh: Start) -> None:
    assert skate.is_initialized() is False
    fresh()
    assert skate.is_initialized() is True
    skate.shutdown()
    assert skate.is_initialized() is False


def test_shutdown_twice_is_the_same_as_once(fresh: Start) -> None:
    fresh()
    skate.shutdown()
    skate.shutdown()


def test_shutdown_without_init_does_nothing(fresh: Start) -> None:
    skate.shutdown()


def test_init_twice_is_a_runtime_error(fresh: Start) -> None:
    fresh()
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        fresh()
    assert skate.get(echo.remote(1)) == 1


def test_init_twice_is_allowed_when_asked(fresh: Start) -> None:
    fresh()
    ref = skate.put(1)
    fresh(ignore_reinit_error=True)
    assert skate.get(ref) == 1


def test_init_after_shutdown_starts_a_new_session(fresh: Start) -> None:
    for cpus in (NUM_CPUS, 2):
        fresh(num_cpus=cpus)
        assert skate.cluster_resources()["CPU"] == cpus
        assert skate.get(echo.remote(cpus)) == cpus
        skate.shutdown()


def test_a_function_defined_before_init_runs_in_every_session(fresh: Start) -> None:
    @skate.remote
    def one() -> int:
        return 1

    for _ in range(2):
        fresh()
        assert skate.get(one.remote()) == 1
        skate.shutdown()


def test_an_actor_class_defined_before_init_works_in_every_session(fresh: Start) -> None:
    for start in (1, 2):
        fresh()
        assert skate.get(Counter.remote(start).read.remote()) == start
        skate.shutdown()


def test_init_returns_a_context_manager_that_shuts_down(fresh: Start) -> None:
    with fresh():
        assert skate.get(echo.remote(1)) == 1
    assert not skate.is_initialized()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_init_returns_facts_about_the_session(fresh: Start) -> None:
    context = fresh()
    assert context.address_info["node_id"] == skate.get_runtime_context().get_node_id()
    assert context["node_id"] == context.address_info["node_id"]
    assert context.python_version == ".".join(map(str, sys.version_info[:3]))


def test_disconnect_of_the_context_shuts_down(fresh: Start) -> None:
    fresh().disconnect()
    assert not skate.is_initialized()


def test_get_after_shutdown_is_an_error(fresh: Start) -> None:
    fresh()
    ref = echo.remote(1)
    skate.get(ref)
    skate.shutdown()
    with pytest.raises((skate.exceptions.RayError, RuntimeError, ValueError)):
        skate.get(ref)


def test_a_ref_of_another_session_is_an_error(fresh: Start) -> None:
    fresh()
    ref = skate.put([1, 2, 3])
    skate.shutdown()
    fresh()
    with pytest.raises((skate.exceptions.RayError, RuntimeError, ValueError), match=r"(?i)session"):
        skate.get(ref)
    assert skate.get(echo.remote(1)) == 1


def test_a_ref_of_another_session_as_an_argument_is_an_error(fresh: Start) -> None:
    fresh()
    ref = skate.put(1)
    skate.shutdown()
    fresh()
    with pytest.raises((skate.exceptions.RayError, RuntimeError, ValueError), match=r"(?i)session"):
        skate.get(echo.remote(ref))


def test_a_handle_of_another_session_is_an_error(fresh: Start) -> None:
    fresh()
    counter = Counter.remote()
    skate.get(counter.read.remote())
    skate.shutdown()
    fresh()
    with pytest.raises((skate.exceptions.RayError, RuntimeError, ValueError), match=r"(?i)session"):
        skate.get(counter.read.remote())


def test_waiting_for_refs_of_another_session_alone_is_an_error(fresh: Start) -> None:
    fresh()
    old = [skate.put(1), echo.remote(2)]
    skate.shutdown()
    fresh()
    new = skate.put(3)
    ready, rest = skate.wait([*old, new], num_returns=2)
    assert skate.get(ready) == [3]
    assert len(rest) == 2
    for refs in ([old[0]], old):
        with pytest.raises(ValueError, match="owner is unknown"):
            skate.wait(refs)


def test_killing_an_actor_of_another_session_is_an_error(fresh: Start) -> None:
    fresh()
    counter = Counter.remote()
    skate.shutdown()
    fresh()
    with pytest.raises(skate.exceptions.ActorHandleNotFoundError, match="not valid across Ray sessions"):
        skate.kill(counter)


def test_dropping_refs_after_shutdown_is_harmless(fresh: Start) -> None:
    fresh()
    refs = [skate.put(i) for i in range(10)]
    counter = Counter.remote()
    skate.shutdown()
    del refs, counter


def test_an_array_stays_readable_after_shutdown(fresh: Start) -> None:
    np = pytest.importorskip("numpy")
    fresh()
    array = skate.get(skate.put(np.arange(1_000_000)))
    skate.shutdown()
    assert array[-1] == 999_999
    del array


def test_shutdown_ends_running_tasks(fresh: Start) -> None:
    fresh()

    @skate.remote
    def sleep() -> None:
        import time

        time.sleep(10 * EVENT_TIMEOUT_S)

    refs = [sleep.remote() for _ in range(3)]
    assert skate.wait(refs, timeout=0) == ([], refs)
    skate.shutdown()


def test_shutdown_ends_actors(fresh: Start) -> None:
    fresh()
    counters = [Counter.options(lifetime="detached", name=f"c{i}").remote() for i in range(3)]
    skate.get([counter.read.remote() for counter in counters])
    skate.shutdown()


@pytest.mark.parametrize("call", ["skate.put(1)", "skate.get(f.remote())", "A.remote()"])
def test_the_first_call_starts_a_session_by_itself(environment: dict[str, str], call: str) -> None:
    body = f"""
        import skate

        @skate.remote
        def f():
            return 1

        @skate.remote
        class A:
            pass

        assert not skate.is_initialized()
        {call}
        assert skate.is_initialized()
    """
    result = subprocess.run(script(body), env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_environment_variable_chooses_the_engine(engine_name: str, environment: dict[str, str]) -> None:
    body = """
        import skate

        print(skate.init()["engine"])
        skate.shutdown()
    """
    result = subprocess.run(script(body), env=environment, capture_output=True, text=True)
    assert result.stdout.split() == [engine_name], result.stderr


def test_a_script_without_shutdown_ends_cleanly(environment: dict[str, str]) -> None:
    body = """
        import skate

        skate.init()

        @skate.remote
        class Holder:
            def ping(self):
                return "pong"

        holder = Holder.remote()
        print(skate.get(holder.ping.remote()))
    """
    result = subprocess.run(script(body), env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout.split()) == (0, ["pong"]), result.stderr


def test_a_script_that_fails_ends_with_its_own_error(environment: dict[str, str]) -> None:
    body = """
        import skate

        skate.init()

        @skate.remote(max_retries=0)
        def fail():
            raise ValueError("the reason")

        skate.get(fail.remote())
    """
    result = subprocess.run(script(body), env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "the reason" in result.stderr


BUSY = """
    import skate, sys, time

    skate.init()

    @skate.remote
    def sleep(path):
        open(path, "w").close()
        time.sleep(300)

    @skate.remote
    class Holder:
        def ping(self):
            return "pong"

    holder = Holder.remote()
    skate.get(holder.ping.remote())
    keep = skate.put(b"x" * 1_000_000)
    skate.get(sleep.remote(sys.argv[1]))
"""


@pytest.mark.parametrize("signal", [signals.SIGINT, signals.SIGTERM, signals.SIGKILL], ids=lambda s: s.name)
def test_a_driver_ended_by_a_signal_leaves_nothing(
    environment: dict[str, str], tmp_path: Path, signal: signals.Signals
) -> None:
    # What is left, if anything, is found by the leak check after this test.
    started = tmp_path / "started"
    driver = subprocess.Popen(
        [*script(BUSY), str(started)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        eventually(lambda: started.exists() or driver.poll() is not None)
        driver.send_signal(signal)
        output, _ = driver.communicate(timeout=EVENT_TIMEOUT_S)
    finally:
        driver.kill()
        driver.communicate()
    assert driver.returncode != 0, output


def test_tasks_cannot_start_a_session_of_their_own(fresh: Start) -> None:
    fresh()

    @skate.remote(max_retries=0)
    def nested() -> bool:
        skate.init(ignore_reinit_error=True)
        return skate.is_initialized()

    assert skate.get(nested.remote()) is True
    assert skate.get(echo.remote(1)) == 1


def test_a_program_that_multiprocessing_has_spawned_can_use_its_own_functions(
    tmp_path: Path, init_arguments: Arguments
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing

            import skate


            def double(x):
                return 2 * x


            def child(number):
                skate.init(**{init_arguments({})!r})
                task = skate.remote(lambda x: double(x))
                try:
                    return skate.get([task.remote(number), skate.remote(double).remote(number)])
                finally:
                    skate.shutdown()


            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(child, [21]))
            """
        )
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("[[42, 42]]"), done.stderr
