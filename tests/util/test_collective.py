from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

np: Any = pytest.importorskip("numpy")
torch: Any = pytest.importorskip("torch")

import skate  # noqa: E402
from skate.util import _session  # noqa: E402
from skate.util import collective as col  # noqa: E402
from skate.util.collective._rendezvous import Rendezvous  # noqa: E402
from skate.util.collective._torch import tensor_of  # noqa: E402
from skate.util.collective.types import Backend, ReduceOp  # noqa: E402

# Importing torch in a fresh process can take seconds on a busy machine, the first time.
FIRST_TIME_MS = 60_000


@pytest.fixture(scope="module")
def session(leak_watch: Any) -> Iterator[None]:
    """One session for the module: importing torch in every worker takes long."""
    skate.init(num_cpus=4, preload=["torch"])
    leak_watch.session_is_shared = True
    yield
    skate.shutdown()
    leak_watch.session_is_shared = False


class Member:
    """An actor that does what it is told."""

    def join(self, world_size: int, rank: int, name: str = "default", timeout: int = FIRST_TIME_MS) -> bool:
        col.init_collective_group(world_size, rank, "gloo", name, timeout)
        return True

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def pid(self) -> int:
        return os.getpid()


Members = list[Any]


def start(count: int) -> Members:
    return [skate.remote(num_cpus=0)(Member).remote() for _ in range(count)]


@pytest.fixture(scope="module")
def members(session: None) -> Members:
    """Three actors, connected in the group "default"."""
    actors = start(3)
    assert skate.get([actor.join.remote(3, rank) for rank, actor in enumerate(actors)]) == [True] * 3
    return actors


