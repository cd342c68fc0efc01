"""Where training on an engine falls short, and why: as `tests/contract/gaps.py` has it for the engines themselves."""

from __future__ import annotations

_RAY: dict[str, tuple[str, ...]] = {
    "workers of Ray are not forked from a process that has imported what they need": (
        "strategies/test_workers.py::test_a_first_step_imports_nothing",
        "strategies/test_workers.py::test_modules_that_the_user_names_are_preloaded_beside_those_of_the_trainer",
    ),
}

GAPS: dict[tuple[str, str], str] = {("ray", test): reason for reason, tests in _RAY.items() for test in tests}
