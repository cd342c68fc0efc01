from __future__ import annotations

import gc
import itertools
import math
import multiprocessing
import operator
import os
import pickle
import queue
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.exceptions import RayActorError, RayError
from skate.util.multiprocessing import Pool, TimeoutError
from skate.util.multiprocessing import pool as pool_module
from skate.util.multiprocessing._job import Chunk, Pace
from skate.util.multiprocessing._slots import FIRST_STUCK_AFTER_S, STUCK_AFTER_S, Slot, Slots
from skate.util.multiprocessing.pool import AsyncResult, PoolTerminatedError, PoolTraceback
from tests.contract.support import EVENT_TIMEOUT_S, Signal, eventually

SIZE = 3


@pytest.fixture
def pool(any_engine: str) -> Iterator[Pool]:
    pool = Pool(SIZE)
    yield pool
    pool.terminate()
    pool.join()


@pytest.fixture
def processes(local: None) -> Iterator[Pool]:
    """A pool of real processes."""
    pool = Pool(SIZE)
    yield pool
    pool.terminate()
    pool.join()


def square(x: int) -> int:
    return x * x


def fail_on_odd(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x


def pid(_: Any = None) -> int:
    return os.getpid()


def wait_for(event: Any) -> str:
    skate.get(event.wait.remote())
    return "waited"


class TestMap:
    def test_gives_the_results_in_order(self, pool: Pool) -> None:
        assert pool.map(square, range(1000)) == [x * x for x in range(1000)]

    def test_takes_lambdas_closures_and_builtins(self, pool: Pool) -> None:
        offset = 10
        assert pool.map(lambda x: x + offset, [1, 2]) == [11, 12]
        assert pool.map(math.sqrt, [4, 9]) == [2, 3]

    def test_takes_any_size_and_chunksize(self, pool: Pool) -> None:
        for count, chunksize in itertools.product([0, 1, SIZE, 25], [None, 1, 2, 7, 1000]):
            assert pool.map(square, range(count), chunksize) == [x * x for x in range(count)]

    def test_takes_a_generator(self, pool: Pool) -> None:
        assert pool.map(square, (x for x in range(5))) == [0, 1, 4, 9, 16]

    def test_raises_the_first_error_though_all_items_are_run(self, pool: Pool, tmp_path: Path) -> None:
        def mark(x: int) -> int:
            (tmp_path / str(x)).touch()
            return fail_on_odd(x)

        with pytest.raises(ValueError, match="1 is odd"):
            pool.map(mark, range(10), chunksize=4)
        assert len(list(tmp_path.iterdir())) == 10

    def test_spreads_short_calls_over_all_processes(self, processes: Pool) -> None:
        processes.map(pid, range(SIZE))  # Let them import this module first.
        counts = Counter(processes.map(pid, range(120)))
        assert len(counts) == SIZE
        assert min(counts.values()) > 20

    def test_gives_each_process_one_of_as_many_items(self, processes: Pool) -> None:
        assert len(set(processes.map(pid, range(SIZE)))) == SIZE

    def test_lets_no_chunk_wait_behind_a_blocked_one(self, processes: Pool) -> None:
        event = Signal.remote()

        def block_on_zero(x: int) -> int:
            if x == 0:
                skate.get(event.wait.remote())
            elif x == 99:
                skate.get(event.send.remote())
            return x

        assert processes.map(block_on_zero, range(100), chunksize=1) == list(range(100))


class TestErrors:
    def test_an_error_shows_where_it_was_raised(self, pool: Pool) -> None:
        with pytest.raises(ValueError, match="3 is odd") as caught:
            pool.apply(fail_on_odd, (3,))
        assert isinstance(caught.value.__cause__, PoolTraceback)
        assert "in fail_on_odd" in str(caught.value.__cause__)

    def test_a_function_that_ends_an_iteration_fails_its_item_only(self, pool: Pool) -> None:
        def first(items: list[int]) -> int:
            return next(iter(items))

        results = list(pool.imap(first, [[1], [], [3], []], chunksize=4))
        assert results[::2] == [1, 3]
        assert all(isinstance(error, StopIteration) for error in results[1::2])

    def test_an_error_that_cannot_be_pickled_still_arrives(self, pool: Pool) -> None:
        class Picky(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__("picky")

        def fail() -> None:
            raise Picky(1, 2)

        with pytest.raises(RayError, match="picky"):
            pool.apply(fail)

    def test_an_argument_that_cannot_be_sent_fails_its_chunk_only(self, processes: Pool) -> None:
        results = processes.imap(type, [1, threading.Lock(), 3])
        assert [next(results), isinstance(next(results), Exception), next(results)] == [int, True, int]
        with pytest.raises(TypeError):
            processes.map(type, [threading.Lock()])

    def test_a_result_that_cannot_be_sent_is_an_error(self, processes: Pool) -> None:
        with pytest.raises(Exception, match="lock"):
            processes.apply(threading.Lock)

    def test_a_dead_process_fails_its_work_and_is_replaced(self, processes: Pool) -> None:
        with pytest.raises(RayActorError):
            processes.apply(lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert sorted(processes.map(square, range(20))) == [x * x for x in range(20)]
        assert len(set(processes.map(pid, range(SIZE)))) == SIZE

    @pytest.mark.parametrize("leave", [lambda: os._exit(3), lambda: exit(3)], ids=["_exit", "exit"])
    def test_a_function_that_leaves_the_process_fails(self, processes: Pool, leave: Any) -> None:
        with pytest.raises(RayError):
            processes.apply(leave)
        assert processes.apply(square, (3,)) == 9


class TestApply:
    def test_passes_all_arguments(self, pool: Pool) -> None:
        assert pool.apply(lambda *args, **kwargs: (args, kwargs), (1, 2), {"x": 3}) == ((1, 2), {"x": 3})
        assert pool.apply(lambda *args, **kwargs: (args, kwargs)) == ((), {})

    def test_a_reference_stays_a_reference(self, pool: Pool) -> None:
        assert pool.apply(skate.get, (skate.put(5),)) == 5
        assert pool.map(skate.get, [skate.put(5)]) == [5]

    def test_many_calls_at_once_all_come_back(self, pool: Pool) -> None:
        results = [pool.apply_async(square, (x,)) for x in range(200)]
        assert [result.get() for result in results] == [x * x for x in range(200)]

    def test_a_result_is_not_ready_before_it_is_there(self, processes: Pool) -> None:
        event = Signal.remote()
        result = processes.apply_async(wait_for, (event,))
        assert not result.ready()
        result.wait(0.01)
        with pytest.raises(TimeoutError):
            result.get(timeout=0.01)
        with pytest.raises(ValueError, match="not ready"):
            result.successful()
        skate.get(event.send.remote())
        result.wait(EVENT_TIMEOUT_S)
        assert result.ready()
        assert result.successful()
        assert result.get() == "waited"

    def test_a_failed_result_says_so_as_often_as_asked(self, pool: Pool) -> None:
        result = pool.apply_async(fail_on_odd, (1,))
        result.wait()
        assert result.ready()
        assert not result.successful()
        for _ in range(2):
            with pytest.raises(ValueError, match="1 is odd"):
                result.get()

    def test_the_time_out_is_that_of_the_standard_library(self) -> None:
        assert TimeoutError is multiprocessing.TimeoutError
        assert pool_module.TimeoutError is multiprocessing.TimeoutError
        assert pool_module.AsyncResult is AsyncResult

    def test_the_only_holder_of_a_result_keeps_its_pool(self, local: None) -> None:
        result = Pool(1).apply_async(square, (3,))
        gc.collect()
        assert result.get() == 9
        del result
        gc.collect()


class TestStarmap:
    def test_unpacks_each_item(self, pool: Pool) -> None:
        assert pool.starmap(operator.add, zip(range(5), range(5), strict=True)) == [0, 2, 4, 6, 8]
        assert pool.starmap(lambda *args: args, [(), (1,), (1, 2)], chunksize=2) == [(), (1,), (1, 2)]
        assert pool.starmap_async(operator.mul, [(2, 3)]).get() == [6]

    def test_an_item_that_cannot_be_unpacked_fails(self, pool: Pool) -> None:
        with pytest.raises(TypeError, match="iterable"):
            pool.starmap(square, [1, 2])


class TestCallbacks:
    def test_a_callback_gets_the_result(self, pool: Pool) -> None:
        seen: queue.Queue[Any] = queue.Queue()
        pool.apply_async(square, (3,), callback=seen.put)
        assert seen.get(timeout=EVENT_TIMEOUT_S) == 9
        pool.map_async(square, range(20), callback=seen.put)
        assert seen.get(timeout=EVENT_TIMEOUT_S) == [x * x for x in range(20)]
        pool.starmap_async(operator.add, [(1, 2)], callback=seen.put)
        assert seen.get(timeout=EVENT_TIMEOUT_S) == [3]

    def test_an_error_callback_gets_the_error_once(self, pool: Pool) -> None:
        seen: queue.Queue[Any] = queue.Queue()
        result = pool.map_async(fail_on_odd, range(20), callback=seen.put, error_callback=seen.put)
        result.wait()
        assert str(seen.get_nowait()) == "1 is odd"
        assert seen.empty()

    def test_a_callback_has_run_when_the_result_is_ready(self, pool: Pool) -> None:
        seen: list[int] = []
        for x in range(20):
            pool.apply_async(square, (x,), callback=seen.append).wait()
            assert len(seen) == x + 1

    def test_a_callback_can_submit_more_work(self, pool: Pool) -> None:
        seen: queue.Queue[int] = queue.Queue()
        pool.apply_async(square, (3,), callback=lambda x: pool.apply_async(square, (x,), callback=seen.put))
        assert seen.get(timeout=EVENT_TIMEOUT_S) == 81

    def test_a_callback_never_runs_in_the_thread_that_submits(self, pool: Pool) -> None:
        lock = threading.Lock()
        seen: queue.Queue[int] = queue.Queue()

        def callback(value: int) -> None:
            with lock:
                seen.put(value)

        with lock:
            results = [pool.apply_async(square, (x,), callback=callback) for x in range(50)]
        for result in results:
            result.wait()
        assert seen.qsize() == 50

    def test_a_callback_that_fails_is_logged_and_does_no_harm(
        self, pool: Pool, caplog: pytest.LogCaptureFixture
    ) -> None:
        result = pool.apply_async(square, (3,), callback=lambda x: x / 0)
        assert result.get() == 9
        assert "ZeroDivisionError" in caplog.text


class TestImap:
    def test_gives_all_results(self, pool: Pool) -> None:
        expected = [x * x for x in range(50)]
        for source, chunksize in itertools.product((list, iter), (None, 1, 3, 100)):
            assert list(pool.imap(square, source(range(50)), chunksize)) == expected
            assert sorted(pool.imap_unordered(square, source(range(50)), chunksize)) == expected

    def test_gives_errors_as_results(self, pool: Pool) -> None:
        results = list(pool.imap(fail_on_odd, range(6), chunksize=4))
        assert results[::2] == [0, 2, 4]
        assert [str(error) for error in results[1::2]] == ["1 is odd", "3 is odd", "5 is odd"]
        assert all(isinstance(error, ValueError) for error in results[1::2])

    def test_of_nothing_ends_at_once_and_stays_ended(self, pool: Pool) -> None:
        results = pool.imap(square, [])
        for _ in range(2):
            with pytest.raises(StopIteration):
                results.next()

    def test_reads_an_endless_iterator_only_as_far_as_needed(self, pool: Pool) -> None:
        counter = itertools.count()
        results = pool.imap(square, counter)
        assert [next(results) for _ in range(10)] == [x * x for x in range(10)]
        assert next(counter) <= 10 + 1 + SIZE * 16

    def test_gives_what_came_before_an_error_of_the_iterator(self, pool: Pool) -> None:
        def items() -> Iterator[int]:
            yield from range(5)
            raise KeyError("broken source")

        results = pool.imap(square, items(), chunksize=2)
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
        with pytest.raises(KeyError, match="broken source"):
            next(results)
        with pytest.raises(StopIteration):
            next(results)

    def test_keeps_the_order_though_a_later_item_is_ready_first(self, processes: Pool) -> None:
        event = Signal.remote()

        def block_on_zero(x: int) -> int:
            if x == 0:
                skate.get(event.wait.remote())
            return x

        results = processes.imap(block_on_zero, range(5))
        with pytest.raises(TimeoutError):
            results.next(timeout=0.05)
        skate.get(event.send.remote())
        assert list(results) == list(range(5))

    def test_unordered_gives_the_item_that_is_ready_first(self, processes: Pool) -> None:
        event = Signal.remote()

        def block_on_zero(x: int) -> int:
            if x == 0:
                skate.get(event.wait.remote())
            return x

        results = processes.imap_unordered(block_on_zero, range(5))
        others = [results.next() for _ in range(4)]
        assert sorted(others) == [1, 2, 3, 4]
        with pytest.raises(TimeoutError):
            results.next(timeout=0.05)
        skate.get(event.send.remote())
        assert list(results) == [0]

    def test_can_be_read_by_several_threads(self, pool: Pool) -> None:
        results = pool.imap_unordered(square, iter(range(200)))
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.extend(results)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [x * x for x in range(200)]


class TestEnd:
    def test_close_lets_the_work_finish(self, local: None) -> None:
        pool = Pool(2)
        event = Signal.remote()
        result = pool.map_async(wait_for, [event] * 8, chunksize=1)
        pool.close()
        with pytest.raises(ValueError, match="not running"):
            pool.apply(square, (1,))
        assert not result.ready()
        skate.get(event.send.remote())
        pool.join()
        assert result.get() == ["waited"] * 8

    def test_close_lets_an_iterator_be_read_to_its_end(self, any_engine: str) -> None:
        pool = Pool(2)
        results = pool.imap(square, iter(range(50)))
        pool.close()
        assert list(results) == [x * x for x in range(50)]
        pool.join()

    def test_join_runs_what_an_iterator_has_not_submitted_yet(self, any_engine: str) -> None:
        pool = Pool(2)
        results = pool.imap(square, iter(range(50)))
        pool.close()
        pool.join()
        assert list(results) == [x * x for x in range(50)]

    def test_join_ends_the_processes(self, local: None) -> None:
        pool = Pool(2)
        pids = set(pool.map(pid, range(2)))
        pool.close()
        pool.join()
        eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in pids))

    def test_terminate_fails_all_that_is_not_done(self, local: None) -> None:
        pool = Pool(2)
        event = Signal.remote()
        results = [pool.map_async(wait_for, [event] * 8), pool.apply_async(wait_for, (event,))]
        iterator = pool.imap(wait_for, [event])
        pool.terminate()
        pool.join()
        for result in results:
            assert result.ready()
            assert not result.successful()
            with pytest.raises(PoolTerminatedError, match="terminated"):
                result.get()
        assert isinstance(next(iterator), PoolTerminatedError)

    def test_both_can_be_called_again(self, any_engine: str) -> None:
        pool = Pool(2)
        pool.close()
        pool.close()
        pool.terminate()
        pool.join()
        pool.join()

    def test_a_pool_must_be_closed_before_it_is_joined(self, pool: Pool) -> None:
        with pytest.raises(ValueError, match="still running"):
            pool.join()

    def test_leaving_the_with_block_terminates(self, any_engine: str) -> None:
        with Pool(2) as pool:
            assert pool.map(square, range(3)) == [0, 1, 4]
        with pytest.raises(ValueError, match="not running"), pool:
            pass

    def test_a_forgotten_pool_goes_away(self, local: None) -> None:
        pool = Pool(2)
        pids = set(pool.map(pid, range(2)))
        del pool
        gc.collect()
        eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in pids))

    def test_a_pool_outlives_its_session_without_harm(self, no_session: None) -> None:
        pool = Pool(2)
        assert pool.map(square, range(3)) == [0, 1, 4]
        skate.shutdown()
        pool.close()
        pool.terminate()
        pool.join()


