"""Where an engine does not keep the contract, and why.

Each entry turns one test on one engine into a strict xfail: it is printed with its reason, and it fails as soon
as the engine passes the test, so that the entry is removed.
"""

from __future__ import annotations

# Begins the reason of a test that is not even tried: it would hang the run, or end it.
NOT_RUN = "not run: "

GAPS: dict[tuple[str, str], str] = {
    ("local", "test_errors.py::test_an_error_of_an_argument_names_both_tasks"): (
        "the node passes an argument's error on as it is: it never unpickles what users made"
    ),
    ("local", "test_state.py::test_a_failed_task_is_listed_with_its_error"): (
        "error_type is the name of the exception's class, not Ray's category of errors"
    ),
    ("local", "test_runtime_env.py::test_working_dir_of_a_job_is_where_its_tasks_run"): (
        "a job's worker that was started before its environment was packed sees later changes of the folder"
    ),
}
