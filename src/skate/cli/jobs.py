"""`skate job`: submit programs to a node, and inspect them."""

from __future__ import annotations

import asyncio
import pprint
import shlex
import time
from typing import Any

import click
from click.core import ParameterSource

from skate._api import submission
from skate._api.variables import PREFIXES
from skate.cli import candidates
from skate.cli.arguments import json_object, yaml_mapping
from skate.cli.output import (
    TABLE,
    format_option,
    job_address_option,
    runs_as_ray,
    say,
    tell,
    write_block,
    write_json,
    write_table,
)
from skate.job_submission import JobDetails, JobStatus, JobSubmissionClient

# Options of `ray job` that only change its messages; accepted, so that scripts run.
_IGNORED_OPTIONS = ("--log-style", "--log-color")
WAIT_INTERVAL_S = 0.1


def _as_verify(context: click.Context, option: click.Parameter, given: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(given.lower(), given)


def _client_options(command: Any) -> Any:
    """Add the options that say how to reach the node, and those that are ignored."""
    ignored: dict[str, Any] = {"hidden": True, "expose_value": False, "help": "Ignored."}
    for name in _IGNORED_OPTIONS:
        command = click.option(name, **ignored)(command)
    command = click.option("-v", "--verbose", is_flag=True, **ignored)(command)
    command = click.option(
        "--verify",
        metavar="BOOL|PATH",
        callback=_as_verify,
        default="true",
        show_default=True,
        help="For a URL with https: whether to verify the certificate, or the path of trusted certificates.",
    )(command)
    command = click.option(
        "--headers",
        metavar="JSON",
        envvar=[prefix + "JOB_HEADERS" for prefix in PREFIXES],
        help="For a URL: headers of requests, such as the token.",
    )(command)
    return job_address_option(command)


def _client(address: str, headers: str | None, verify: bool | str) -> JobSubmissionClient:
    given = json_object("--headers", headers)
    try:
        return JobSubmissionClient(address, headers=given, verify=verify)
    except (RuntimeError, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from error


@click.group()
def job() -> None:
    """Submit programs to the node, and inspect them."""


@job.command(context_settings={"ignore_unknown_options": True})
@click.option("--submission-id", "--job-id", help="The id of the job. Default: a generated one.")
@click.option(
    "--runtime-env",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML file with the environment of the command and of its workers.",
)
@click.option("--runtime-env-json", metavar="JSON", help="The environment of the command and of its workers.")
@click.option("--working-dir", help="The folder to copy and to run in.")
@click.option("--metadata-json", metavar="JSON", help="Metadata of the job.")
@click.option("--entrypoint-num-cpus", type=float, help="CPUs for the command itself.")
@click.option("--entrypoint-num-gpus", type=float, help="GPUs for the command itself.")
@click.option("--entrypoint-memory", type=int, help="Bytes of memory for the command itself.")
@click.option("--entrypoint-resources", metavar="JSON", help="Other resources for the command itself.")
@click.option("--entrypoint-label-selector", metavar="JSON", help="Labels that the node must have.")
@click.option("--no-wait", is_flag=True, help="Return at once, without showing the output.")
@_client_options
@click.argument("entrypoint", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    submission_id: str | None,
    runtime_env: str | None,
    runtime_env_json: str | None,
    working_dir: str | None,
    metadata_json: str | None,
    entrypoint_num_cpus: float | None,
    entrypoint_num_gpus: float | None,
    entrypoint_memory: int | None,
    entrypoint_resources: str | None,
    entrypoint_label_selector: str | None,
    no_wait: bool,
    address: str,
    headers: str | None,
    verify: bool | str,
    entrypoint: tuple[str, ...],
) -> None:
    """Run a command on the node, for example `skate job submit -- python train.py`.

    Shows the output of the command until it ends, and exits with an error if it fails. With --no-wait, prints
    the id of the job and returns.
    """
    if runtime_env and runtime_env_json:
        raise click.UsageError("Only one of --runtime-env and --runtime-env-json can be given.")
    environment = yaml_mapping("--runtime-env", runtime_env) or json_object(
        "--runtime-env-json", runtime_env_json
    )
    if working_dir:
        environment["working_dir"] = working_dir
    metadata = json_object("--metadata-json", metadata_json)
    try:
        submission.call_submit_hook(
            address=address,
            job_id=submission_id,
            submission_id=submission_id,
            runtime_env=runtime_env,
            runtime_env_json=runtime_env_json,
            metadata_json=metadata,
            working_dir=working_dir,
            entrypoint=entrypoint,
            entrypoint_num_cpus=entrypoint_num_cpus,
            entrypoint_num_gpus=entrypoint_num_gpus,
            entrypoint_memory=entrypoint_memory,
            entrypoint_resources=entrypoint_resources,
            entrypoint_label_selector=entrypoint_label_selector,
            no_wait=no_wait,
        )
        client = _client(address, headers, verify)
        id = client.submit_job(
            entrypoint=shlex.join(entrypoint) if len(entrypoint) > 1 else entrypoint[0],
            submission_id=submission_id,
            runtime_env=environment,
            metadata=metadata,
            entrypoint_num_cpus=entrypoint_num_cpus,
            entrypoint_num_gpus=entrypoint_num_gpus,
            entrypoint_memory=entrypoint_memory,
            entrypoint_resources=json_object("--entrypoint-resources", entrypoint_resources) or None,
            entrypoint_label_selector=json_object("--entrypoint-label-selector", entrypoint_label_selector)
            or None,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error
    tell(f"Job '{id}' submitted successfully")
    program = click.get_current_context().find_root().info_name
    advice = ", ".join(f"`{program} job {verb} {id}`" for verb in ("logs --follow", "status", "stop"))
    if no_wait:
        click.echo(id)
        tell(f"Next: {advice}.")
        return
    tell("Tailing logs until the job exits (disable with --no-wait):")
    if runs_as_ray():  # Ray's jobs say so in their logs
        click.echo(f"Running entrypoint for job {id}: {client.get_job_info(id).entrypoint}")
    try:
        _follow(client, id)
    except KeyboardInterrupt:
        tell(f"The job keeps running: {advice}.")
        raise SystemExit(130) from None
    status = _tell_status(client.get_job_info(id))
    if status is JobStatus.FAILED or (status is JobStatus.STOPPED and not runs_as_ray()):
        raise SystemExit(1)


@job.command("list")
@format_option
@_client_options
def list_(format_: str, address: str, headers: str | None, verify: bool | str) -> None:
    """List jobs: submitted ones, and attached programs."""
    jobs = _client(address, headers, verify).list_jobs()
    if _writes_as_ray():
        click.echo(pprint.pformat(jobs))
    elif format_ != TABLE:
        write_json([_row(each) for each in jobs])
    elif jobs:
        columns = ["submission_id", "job_id", "type", "status", "entrypoint"]
        write_table(columns, [[_row(each)[name] for name in columns] for each in jobs])
    else:
        say("There are no jobs.")


@job.command()
@click.argument("id", shell_complete=candidates.jobs)
@format_option
@_client_options
def status(id: str, format_: str, address: str, headers: str | None, verify: bool | str) -> None:
    """Show one job."""
    info = _known(lambda: _client(address, headers, verify).get_job_info(id))
    if _writes_as_ray():
        _tell_status(info)
    elif format_ != TABLE:
        write_json(_row(info))
    else:
        write_block(_row(info))


@job.command()
@click.argument("id", shell_complete=candidates.jobs)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@_client_options
def logs(id: str, follow: bool, address: str, headers: str | None, verify: bool | str) -> None:
    """Show the output of a job."""
    client = _client(address, headers, verify)
    text = _known(lambda: client.get_job_logs(id))
    if not follow:
        click.echo(text, nl=False)
        return
    try:
        _follow(client, id)
    except KeyboardInterrupt:
        return


@job.command()
@click.argument("id", shell_complete=candidates.jobs)
@click.option("--no-wait", is_flag=True, help="Return at once, without waiting for the end of the job.")
@_client_options
def stop(id: str, no_wait: bool, address: str, headers: str | None, verify: bool | str) -> None:
    """Stop a running job."""
    client = _client(address, headers, verify)
    if not _known(lambda: client.stop_job(id)):
        tell(f"Job '{id}' had ended already.")
        return
    if no_wait:
        tell(f"Stopping job '{id}'.")
        return
    tell(f"Waiting for job '{id}' to exit (disable with --no-wait):")
    while not client.get_job_status(id).is_terminal():
        time.sleep(WAIT_INTERVAL_S)
    _tell_status(client.get_job_info(id))


@job.command()
@click.argument("id", shell_complete=candidates.jobs)
@_client_options
def delete(id: str, address: str, headers: str | None, verify: bool | str) -> None:
    """Delete the record and the log of a job that has ended."""
    _known(lambda: _client(address, headers, verify).delete_job(id))
    tell(f"Job '{id}' deleted successfully")


def _writes_as_ray() -> bool:
    """Return whether to write what Ray does: run as `ray`, and without `--format`, which Ray does not have."""
    given = click.get_current_context().get_parameter_source("format_")
    return runs_as_ray() and given is ParameterSource.DEFAULT


def _tell_status(info: JobDetails) -> JobStatus:
    """Write the status of a job in the words of `ray job`, and return it."""
    id, status = info.submission_id or info.job_id, info.status
    if status is JobStatus.SUCCEEDED:
        tell(f"Job '{id}' succeeded")
    elif status is JobStatus.STOPPED:
        tell(f"Job '{id}' was stopped")
    else:
        how = "failed" if status is JobStatus.FAILED else f"has the status {status}"
        tell(f"Job '{id}' {how}\nStatus message: {info.message}")
    return status


def _known(ask: Any) -> Any:
    try:
        return ask()
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error


def _follow(client: JobSubmissionClient, id: str) -> None:
    async def follow() -> None:
        async for text in client.tail_job_logs(id):
            click.echo(text, nl=False)

    asyncio.run(follow())


def _row(job: JobDetails) -> dict[str, Any]:
    row = dict(vars(job))
    row["driver_info"] = vars(job.driver_info) if job.driver_info else None
    return row