class TestOptions:
    def test_an_initializer_runs_first_in_every_process(self, local: None, tmp_path: Path) -> None:
        def initialize(folder: Path, text: str) -> None:
            (folder / str(os.getpid())).write_text(text)

        with Pool(SIZE, initialize, (tmp_path, "ready")) as pool:
            assert sorted(p.read_text() for p in tmp_path.iterdir()) == ["ready"] * SIZE
            assert {str(p) for p in pool.map(pid, range(SIZE))} == {p.name for p in tmp_path.iterdir()}

    def test_an_initializer_that_fails_fails_the_pool(self, any_engine: str) -> None:
        def initialize() -> None:
            raise ZeroDivisionError("on purpose")

        with pytest.raises(ZeroDivisionError, match="on purpose"):
            Pool(2, initialize)

    def test_a_replacement_is_initialized_too(self, local: None) -> None:
        def initialize() -> None:
            os.environ["POOL_TEST"] = "ready"

        with Pool(1, initialize, maxtasksperchild=1) as pool:
            assert [pool.apply(lambda: os.environ.get("POOL_TEST")) for _ in range(3)] == ["ready"] * 3

    @pytest.mark.parametrize("most", [1, 2])
    def test_a_process_is_replaced_after_its_share_of_chunks(self, local: None, most: int) -> None:
        with Pool(2, maxtasksperchild=most) as pool:
            counts = Counter(pool.map(pid, range(8), chunksize=1))
        assert max(counts.values()) <= most
        assert sum(counts.values()) == 8

    def test_the_processes_take_actor_options(self, local: None) -> None:
        free = skate.available_resources()["CPU"]
        with Pool(
            2, ray_remote_args={"num_cpus": 1, "runtime_env": {"env_vars": {"POOL_TEST": "1"}}}
        ) as pool:
            assert skate.available_resources().get("CPU", 0) == free - 2
            assert pool.apply(lambda: os.environ.get("POOL_TEST")) == "1"
        eventually(lambda: skate.available_resources()["CPU"] == free)

    def test_by_default_there_are_as_many_processes_as_cpus(self, local: None) -> None:
        with Pool() as pool:
            assert len(set(pool.map(pid, range(4)))) == 4

    def test_a_pool_starts_a_session_of_its_size(self, no_session: None) -> None:
        with Pool(3) as pool:
            assert pool.map(square, [2]) == [4]
            assert skate.cluster_resources()["CPU"] == 3
        with pytest.raises(ValueError, match=r"4 processes.*3 CPUs"):
            Pool(4)
        pool.join()

    def test_pools_can_be_nested(self, no_session: None) -> None:
        skate.init(num_cpus=1)

        def inner(x: int) -> list[float]:
            with Pool() as pool:
                return pool.map(math.sqrt, [x, 4 * x])

        with Pool() as pool:
            assert pool.map(inner, [1, 4]) == [[1.0, 2.0], [2.0, 4.0]]

    def test_a_task_that_waits_for_a_pool_lends_out_its_cpu(self, no_session: None) -> None:
        skate.init(num_cpus=1)

        @skate.remote(num_cpus=1)
        def leaf(x: int) -> int:
            return x + 1

        @skate.remote(num_cpus=1)
        def with_pool() -> list[int]:
            with Pool(1) as pool:
                return pool.map(lambda x: skate.get(leaf.remote(x)), range(3))

        assert skate.get(with_pool.remote()) == [1, 2, 3]

    def test_wrong_arguments_are_refused(self, any_engine: str) -> None:
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="processes"):
                Pool(wrong)
        with pytest.raises(TypeError, match="processes"):
            Pool("two")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="maxtasksperchild"):
            Pool(1, maxtasksperchild=0)
        with pytest.raises(TypeError, match="initializer"):
            Pool(1, initializer=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no_such_option"):
            Pool(1, ray_remote_args={"no_such_option": 1})
        with pytest.warns(UserWarning, match="context"):
            Pool(1, context="spawn").terminate()

    def test_wrong_calls_are_refused_at_once(self, pool: Pool) -> None:
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="chunksize"):
                pool.map(square, [1], chunksize=wrong)
            with pytest.raises(ValueError, match="chunksize"):
                pool.imap(square, [1], chunksize=wrong)
        with pytest.raises(TypeError, match="callable"):
            pool.apply(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"remove @skate\.remote"):
            pool.map(skate.remote(square), [1])
        for method in (pool.map, pool.imap, pool.imap_unordered):
            with pytest.raises(TypeError, match="not iterable"):
                method(square, 3)  # type: ignore[operator]

    def test_a_pool_cannot_be_sent(self, pool: Pool) -> None:
        with pytest.raises(NotImplementedError, match="pickled"):
            pickle.dumps(pool)


