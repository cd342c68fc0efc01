"""The program `skate`: its commands, and the display of their errors."""

from __future__ import annotations

from typing import Any

import click

from skate._api.nodes import UnusableFolderError
from skate.cli import (
    about,
    actors,
    completion,
    dashboard,
    inspection,
    jobs,
    lifecycle,
    listing,
    llm,
    logs,
    metrics,
    microbenchmark,
    run,
    serve,
    tune,
)
from skate.cli.output import RAY
from skate.cli.script import Handover
from skate.exceptions import RayError


class Program(click.Group):
    """A group whose commands report expected errors in one line, without a traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program; a script that a command hands over runs outside click, as under `python`."""
        try:
            return super().main(*args, **extra)
        except Handover as handover:
            script = handover.script
        script.run()
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader closed the pipe: click exits quietly
        except (ConnectionError, RayError, UnusableFolderError) as error:
            raise click.ClickException(str(error)) from error


class RayProgram(Program):
    """The same commands under the name of Ray's command line, whatever file has been started."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program."""
        return super().main(*args, **{**extra, "prog_name": RAY})


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(about.VERSION, message="%(version)s")
def main() -> None:
    """Run and inspect a Skate node.

    Commands use the node of `skate start`; if there is none, the node of the running program. Results go to
    standard output, messages to standard error.
    """


for _command in (
    lifecycle.start,
    lifecycle.stop,
    lifecycle.status,
    run.run,
    listing.list_,
    listing.get,
    listing.summary,
    logs.logs,
    actors.kill_actor,
    inspection.memory,
    inspection.timeline,
    inspection.stack,
    inspection.why,
    inspection.debug,
    dashboard.dashboard,
    metrics.metrics,
    jobs.job,
    serve.serve,
    tune.tune,
    llm.llm,
    about.doctor,
    microbenchmark.microbenchmark,
    completion.completion,
    about.version,
):
    main.add_command(_command)

ray = RayProgram(
    RAY,
    commands=main.commands,
    params=main.params,
    help=main.help,
    context_settings=main.context_settings,
)