def everywhere(members: Members, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run ``function(rank, *args)`` in all members at once."""
    calls = [actor.run.remote(function, rank, *args) for rank, actor in enumerate(members)]
    return list(skate.get(calls))


class TestOperations:
    @pytest.mark.parametrize(
        ("op", "expected"),
        [(ReduceOp.SUM, 9), (ReduceOp.PRODUCT, 24), (ReduceOp.MIN, 2), (ReduceOp.MAX, 4)],
    )
    def test_allreduce_gives_every_rank_the_reduction(
        self, members: Members, op: ReduceOp, expected: float
    ) -> None:
        def work(rank: int) -> Any:
            array, tensor = np.full(5, rank + 2.0), torch.full((2, 2), rank + 2)
            col.allreduce(array, op=op)
            col.allreduce(tensor, op=op)
            return array.tolist(), tensor.tolist()

        assert everywhere(members, work) == [([expected] * 5, [[expected] * 2] * 2)] * 3

    @pytest.mark.parametrize(
        "dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "complex64"]
    )
    def test_arrays_of_many_dtypes_can_be_reduced(self, members: Members, dtype: str) -> None:
        def work(rank: int) -> Any:
            array = np.ones(3, dtype=dtype)
            col.allreduce(array)
            return array.tolist()

        assert everywhere(members, work) == [[3, 3, 3]] * 3

    def test_a_large_array_is_reduced(self, members: Members) -> None:
        def work(rank: int) -> Any:
            array = np.full(1 << 18, rank, dtype=np.float32)
            col.allreduce(array)
            return float(array.min()), float(array.max())

        assert everywhere(members, work) == [(3, 3)] * 3

    @pytest.mark.parametrize("dst", [0, 2])
    def test_reduce_changes_only_the_destination(self, members: Members, dst: int) -> None:
        def work(rank: int) -> Any:
            array = np.arange(4.0) + rank
            col.reduce(array, dst)
            return array.tolist()

        expected = [[0.0 + rank, 1.0 + rank, 2.0 + rank, 3.0 + rank] for rank in range(3)]
        expected[dst] = [3.0, 6.0, 9.0, 12.0]
        assert everywhere(members, work) == expected

    @pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "uint16"])
    def test_broadcast_gives_every_rank_the_sources_tensor(self, members: Members, dtype: str) -> None:
        def work(rank: int) -> Any:
            array = np.full((2, 3), rank, dtype=dtype)
            col.broadcast(array, src_rank=1)
            return array.tolist()

        assert everywhere(members, work) == [[[1, 1, 1], [1, 1, 1]]] * 3

    def test_allgather_collects_the_tensors_of_all_ranks(self, members: Members) -> None:
        def work(rank: int) -> Any:
            into = [np.zeros(2), torch.zeros(2, dtype=torch.float64), np.zeros(2)]
            col.allgather(into, torch.full((2,), float(rank), dtype=torch.float64))
            return [part.tolist() for part in into]

        assert everywhere(members, work) == [[[0, 0], [1, 1], [2, 2]]] * 3

    def test_reducescatter_gives_every_rank_its_share(self, members: Members) -> None:
        def work(rank: int) -> Any:
            output = np.zeros(2)
            col.reducescatter(output, [np.full(2, 10.0 * share + rank) for share in range(3)])
            return output.tolist()

        assert everywhere(members, work) == [[3, 3], [33, 33], [63, 63]]

    def test_send_and_recv_connect_two_ranks(self, members: Members) -> None:
        def work(rank: int) -> Any:
            tensor = torch.full((3,), float(rank))
            if rank == 0:
                col.send(tensor, 2)
            elif rank == 2:
                col.recv(tensor, 0)
            return tensor.tolist()

        assert everywhere(members, work) == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]

    def test_barrier_waits_for_all(self, members: Members) -> None:
        def wait(rank: int) -> None:
            col.barrier()

        early = [actor.run.remote(wait, rank) for rank, actor in enumerate(members[:2])]
        ready, _ = skate.wait(early, num_returns=1, timeout=0.2)
        assert ready == []
        skate.get([*early, members[2].run.remote(wait, 2)])

    def test_operations_work_in_place_on_views_and_parameters(self, members: Members) -> None:
        def work(rank: int) -> Any:
            matrix = np.ones((2, 4))
            col.allreduce(matrix[:, ::2])
            parameter = torch.nn.Parameter(torch.ones(2))
            col.allreduce(parameter)
            return matrix.tolist(), parameter.tolist()

        assert everywhere(members, work) == [([[3, 1, 3, 1]] * 2, [3, 3])] * 3

    def test_a_read_only_array_is_refused_only_where_it_is_written(self, members: Members) -> None:
        def work(rank: int) -> Any:
            array = np.full(2, rank)
            array.flags.writeable = False
            with pytest.raises(ValueError, match=r"read-only.*copy"):
                col.allreduce(array)
            into = [np.zeros(2, dtype=array.dtype) for _ in range(3)]
            col.allgather(into, array)
            return [part.tolist() for part in into]

        assert everywhere(members, work) == [[[0, 0], [1, 1], [2, 2]]] * 3

    def test_wrong_operands_are_refused_before_anything_is_sent(self, members: Members) -> None:
        def work(rank: int) -> None:
            ones = np.ones(2)
            with pytest.raises(ValueError, match="Rank 3 is not in collective group 'default'"):
                col.broadcast(ones, 3)
            with pytest.raises(ValueError, match="Rank -1"):
                col.reduce(ones, -1)
            with pytest.raises(RuntimeError, match="cannot send to itself"):
                col.send(ones, rank)
            with pytest.raises(RuntimeError, match="cannot send to itself"):
                col.recv(ones, rank)
            with pytest.raises(ValueError, match="list of 3 tensors, one per rank; got 1"):
                col.allgather([ones], ones)
            with pytest.raises(TypeError, match="takes a list"):
                col.reducescatter(ones, ones)
            with pytest.raises(TypeError, match="tensors and NumPy arrays, got int"):
                col.allreduce(1)
            with pytest.raises(TypeError, match="no equivalent of arrays of dtype object"):
                col.allreduce(np.array([None]))
            with pytest.raises(TypeError, match=r"cannot reduce torch\.int16"):
                col.allreduce(torch.ones(1, dtype=torch.int16))
            with pytest.raises(TypeError, match="must be a ReduceOp"):
                col.allreduce(ones, op="sum")  # type: ignore[arg-type]

        everywhere(members, work)


class TestGroups:
    def test_a_member_knows_its_rank_and_the_size_of_the_group(self, members: Members) -> None:
        def work(rank: int) -> Any:
            return col.get_rank(), col.get_collective_group_size(), col.is_group_initialized("default")

        assert everywhere(members, work) == [(0, 3, True), (1, 3, True), (2, 3, True)]

    def test_a_process_outside_of_a_group_has_rank_minus_one(self, session: None) -> None:
        assert (col.get_rank("x"), col.get_collective_group_size("x")) == (-1, -1)
        assert not col.is_group_initialized("x")
        with pytest.raises(RuntimeError, match="not in a collective group 'x'"):
            col.allreduce(np.ones(1), "x")

    def test_a_process_can_be_in_many_groups_with_different_ranks(self, members: Members) -> None:
        for name in ("second", "123?34!"):
            skate.get([actor.join.remote(3, 2 - rank, name) for rank, actor in enumerate(members)])

        def work(rank: int) -> Any:
            array = np.full(1, float(rank))
            col.broadcast(array, 0, "second")
            ranks = [col.get_rank(name) for name in ("default", "second", "123?34!")]
            for name in ("second", "123?34!"):
                col.destroy_collective_group(name)
            return array.tolist(), ranks

        assert everywhere(members, work) == [([2.0], [rank, 2 - rank, 2 - rank]) for rank in range(3)]

    def test_the_programs_own_process_group_is_left_alone(self, members: Members) -> None:
        def work(rank: int) -> Any:
            initialized = torch.distributed.is_initialized()
            array = np.ones(1)
            col.allreduce(array)
            return initialized, torch.distributed.is_initialized(), array.tolist()

        assert everywhere(members, work) == [(False, False, [3])] * 3

    def test_a_declared_group_connects_when_it_is_first_used(self, members: Members) -> None:
        col.create_collective_group(members, 3, [2, 0, 1], "torch_gloo", "declared")

        def work(rank: int) -> Any:
            before = col.is_group_initialized("declared")
            array = np.full(1, float(rank))
            col.broadcast(array, 0, "declared")
            return before, array.tolist(), col.get_rank("declared")

        assert everywhere(members, work) == [(False, [1.0], 2), (False, [1.0], 0), (False, [1.0], 1)]
        with pytest.raises(RuntimeError, match="twice"):
            col.create_collective_group(members, 3, [0, 1, 2], "gloo", "declared")
        col.destroy_collective_group("declared")
        everywhere(members, lambda rank: col.destroy_collective_group("declared"))
        col.create_collective_group(members, 3, [0, 1, 2], "gloo", "declared")
        col.destroy_collective_group("declared")

    def test_an_actor_outside_of_a_declared_group_is_told_so(self, members: Members) -> None:
        col.create_collective_group(members[:2], 2, [0, 1], "gloo", "pair")
        with pytest.raises(RuntimeError, match="not in a collective group 'pair'"):
            skate.get(members[2].run.remote(col.barrier, "pair"))
        col.destroy_collective_group("pair")

    def test_a_destroyed_group_can_be_formed_again(self, members: Members) -> None:
        for _ in range(3):
            skate.get([actor.join.remote(3, rank, "again") for rank, actor in enumerate(members)])
            everywhere(members, lambda rank: col.allreduce(np.ones(1), "again"))
            everywhere(members, lambda rank: col.destroy_collective_group("again"))
        assert everywhere(members, lambda rank: col.is_group_initialized("again")) == [False] * 3

    def test_joining_twice_is_an_error(self, members: Members) -> None:
        with pytest.raises(RuntimeError, match="twice"):
            skate.get(members[0].join.remote(3, 0))

    def test_a_group_of_one_needs_nobody(self, members: Members) -> None:
        def work() -> Any:
            col.init_collective_group(1, 0, "gloo", "alone")
            array = np.ones(2)
            col.allreduce(array, "alone")
            col.reduce(array, 0, "alone")
            col.broadcast(array, 0, "alone")
            col.barrier("alone")
            into = [np.zeros(2)]
            col.allgather(into, array, "alone")
            col.destroy_collective_group("alone")
            return into[0].tolist()

        assert skate.get(members[0].run.remote(work)) == [1, 1]

    def test_who_waits_in_vain_is_told_for_whom_and_can_try_again(self, members: Members) -> None:
        with pytest.raises(
            RuntimeError, match=r"Rank 0 of .*'late' waited 0.3 s for rank\(s\) 1, 2 without success"
        ):
            skate.get(members[0].join.remote(3, 0, "late", 300))
        skate.get([actor.join.remote(3, rank, "late") for rank, actor in enumerate(members)])
        everywhere(members, lambda rank: col.destroy_collective_group("late"))

    def test_members_that_disagree_are_told(self, members: Members) -> None:
        first = members[0].join.remote(2, 0, "odd")
        skate.wait([first], timeout=0.2)
        with pytest.raises(RuntimeError, match="without success"):
            skate.get(members[1].join.remote(3, 1, "odd", 300))
        with pytest.raises(ValueError, match=r"joined with world_size=3 .*this member with 2"):
            skate.get(first)

    def test_the_death_of_a_member_is_an_error_to_the_others(self, session: None) -> None:
        pair = start(2)
        skate.get([actor.join.remote(2, rank, "mortal") for rank, actor in enumerate(pair)])
        skate.kill(pair[1])
        with pytest.raises(RuntimeError, match="allreduce failed on rank 0 of collective group 'mortal'"):
            skate.get(pair[0].run.remote(lambda: col.allreduce(np.ones(2), "mortal")))

    def test_groups_can_be_formed_after_the_owner_of_the_rendezvous_has_died(self, session: None) -> None:
        for name in ("one", "two"):
            pair = start(2)
            skate.get([actor.join.remote(2, rank, name) for rank, actor in enumerate(pair)])
            for actor in pair:
                skate.kill(actor)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((0, 0, "gloo"), "world_size must be 1 or more"),
            ((2, 2, "gloo"), "rank must be from 0 to 1"),
            ((2, -1, "gloo"), "rank must be from 0 to 1"),
            ((2, 0, "mpi"), "Unrecognized backend: 'mpi'"),
            ((2, 0, "gloo", ""), "group_name must be a non-empty str"),
            ((2, 0, "gloo", "x", 0), "gloo_timeout must be a positive number"),
        ],
    )
    def test_arguments_that_make_no_sense_are_refused(self, arguments: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            col.init_collective_group(*arguments)

    def test_declarations_that_make_no_sense_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"got 1 actor\(s\) and 2 rank\(s\)"):
            col.create_collective_group([None], 2, [0, 1], "gloo")
        with pytest.raises(ValueError, match="each once"):
            col.create_collective_group([None, None], 2, [0, 0], "gloo")


class TestBackends:
    def test_names_of_backends_are_case_insensitive(self) -> None:
        assert Backend("gloo") == Backend("GLOO") == Backend("torch_gloo") == Backend.GLOO == "GLOO"
        assert Backend("nccl") == Backend.NCCL == "NCCL"
        with pytest.raises(TypeError, match="must be a str"):
            Backend(3)  # type: ignore[arg-type]

    def test_gloo_is_available_with_torch(self) -> None:
        assert col.gloo_available()
        assert col.is_backend_available("gloo")

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_nccl_without_a_gpu_is_a_clear_error(self) -> None:
        assert not col.nccl_available()
        assert not col.is_backend_available("nccl")
        with pytest.raises(RuntimeError, match=r"NCCL backend needs CUDA.*backend='gloo'"):
            col.init_collective_group(2, 0)

    def test_the_inline_engine_refuses_groups_that_could_only_hang(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_session, "engine_name", lambda: "inline")
        with pytest.raises(RuntimeError, match="inline engine runs one task at a time"):
            col.init_collective_group(2, 0, "gloo", "x")

    def test_a_tensor_on_the_wrong_device_is_refused(self) -> None:
        with (
            pytest.raises(ValueError, match="GLOO backend works on cpu tensors; this one is on meta"),
            tensor_of(torch.ones(1, device="meta"), Backend.GLOO, written=True),
        ):
            pass

    def test_without_torch_the_error_says_what_to_install(self) -> None:
        code = (
            "import sys; sys.modules['torch'] = None\n"
            "from skate.util import collective\n"
            "try: collective.init_collective_group(1, 0, 'gloo')\n"
            "except ImportError as error: print(error)\n"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout == "skate.util.collective needs torch: pip install 'skate[train]'\n"

    def test_importing_the_module_does_not_import_torch(self) -> None:
        code = "import sys, skate.util.collective; print('torch' in sys.modules)"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout == "False\n"


class TestRendezvous:
    async def test_nobody_passes_before_all_have_come(self) -> None:
        place = Rendezvous()
        first = asyncio.ensure_future(place.join("g", 2, 0, "GLOO", "a", "n1"))
        await asyncio.sleep(0)
        assert not first.done()
        second = await place.join("g", 2, 1, "GLOO", "b", "n2")
        assert await first == second
        assert second is not None
        assert second[1] == ["n1", "n2"]

    async def test_every_group_has_a_token_of_its_own(self) -> None:
        place = Rendezvous()
        tokens = {(await place.join("g", 1, 0, "GLOO", "a", "n") or ("", []))[0] for _ in range(3)}
        assert len(tokens) == 3

    async def test_a_newcomer_takes_the_place_of_a_dead_member_of_the_same_rank(self) -> None:
        place = Rendezvous()
        dead = asyncio.ensure_future(place.join("g", 2, 0, "GLOO", "a", "n"))
        await asyncio.sleep(0)
        alive = asyncio.ensure_future(place.join("g", 2, 0, "GLOO", "b", "n"))
        with pytest.raises(ValueError, match="also joined as rank 0"):
            await dead
        assert await place.join("g", 2, 1, "GLOO", "c", "n") == await alive

    async def test_who_leaves_is_told_who_is_missing_and_frees_the_place(self) -> None:
        place = Rendezvous()
        waiting = asyncio.ensure_future(place.join("g", 3, 1, "GLOO", "a", "n"))
        await asyncio.sleep(0)
        assert await place.leave("g", "a") == [0, 2]
        assert await waiting is None
        assert await place.leave("g", "a") == []
        assert place._pending == {}

    async def test_what_members_publish_is_forgotten_when_all_are_done(self) -> None:
        place = Rendezvous()
        joined = await place.join("g", 1, 0, "GLOO", "a", "n")
        assert joined is not None
        token = joined[0]
        reading = asyncio.ensure_future(place.read(token, ["k"]))
        await asyncio.sleep(0)
        assert not reading.done()
        await place.publish(token, "k", b"v")
        assert await reading == {"k": b"v"}
        await place.finish(token)
        assert place._published == {}
        assert place._unfinished == {}