class TestPace:
    def test_nothing_waits_behind_a_chunk_of_unknown_length(self) -> None:
        assert (Pace().chunks_per_call, Pace().calls_per_actor) == (1, 1)

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [(0.0, (16, 2)), (0.0003, (3, 2)), (0.1, (1, 2)), (0.3, (1, 1)), (100.0, (1, 1))],
    )
    def test_the_shorter_a_chunk_the_more_go_together(
        self, seconds: float, expected: tuple[int, int]
    ) -> None:
        pace = Pace()
        pace.record(seconds)
        assert (pace.chunks_per_call, pace.calls_per_actor) == expected

    def test_it_follows_a_function_that_becomes_slow(self) -> None:
        pace = Pace()
        for seconds in (0.0, 1.0, 1.0):
            pace.record(seconds)
        assert (pace.chunks_per_call, pace.calls_per_actor) == (1, 1)


class FakeJob:
    """A job of which only the pace matters."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace


class TestSlots:
    """The decisions, with neither actors nor a clock."""

    def slots(self, size: int = 2, max_chunks: int | None = None) -> Slots:
        slots = Slots(size, max_chunks)
        slots.fill(["actor"] * size)
        return slots

    def deal(self, slots: Slots, count: int, pace: Pace | None = None) -> Pace:
        pace = pace or Pace()
        slots.assign(Chunk(FakeJob(pace), index, None) for index in range(count))  # type: ignore[arg-type]
        return pace

    def sent(self, slots: Slots, now: float) -> list[tuple[Slot, list[int]]]:
        """Send all that can go and return it."""
        found = []
        while (chosen := slots.next(now)) is not None:
            found.append((chosen[0], [chunk.index for chunk in chosen[1]]))
        return found

    def test_every_slot_gets_one_chunk_first(self) -> None:
        slots = self.slots(3)
        self.deal(slots, 7)
        sent = self.sent(slots, now=0)
        assert [indices for _, indices in sent] == [[0], [1], [2]]
        assert len({slot for slot, _ in sent}) == 3

    def test_a_slot_goes_on_with_its_own_chunks(self) -> None:
        slots = self.slots(2)
        pace = self.deal(slots, 6)
        (first, _), _ = self.sent(slots, now=0)
        slots.finish_call(first, pace, now=0.01)
        assert self.sent(slots, now=0.01) == [(first, [2])]

    def test_short_chunks_go_together_and_one_call_waits_behind_another(self) -> None:
        slots = self.slots(1)
        pace = self.deal(slots, 100)
        ((slot, _),) = self.sent(slots, now=0)
        pace.record(0.0)
        slots.finish_call(slot, pace, now=0.01)
        assert [len(indices) for _, indices in self.sent(slots, now=0.01)] == [16, 16]

    def test_nothing_is_sent_behind_the_first_chunk_of_another_function(self) -> None:
        slots = self.slots(1)
        short = self.deal(slots, 1)
        ((slot, _),) = self.sent(slots, now=0)
        short.record(0.0)
        slots.finish_call(slot, short, now=0)
        known = Pace()
        known.record(0.0)
        self.deal(slots, 5, known)
        assert [indices for _, indices in self.sent(slots, now=0)] == [[0]]

    def test_an_idle_slot_takes_from_a_stuck_one_but_not_at_once(self) -> None:
        slots = self.slots(2)
        pace = self.deal(slots, 6)
        (first, _), (second, _) = self.sent(slots, now=0)
        slots.finish_call(first, pace, now=1)
        slots.finish_call(second, pace, now=1)
        assert self.sent(slots, now=1) == [(first, [2]), (second, [3])]
        slots.finish_call(second, pace, now=1)
        assert self.sent(slots, now=1) == [(second, [5])]
        slots.finish_call(second, pace, now=1)
        assert self.sent(slots, now=1.01) == []
        assert slots.seconds_to_next(now=1.01) == pytest.approx(STUCK_AFTER_S - 0.01)
        assert self.sent(slots, now=1 + STUCK_AFTER_S) == [(second, [4])]
        assert slots.seconds_to_next(now=1 + STUCK_AFTER_S) is None

    def test_an_actor_may_take_longer_for_its_first_chunk(self) -> None:
        slots = self.slots(2)
        pace = self.deal(slots, 3)
        _, (second, _) = self.sent(slots, now=0)
        slots.finish_call(second, pace, now=0)
        assert slots.seconds_to_next(now=0) == FIRST_STUCK_AFTER_S
        assert self.sent(slots, now=FIRST_STUCK_AFTER_S) == [(second, [2])]

    def test_an_actor_gets_no_more_chunks_than_it_may(self) -> None:
        slots = self.slots(1, max_chunks=3)
        pace = self.deal(slots, 10)
        ((slot, _),) = self.sent(slots, now=0)
        pace.record(0.0)
        assert slots.finish_call(slot, pace, now=0) is None
        assert self.sent(slots, now=0) == [(slot, [1, 2])]
        assert slots.finish_call(slot, pace, now=0) == "actor"
        assert slot.actor is None

    def test_a_chunk_that_could_not_be_sent_with_others_goes_alone(self) -> None:
        slots = self.slots(1)
        pace = self.deal(slots, 4)
        ((slot, _),) = self.sent(slots, now=0)
        pace.record(0.0)
        slots.finish_call(slot, pace, now=0)
        slot.queue[1].is_alone = True
        assert [indices for _, indices in self.sent(slots, now=0)] == [[1], [2]]
