from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skate
from tests.contract.support import eventually

joblib = pytest.importorskip("joblib")

from skate.util.joblib import register_ray  # noqa: E402
from skate.util.joblib._sharing import SharedArguments, size_of  # noqa: E402
from skate.util.joblib.ray_backend import RayBackend  # noqa: E402

BOTH_NAMES = pytest.mark.parametrize("name", ["ray", "skate"])


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    register_ray()


@pytest.fixture
def parallel(local: None) -> Iterator[Any]:
    """Run `joblib.Parallel` on Skate with two processes."""
    with joblib.parallel_config("skate", n_jobs=2):
        yield joblib.Parallel


def pid(_: Any = None) -> int:
    return os.getpid()


def test_registering_starts_no_session(no_session: None) -> None:
    register_ray()
    assert {"ray", "skate"} <= set(joblib.parallel.BACKENDS)
    assert not skate.is_initialized()


def test_without_joblib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ImportError, match="pip install joblib"):
        register_ray()


@BOTH_NAMES
def test_calls_run_in_other_processes_and_come_back_in_order(local: None, name: str) -> None:
    with joblib.parallel_backend(name, n_jobs=2):
        assert type(joblib.parallel.get_active_backend()[0]) is RayBackend
        results = joblib.Parallel()(joblib.delayed(lambda x: (x, os.getpid()))(x) for x in range(20))
    assert [x for x, _ in results] == list(range(20))
    assert os.getpid() not in {process for _, process in results}


@BOTH_NAMES
def test_a_single_call_can_choose_the_backend(local: None, name: str) -> None:
    results = joblib.Parallel(n_jobs=2, backend=name)(joblib.delayed(operator.neg)(x) for x in range(5))
    assert results == [0, -1, -2, -3, -4]


def test_many_short_calls_are_batched(parallel: Any) -> None:
    assert parallel()(joblib.delayed(abs)(-x) for x in range(2000)) == list(range(2000))


def test_n_jobs_is_the_number_of_processes(local: None) -> None:
    with joblib.parallel_backend("skate", n_jobs=3):
        pids = joblib.Parallel(batch_size=1)(joblib.delayed(pid)() for _ in range(60))
    assert 1 < len(set(pids)) <= 3


@pytest.mark.parametrize(
    ("n_jobs", "expected"), [(-1, 4), (-2, 3), (-100, 1), (1, 1), (2, 2), (100, 4), (None, 1)]
)
def test_n_jobs_counts_back_from_the_cpus_and_no_further_than_them(
    local: None, n_jobs: int | None, expected: int
) -> None:
    assert RayBackend(nesting_level=0).effective_n_jobs(n_jobs) == expected


def test_no_jobs_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="n_jobs == 0"):
        RayBackend(nesting_level=0).effective_n_jobs(0)


def test_the_first_call_starts_a_session_of_its_size(no_session: None) -> None:
    with joblib.parallel_backend("skate", n_jobs=3):
        assert joblib.Parallel()(joblib.delayed(abs)(x) for x in range(3)) == [0, 1, 2]
    assert skate.cluster_resources()["CPU"] == 3


def test_an_error_keeps_its_type_and_stops_the_rest(parallel: Any) -> None:
    def fail(x: int) -> None:
        raise ZeroDivisionError(f"on purpose: {x}")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        parallel()(joblib.delayed(fail)(x) for x in range(10))
    assert parallel()(joblib.delayed(abs)(x) for x in range(3)) == [0, 1, 2]


def test_results_can_be_taken_as_they_come(parallel: Any) -> None:
    results = parallel(return_as="generator")(joblib.delayed(abs)(-x) for x in range(50))
    assert list(results) == list(range(50))
    unordered = parallel(return_as="generator_unordered")(joblib.delayed(abs)(-x) for x in range(50))
    assert sorted(unordered) == list(range(50))


def test_processes_take_actor_options(local: None) -> None:
    free = skate.available_resources()["CPU"]
    with joblib.parallel_backend("skate", n_jobs=2, ray_remote_args={"num_cpus": 1}):
        seen = joblib.Parallel()(joblib.delayed(skate.available_resources)() for _ in range(4))
    assert {each.get("CPU", 0) for each in seen} == {free - 2}
    eventually(lambda: skate.available_resources()["CPU"] == free)


def test_the_number_of_inner_threads_can_be_limited(local: None) -> None:
    with joblib.parallel_config("skate", n_jobs=2, inner_max_num_threads=3):
        found = joblib.Parallel()(joblib.delayed(lambda: os.environ["OMP_NUM_THREADS"])() for _ in range(2))
    assert found == ["3", "3"]


def test_calls_can_be_nested(parallel: Any) -> None:
    def inner(x: int) -> tuple[int, set[int]]:
        pids = joblib.Parallel(n_jobs=2)(joblib.delayed(pid)() for _ in range(8))
        return os.getpid(), set(pids)

    for outer, inners in parallel()(joblib.delayed(inner)(x) for x in range(2)):
        assert inners
        assert outer not in inners


def test_calls_nested_deeper_run_in_place(parallel: Any) -> None:
    def innermost() -> bool:
        return joblib.Parallel(n_jobs=2)(joblib.delayed(pid)() for _ in range(2)) == [os.getpid()] * 2

    def middle() -> Any:
        return joblib.Parallel(n_jobs=2)(joblib.delayed(innermost)() for _ in range(2))

    assert parallel()(joblib.delayed(middle)() for _ in range(2)) == [[True, True], [True, True]]


class TestSharing:
    def test_a_large_argument_is_sent_once(self, local: None) -> None:
        data = np.arange(1 << 18, dtype=np.float64)
        shared = SharedArguments(1 << 20)
        first = shared.replace((np.sum, (data,), {}))
        second = shared.replace((np.mean, (), {"a": data}))
        assert first[1][1][0] is second[1][2]["a"]
        assert first[0](*first[1]) == data.sum()
        assert second[0](*second[1]) == data.mean()

    def test_it_is_let_go_with_the_argument(self, local: None) -> None:
        data = np.zeros(1 << 18)
        shared = SharedArguments(1 << 20)
        shared.replace((np.sum, (data,), {}))
        assert len(shared._known) == 1
        del data
        assert shared._known == {}

    def test_small_and_plain_arguments_stay_as_they_are(self) -> None:
        call = (max, (np.zeros(10), "text", b"x" * (1 << 21)), {"key": len})
        assert SharedArguments(1 << 20).replace(call) is call

    def test_the_size_of_what_can_be_shared_is_known(self) -> None:
        class Odd:
            nbytes = "many"

        assert size_of(np.zeros(10)) == 80
        assert (size_of(5), size_of(Odd()), size_of(threading)) == (0, 0, 0)
        sparse = pytest.importorskip("scipy.sparse")
        assert size_of(sparse.eye(10, format="csr")) == 80

    def test_workers_read_what_the_caller_has(self, parallel: Any) -> None:
        data = np.random.default_rng(0).random((512, 512))
        rows = parallel()(joblib.delayed(lambda a, i: float(a[i].sum()))(data, i) for i in range(64))
        assert rows == [float(data[i].sum()) for i in range(64)]


def test_scikit_learn_gives_the_same_result_as_without(local: None) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    iris = datasets.load_iris()
    model = SVC(kernel="linear", C=1, random_state=0)
    expected = cross_val_score(model, iris.data, iris.target, cv=4)
    with joblib.parallel_backend("ray", n_jobs=2):
        found = cross_val_score(model, iris.data, iris.target, cv=4)
    assert found.tolist() == expected.tolist()
