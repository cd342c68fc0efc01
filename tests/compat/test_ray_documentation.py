"""The tool that runs the examples of Ray's documentation, on small pages of our own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.compat.ray_documentation.__main__ import main
from tests.compat.ray_documentation.examples import File, Page, find_examples
from tests.compat.ray_documentation.pages import blocks_of, included_files
from tests.compat.ray_documentation.reasons import Reason, read_reasons
from tests.compat.ray_documentation.report import faults, table
from tests.compat.ray_documentation.running import Outcome, last_error, namespaces, run_example

PAGE = textwrap.dedent(
    """\
    A title
    =======

    .. testcode::
        :hide:

        number = 1

    Text between blocks.

    .. testcode::

        print(number)

        print(number + 1)

    .. testoutput::

        1

        2

    .. tab-set::

        .. tab-item:: One

            .. testcode::
                :skipif: True

                unknown()

    .. testcode::

        print("a", "b")

    .. testoutput::
        :options: +MOCK

        anything

    .. doctest::

        >>> number = 3
        >>> number
        3
        >>> number + 1  # doctest: +SKIP
        5

    .. literalinclude:: doc_code/first.py
        :language: python
    """
)

MARKDOWN = textwrap.dedent(
    """\
    # A title

    ```{testcode}
    :hide:

    number = 1
    ```

    ```{testcode}
    print([number])
    ```
    ```{testoutput}
    :options: -ELLIPSIS, +NORMALIZE_WHITESPACE
    [1]
    ```

    ```{literalinclude} /serve/doc_code/second.py
    :language: python
    ```
    """
)


def program(text: str) -> Page:
    return Page("core", "ray-core/page.rst", blocks_of(textwrap.dedent(text)))


def test_blocks_are_numbered_and_a_hidden_one_is_no_example() -> None:
    blocks = blocks_of(PAGE)
    assert [block.number for block in blocks] == [1, 2, 3, 4, 5]
    assert [block.is_example for block in blocks] == [False, True, True, True, True]
    assert [block.is_skipped for block in blocks] == [False, False, True, False, False]
    assert blocks[1].code == "print(number)\n\nprint(number + 1)\n"
    assert blocks[4].code == "number = 3\nnumber\n"
    assert PAGE.splitlines()[blocks[1].line - 1] == ".. testcode::"


def test_an_output_belongs_to_the_block_before_it_and_a_mock_is_not_compared() -> None:
    assert [block.expected for block in blocks_of(PAGE)] == [None, "1\n\n2\n", None, None, "3\n"]


def test_blocks_of_a_markdown_page_are_those_in_its_fences() -> None:
    hidden, shown = blocks_of(MARKDOWN)
    assert (hidden.is_example, hidden.code) == (False, "number = 1\n")
    assert (shown.is_example, shown.code, shown.expected) == (True, "print([number])\n", "[1]\n")
    assert shown.flags != hidden.flags


def test_set_up_runs_first_and_clean_up_last() -> None:
    blocks = blocks_of(
        textwrap.dedent(
            """\
            .. testcleanup::

                print("last")

            .. testcode::

                print("second")

            .. testsetup::

                print("first")
            """
        )
    )
    assert [block.code for block in blocks] == ['print("first")\n', 'print("second")\n', 'print("last")\n']
    assert [block.is_example for block in blocks] == [False, True, False]


def test_an_included_file_is_an_example_of_its_own_area(tmp_path: Path) -> None:
    documentation = tmp_path / "doc" / "source"
    for name in ("ray-core/doc_code/first.py", "serve/doc_code/second.py"):
        (documentation / name).parent.mkdir(parents=True)
        (documentation / name).touch()
    (documentation / "ray-core" / "page.rst").write_text(PAGE)
    (documentation / "ray-core" / "page.md").write_text(MARKDOWN)
    assert included_files(MARKDOWN) == ["/serve/doc_code/second.py"]
    assert [example.name for example in find_examples(tmp_path, "core")] == [
        "ray-core/page.md",
        "ray-core/page.rst",
        "ray-core/doc_code/first.py",
    ]
    assert [example.name for example in find_examples(tmp_path, "serve")] == ["serve/doc_code/second.py"]


def test_a_page_is_one_program_on_skate_and_each_block_has_an_outcome() -> None:
    page = program(
        """\
        .. testcode::

            import inspect
            import ray

            class Counter:
                pass

            print(ray.ObjectRef.__module__.split(".")[0], inspect.getsource(Counter))

        .. testoutput::

            skate class Counter:...

        .. testcode::

            raise ValueError("too small")

        .. testcode::

            print(Counter.__name__)

        .. testoutput::

            Other

        .. testcode::

            import os
            os._exit(3)

        .. testcode::

            int("x")

        .. testoutput::

            Traceback (most recent call last):
            ...
            ValueError: invalid literal for int() ...

        .. testcode::
            :skipif: True

            pass
        """
    )
    outcomes = list(run_example(page, timeout=60))
    assert [outcome.id for outcome in outcomes] == [f"ray-core/page.rst:{number}" for number in range(1, 7)]
    assert [(outcome.state, outcome.detail) for outcome in outcomes] == [
        ("passed", ""),
        ("failed", "ValueError: too small"),
        ("output differs", "the output is not the one of the page"),
        ("failed", "the process ended with status 3"),
        ("passed", ""),
        ("skipped by the page", ""),
    ]


def test_a_block_that_does_not_end_is_stopped_and_later_ones_run() -> None:
    page = program(
        """\
        .. testcode::

            import threading
            threading.Event().wait()

        .. testcode::

            print("here")
        """
    )
    assert [outcome.state for outcome in run_example(page, timeout=3)] == ["timed out", "passed"]


def test_a_file_runs_in_an_empty_folder_and_its_error_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "first.py"
    path.write_text("import os\nprint(os.listdir())\nraise SystemExit(len(os.listdir()))")
    file = File("core", "ray-core/doc_code/first.py", path)
    assert [outcome.state for outcome in run_example(file, timeout=60)] == ["passed"]
    path.write_text("import no_such_package")
    (outcome,) = run_example(file, timeout=60)
    assert (outcome.state, outcome.detail) == (
        "failed",
        "ModuleNotFoundError: No module named 'no_such_package'",
    )


def test_a_file_imports_its_neighbours_but_none_that_hides_a_library(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").touch()
    (tmp_path / "numpy.py").write_text("raise ImportError('not numpy')")
    path = tmp_path / "first.py"
    path.write_text("import neighbour\nimport numpy.random")
    (outcome,) = run_example(File("core", "ray-core/doc_code/first.py", path), timeout=60)
    assert outcome.state == "passed", outcome.printed


def test_a_program_sees_as_many_cpus_on_every_machine(tmp_path: Path) -> None:
    path = tmp_path / "first.py"
    path.write_text("import os\nassert len(os.sched_getaffinity(0)) == os.cpu_count() == 8")
    (outcome,) = run_example(File("core", "ray-core/doc_code/first.py", path), timeout=60)
    assert outcome.state == "passed", outcome.printed


@pytest.mark.skipif(not namespaces(), reason="this user may not make namespaces")
@pytest.mark.parametrize("prefix", ["prefix", "base_prefix"])
def test_a_program_cannot_change_the_installed_packages(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "first.py"
    path.write_text(f"import pathlib, sys\npathlib.Path(sys.{prefix}, 'left-behind').touch()")
    (outcome,) = run_example(File("core", "ray-core/doc_code/first.py", path), timeout=60)
    assert (outcome.state, outcome.detail.partition(":")[0]) == ("failed", "OSError")
    assert "Read-only file system" in outcome.detail


def test_the_last_line_that_names_an_exception_is_the_error() -> None:
    printed = "Traceback:\nKeyError: 1\nray.exceptions.RayTaskError(KeyError): f()\nCleaning up."
    assert last_error(printed) == "ray.exceptions.RayTaskError(KeyError): f()"
    assert last_error("no error here") == ""


def test_a_reason_names_blocks_of_a_page_by_their_numbers() -> None:
    reasons = read_reasons(
        '[needs]\n"data/page.rst:1,3-4" = "a network"\n"data/file.py" = "a GPU"\n[ray]\n"a.py" = "unfinished"\n'
    )
    assert reasons == {
        "data/page.rst:1": Reason("needs", "a network"),
        "data/page.rst:3": Reason("needs", "a network"),
        "data/page.rst:4": Reason("needs", "a network"),
        "data/file.py": Reason("needs", "a GPU"),
        "a.py": Reason("ray", "unfinished"),
    }


def test_a_reason_of_an_unknown_class_and_a_second_reason_are_refused() -> None:
    with pytest.raises(ValueError, match="no class of reasons"):
        read_reasons('[slow]\n"a.py" = "slow"\n')
    with pytest.raises(ValueError, match="two reasons"):
        read_reasons('[needs]\n"a.rst:1-2" = "a GPU"\n"a.rst:2" = "a network"\n')


def test_the_share_leaves_out_what_one_machine_cannot_run() -> None:
    outcomes = [
        *(Outcome("core", f"a.rst:{number}", "passed") for number in range(3)),
        Outcome("core", "needs.py", "failed"),
        Outcome("core", "ray.py", "timed out"),
        Outcome("core", "differs.py", "output differs"),
        Outcome("core", "skipped.rst:1", "skipped by the page"),
    ]
    reasons = {f"{kind}.py": Reason(kind, "why") for kind in ("needs", "ray", "differs")}
    assert table(outcomes, reasons).splitlines()[-1].split() == [
        "core",
        "6",
        "3",
        "1",
        "1",
        "1",
        "0",
        "75.0",
        "%",
        "1",
    ]


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_faults() -> None:
    outcomes = [Outcome("core", "a.py", "passed"), Outcome("core", "b.py", "failed", detail="KeyError: 1")]
    reasons = {"a.py": Reason("needs", "a GPU"), "c.py": Reason("needs", "a TPU")}
    assert list(faults(outcomes, reasons, is_whole=False)) == [
        "a.py passes, and has a reason not to: a GPU",
        "b.py has no reason: failed: KeyError: 1",
    ]
    assert list(faults([], reasons, is_whole=True)) == [
        "there is no example a.py, and a reason for it: a GPU",
        "there is no example c.py, and a reason for it: a TPU",
    ]


def test_a_folder_without_documentation_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--src", str(tmp_path)])
    assert "--src must name a checkout of Ray's sources" in capsys.readouterr().err
