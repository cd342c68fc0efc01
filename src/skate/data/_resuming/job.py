"""A resumable write: begins or resumes it, and commits each unit as soon as it is complete."""

from __future__ import annotations

import logging
import pickle
import posixpath
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from skate.data._exec.items import fetch_rows
from skate.data._exec.units import CompletedUnits, Unit
from skate.data._execution import Execution
from skate.data._plan import nodes
from skate.data._plan.optimizer import optimize
from skate.data._resuming import fingerprints, locks, plan_units
from skate.data._resuming.records import JobRecord, Records, Totals, UnitRecord
from skate.data.context import DataContext
from skate.data.datasource import SaveMode
from skate.data.datasource.datasink import WriteResult
from skate.data.datasource.file_datasink import StagedFile
from skate.data.exceptions import ResumeError

_logger = logging.getLogger(__name__)
_SHOWN = 3  # maximum number of names in a message


class ResumableWrite:
    """Writes a plan to a sink; if the program is killed, a later run of the same program resumes the write.

    Args:
        write: The plan.
        context: The settings of the dataset.
        runs_before: Number of earlier executions of the dataset in this program.
        run: Returns the execution of a plan.

    Raises:
        ResumeError: The sink or the plan cannot be resumed.
    """

    def __init__(
        self,
        write: nodes.Write,
        context: DataContext,
        runs_before: int,
        run: Callable[[nodes.Node], Execution],
    ) -> None:
        self._sink = write.sink
        _check_sink(self._sink)
        plan_units.check_resumable(write)
        self._steps = fingerprints.fingerprint_steps(write, self._sink)
        self._plan = optimize(write)
        self._context = context
        self._runs_before = runs_before
        self._run = run
        self._records = Records(self._sink.filesystem, self._sink.path, self._sink.try_create_dir)
        self._names: set[str] = set()

    def __call__(self) -> WriteResult[Any] | None:
        """Write the uncommitted units, and return the result of this run; None if the write was finished before.

        Raises:
            ResumeError: Another program, or a program with other data, began the write.
        """
        records = self._records
        with locks.exclusive(records.filesystem, records.folder, records.makes_folders):
            return self._resume()

    def _resume(self) -> WriteResult[Any] | None:
        job, parts = self._load_or_create_job()
        finished = self._records.totals()
        if finished is not None:
            self._records.clean_up()
            _logger.warning(
                "nothing is left to write to %s: an earlier run finished it, with %d rows in %d files",
                self._sink.unresolved_path,
                finished.rows,
                finished.files,
            )
            return None
        committed = self._records.units()
        self._records.recover(job.job, committed)
        self._names = {name for unit in committed for name in unit.files}
        if committed:
            _logger.info(
                "resuming the write to %s: %d of %d parts are already written",
                self._sink.unresolved_path,
                len(committed),
                len(job.units),
            )
        made, returned = self._write(job, parts, {unit.number for unit in committed})
        self._records.remove_strays(job.job, [*committed, *made])
        totals = Totals.of([*committed, *made])
        self._records.finish(totals)
        if totals.failed_rows:
            _logger.info("rows dropped because user code failed, in all runs: %d", totals.failed_rows)
        return returned

    # ------------------------------------------------------------ the job

    def _load_or_create_job(self) -> tuple[JobRecord, list[list[plan_units.SourcePart]]]:
        known = self._records.job()
        if known is not None and known.steps != self._steps:
            raise self._differs(_different(known.steps, self._steps))
        wanted = (
            plan_units.count_parts(self._plan, self._context, self._runs_before)
            if known is None
            else known.wanted
        )
        parts = plan_units.split_sources(self._plan, wanted, self._context, self._runs_before)
        units = [part.identity for each in parts for part in each]
        if known is None:
            known = JobRecord(uuid.uuid4().hex, wanted, units, self._steps)
            self._records.begin(known)
        elif known.units != units:
            raise self._differs(_changed_parts(known.units, [part for each in parts for part in each]))
        return known, parts

    def _differs(self, what: str) -> ResumeError:
        path = self._sink.unresolved_path
        return ResumeError(
            f"{path} was begun by another program, or from other data: {what}. To resume it, run the same program on "
            f"the same data; otherwise write to another folder, or delete {path}"
        )

    # ------------------------------------------------------------ writing

    def _write(
        self, job: JobRecord, parts: list[list[plan_units.SourcePart]], committed: set[int]
    ) -> tuple[list[UnitRecord], WriteResult[Any]]:
        completed = CompletedUnits()
        self._sink.stage_in(self._records.staging)
        assert isinstance(self._plan, nodes.Write)
        plan, left = plan_units.with_units(
            replace(self._plan, job=job.job, in_units=True), parts, committed, completed
        )
        made: list[UnitRecord] = []
        whole: WriteResult[Any] = WriteResult(0, 0, [])
        reports = self._reports(plan)
        try:
            for unit, report in reports:
                paths = pickle.loads(report["returned"])
                whole.num_rows += report["rows"]
                whole.size_bytes += report["bytes"]
                whole.write_returns.append([str(path) for path in paths])
                unit.rows += report["rows"]
                self._record_files(unit, paths)
                unit.release(1)
                made += [self._commit(each) for each in completed.take()]
            made += [self._commit(each) for each in completed.take()]  # units without rows
        finally:
            reports.close()  # stop the tasks before removing their files
            self._records.discard_uncommitted()
        assert len(made) == len(left), "all units are complete at the end of the plan"
        return made, whole

    def _reports(self, plan: nodes.Node) -> Generator[tuple[Unit, dict[str, Any]], None, None]:
        for item in self._run(plan):
            (report,) = fetch_rows(item).to_pylist()
            yield item.unit, report

    def _record_files(self, unit: Unit, paths: list[str]) -> None:
        for path in paths:
            name = posixpath.relpath(path, self._sink.path)
            if name in self._names:
                raise ResumeError(
                    f"the filename_provider gives the name {name!r} to several files, and one would replace the other: "
                    f"include write_uuid and the number of the row or block in the name"
                )
            self._names.add(name)
            waiting = path.waiting if isinstance(path, StagedFile) else None
            unit.files[name] = None if waiting is None else posixpath.relpath(waiting, self._records.folder)

    def _commit(self, unit: Unit) -> UnitRecord:
        record = UnitRecord(unit.number, unit.files, unit.rows, unit.failed_rows)
        self._records.commit(record)
        return record


