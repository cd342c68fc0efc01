"""Which signal handlers apply: the program's own, and Skate's only while a session runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import signal, skate

    numbers = (signal.SIGINT, signal.SIGTERM)
    defaults = [signal.getsignal(number) for number in numbers]
    skate.init(engine="local", num_cpus=1)
    assert all(signal.getsignal(number) != default for number, default in zip(numbers, defaults))
    skate.shutdown()
    assert [signal.getsignal(number) for number in numbers] == defaults

    signal.signal(signal.SIGTERM, print)
    for engine in ("local", "inline"):
        skate.init(engine=engine, num_cpus=1)
        assert signal.getsignal(signal.SIGTERM) is print
        skate.shutdown()
        assert signal.getsignal(signal.SIGTERM) is print
"""


def test_shutdown_restores_handlers_and_those_of_the_program_stay() -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=True, timeout=60)
