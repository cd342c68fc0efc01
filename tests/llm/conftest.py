"""Fixtures that the tests of language models share."""

from __future__ import annotations

import importlib.util
import os

import pytest

pytest.register_assert_rewrite("tests.llm.engine.engine_contract")


def pytest_pycollect_makemodule() -> None:
    """Before a module of this folder is imported, have Triton interpret kernels if there is no GPU for them.

    Not when this module is loaded: pytest loads it in every run, whatever tests it selects.
    """
    if "TRITON_INTERPRET" in os.environ or importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported


@pytest.fixture(scope="session", autouse=True)
def kernels_have_run() -> None:
    """Multiply once: the library of kernels then opens a file for profilers, which no test has leaked."""
    import torch
    from torch.nn import functional

    functional.linear(torch.ones(40, 48), torch.ones(64, 48))


@pytest.fixture(scope="session", autouse=True)
def no_monitor_of_progress_bars() -> None:
    """Keep tqdm, which shows the loading of models, from starting a thread that stays."""
    try:
        import tqdm
    except ImportError:
        return
    tqdm.tqdm.monitor_interval = 0