def _check_sink(sink: Any) -> None:
    if not sink.supports_resume:
        raise ResumeError(
            f"{type(sink).__name__} cannot resume: it writes rows immediately, or commits the whole job at once, and "
            f"not part by part. Write files with resume=True (write_parquet, write_csv, write_json, …), and load these"
        )
    if sink.mode != SaveMode.APPEND:
        raise ResumeError(
            f"mode={str(sink.mode)!r} and resume=True contradict each other: a resumed write appends to existing "
            f"files. Leave out mode, or pass mode='append'"
        )
    if sink.min_rows_per_write or sink.min_bytes_per_write:
        raise ResumeError(
            "min_rows_per_file and resume=True contradict each other: each file has rows of one part of the source, "
            "because parts are committed separately. Read fewer and larger parts instead: override_num_blocks=…"
        )


def _different(before: dict[str, str], now: dict[str, str]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    new = [name for name in names if name not in before]
    gone = [name for name in names if name not in now]
    other = [name for name in names if name in before and name in now]
    texts = []
    if other:
        texts.append(f"changed: {_some(other)}")
    if gone:
        texts.append(f"missing now: {_some(gone)}")
    if new:
        texts.append(f"new: {_some(new)}")
    return "; ".join(texts)


def _changed_parts(before: list[str], parts: list[plan_units.SourcePart]) -> str:
    old = set(before)
    changed = [part for part in parts if part.identity not in old]
    files = list(dict.fromkeys(file for part in changed for file in part.files))
    text = (
        f"the source had {len(before)} parts and now has {len(parts)}, {len(changed)} of which have changed"
    )
    return f"{text} (from {_some(files)})" if files else text


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
