"""The tests of training that an engine does not pass, with reasons, in the form of `tests/contract/gaps.py`."""

from __future__ import annotations

_RAY: dict[str, tuple[str, ...]] = {
    "not run: a worker of Ray may count as ended before it has done what is to be done at exit": (
        "test_fitting.py::test_what_is_to_be_done_at_exit_is_done_when_fit_returns",
        "test_fitting.py::test_a_worker_that_does_not_come_to_its_end_is_killed",
    ),
    "workers of Ray are not forked from a process that has imported what they need": (
        "strategies/test_workers.py::test_a_first_step_imports_nothing",
        "strategies/test_workers.py::test_modules_that_the_user_names_are_preloaded_beside_those_of_the_trainer",
    ),
    "the processes of Ray share no folder of this user alone: torch's store is a server on the loopback interface": (
        "test_listening.py::test_the_store_is_in_a_folder_of_this_user_alone_and_goes_with_the_run",
    ),
}

GAPS: dict[tuple[str, str], str] = {("ray", test): reason for reason, tests in _RAY.items() for test in tests}
