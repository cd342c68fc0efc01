"""The commands of `skate serve` that deploy applications and report their status."""

from __future__ import annotations

import json
from typing import Any

import click

from skate._version import __version__
from skate.cli.output import say
from skate.cli.serve import files
from skate.cli.serve.options import address_option, app_dir_option, environment_options, http_options
from skate.cli.serve.remote import remote_at
from skate.cli.serve.run import run
from skate.cli.serve.session import (
    alias_ray,
    attach_to_node,
    import_from_folder,
    open_client,
    report_serve_errors,
    report_user_errors,
)
from skate.cli.serve.targets import (
    config_for_import_path,
    http_arguments,
    start_for_config,
    wait_until_running,
    write_address,
)


@click.group()
def serve() -> None:
    """Serve applications: run them, deploy them to a node, show their status.

    APPLICATIONS are named by an import path, `module:app`, of an application or of a function that returns one,
    or by a configuration file in YAML, in the format of Ray Serve.
    """


@serve.command()
@address_option
@http_options
@click.option(
    "--proxy-location",
    type=click.Choice(["Disabled", "HeadOnly", "EveryNode"]),
    help="Where proxies run; `Disabled` accepts no external requests.",
)
@click.option("--grpc-port", type=int, help="Port to serve gRPC on. Default: 9000.")
@click.option(
    "--grpc-servicer-functions",
    multiple=True,
    metavar="IMPORT_PATH",
    help="A generated function `add_…Servicer_to_server`. Repeatable. Enables gRPC.",
)
def start(
    address: str,
    http_host: str | None,
    http_port: int | None,
    proxy_location: str | None,
    grpc_port: int | None,
    grpc_servicer_functions: tuple[str, ...],
) -> None:
    """Start Serve on a node, without applications.

    `deploy` starts Serve with the options of its file. Prints the HTTP address.
    """
    from skate.serve._controller.client import connect, connect_or_start

    alias_ray()
    http = http_arguments(http_host, http_port)
    grpc: dict[str, Any] = {"grpc_servicer_functions": list(grpc_servicer_functions)}
    if grpc_port is not None:
        grpc["port"] = grpc_port
    with attach_to_node(address):
        if connect() is not None:
            say("Serve is already running; its options are unchanged.")
        with report_serve_errors():
            client = connect_or_start(proxy_location, http, grpc if grpc_servicer_functions else None)
        write_address(client)


@serve.command()
@environment_options
@app_dir_option
@click.option("--name", help="The name of the application. A file contains its own names.")
@click.option("--wait", is_flag=True, help="Wait until all applications run; fail if one does not.")
@address_option
@click.argument("target", metavar="CONFIG_OR_IMPORT_PATH")
@click.argument("arguments", nargs=-1)
def deploy(
    target: str,
    arguments: tuple[str, ...],
    runtime_env: str | None,
    runtime_env_json: str | None,
    working_dir: str | None,
    app_dir: str,
    name: str | None,
    wait: bool,
    address: str,
) -> None:
    """Deploy an application, or all those of a file, to a running node.

    ARGUMENTS, each as key=value, are passed to the function at the import path.

    Replaces the applications that were deployed in this way before: an unchanged application keeps running, a
    missing one is deleted. Applications that programs run are not affected. Returns at once; `skate serve status`
    shows the progress.
    """
    if files.is_file(target):
        file = files.read_config(target)
        if arguments:
            raise click.UsageError("Arguments require an import path; a file contains them under `args:`.")
    else:
        env = files.environment(runtime_env, runtime_env_json, working_dir)
        file = config_for_import_path(target, arguments, env, name)
    remote = remote_at(address)
    if remote is not None:
        if app_dir != ".":
            raise click.UsageError(
                "The server of --address does not have --app-dir: pass --working-dir instead."
            )
        remote.deploy(file)
        click.echo("Sent deploy request successfully.")
        if wait:
            remote.wait_until_running([app.name for app in file.applications])
        return
    alias_ray()
    with import_from_folder(app_dir) as folder, attach_to_node(address), report_serve_errors():
        client = start_for_config(file)
        client.deploy_config(file, folder=folder)
        click.echo("Sent deploy request successfully.")
        if wait:
            wait_until_running(client, file)
        else:
            say("`skate serve status` shows the progress.")


@serve.command()
@app_dir_option
@click.option(
    "-o", "--output-path", type=click.Path(dir_okay=False), help="The file to write instead of stdout."
)
@click.option(
    "--grpc-servicer-functions",
    multiple=True,
    metavar="IMPORT_PATH",
    help="A generated function `add_…Servicer_to_server`. Repeatable.",
)
@click.argument("import_paths", nargs=-1, required=True)
def build(
    import_paths: tuple[str, ...],
    app_dir: str,
    output_path: str | None,
    grpc_servicer_functions: tuple[str, ...],
) -> None:
    """Write a configuration file for applications, with the options set in their programs."""
    from skate.serve._build.builder import build as take_apart
    from skate.serve._build.importing import import_target
    from skate.serve._schema.config_file import to_schema
    from skate.serve.deployment import Application
    from skate.serve.schema import LoggingConfig, ServeDeploySchema

    applications = []
    with import_from_folder(app_dir), report_user_errors():
        alias_ray()
        for number, path in enumerate(import_paths, 1):
            found = import_target(path)
            if not isinstance(found, Application):
                raise click.ClickException(
                    f"Expected {path!r} to be an Application but got {type(found)}. A file needs the application "
                    "itself; for a function that builds it, write the file by hand, with `args:`."
                )
            name = f"app{number}"
            spec = take_apart(found, name)
            applications.append(
                {
                    "name": name,
                    "route_prefix": "/" if len(import_paths) == 1 else f"/{name}",
                    "import_path": path,
                    "runtime_env": {},
                    "deployments": [to_schema(each.options, given_only=True) for each in spec.deployments],
                }
            )
    file = ServeDeploySchema.model_validate({"applications": applications})
    parts = {
        "proxy_location": file.proxy_location,
        "http_options": {"host": file.http_options.host, "port": file.http_options.port},
        "grpc_options": {
            "port": file.grpc_options.port,
            "grpc_servicer_functions": list(grpc_servicer_functions),
        },
        "logging_config": LoggingConfig().model_dump(),
        "applications": applications,
    }
    text = "\n".join(files.as_yaml({key: value}) for key, value in parts.items())
    text = (
        f"# This file was generated using the `skate serve build` command of Skate {__version__}.\n\n{text}"
    )
    if output_path is None:
        click.echo(text, nl=False)
    else:
        with open(output_path, "w", encoding="utf-8") as written:
            written.write(text)
    say("The applications are named app1, app2, …: rename them as needed.")


@serve.command()
@address_option
@click.option("-n", "--name", help="Show this application only.")
def status(address: str, name: str | None) -> None:
    """Show the status of all applications, as YAML.

    \b
    The status of an application is
      DEPLOYING      while it is being deployed or updated;
      RUNNING        when it matches its specification;
      DEPLOY_FAILED  if deploying failed: the message says why, and a previous version keeps running;
      UNHEALTHY      while replicas that failed are being replaced;
      DELETING       while it is being deleted.
    """  # noqa: D301 - a backspace keeps click from wrapping the lines
    from skate.serve.schema import ServeStatus

    remote = remote_at(address)
    if remote is not None:
        found = remote.details()._get_status()
    else:
        with open_client(address) as client:
            found = ServeStatus() if client is None else client.status()
    if name is None:
        click.echo(files.as_yaml(found), nl=False)
    elif name in found.applications:
        click.echo(files.as_yaml(found.applications[name]), nl=False)
    else:
        known = ", ".join(found.applications) or "none"
        raise click.ClickException(f"Application {name!r} does not exist. Existing applications: {known}.")


@serve.command()
@address_option
@click.option("-n", "--name", help="Show the configuration of this application only.")
def config(address: str, name: str | None) -> None:
    """Show the deployed configuration: one YAML document per application."""
    remote = remote_at(address)
    if remote is not None:
        found = remote.configs()
    else:
        with open_client(address) as client:
            found = {} if client is None else client.configs()
    if name is not None:
        if name not in found:
            click.echo(f'No config has been deployed for application "{name}".')
        else:
            click.echo(files.as_yaml(found[name]), nl=False)
    elif not found:
        click.echo("No configuration was found.")
    else:
        click.echo("\n---\n\n".join(files.as_yaml(each) for each in found.values()), nl=False)


@serve.command("controller-health")
@address_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of YAML.")
def controller_health(address: str, as_json: bool) -> None:
    """Show metrics of the controller itself: its load, and the delays of reports."""
    with open_client(address) as client:
        if client is None:
            raise click.ClickException(
                "No Serve instance is running on the node. `skate serve start` and `skate serve deploy` start one."
            )
        found = client.health().model_dump()
    click.echo(f"{json.dumps(found, indent=2)}\n" if as_json else files.as_yaml(found), nl=False)


@serve.command()
@address_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def shutdown(address: str, yes: bool) -> None:
    """Stop all applications and Serve itself, and wait until they have ended."""
    from skate.serve._controller.client import disconnect

    remote = remote_at(address)
    if remote is not None:
        if _may_shut_down(yes, is_running=remote.is_running()):
            remote.shut_down()
            say("Serve has been shut down.")
        return
    with open_client(address) as client:
        if not _may_shut_down(yes, is_running=client is not None):
            return
        assert client is not None
        client.shutdown()
        disconnect()
    say("Serve has been shut down.")


def _may_shut_down(yes: bool, *, is_running: bool) -> bool:
    """Ask for confirmation; return False if Serve does not run."""
    if not is_running:
        say("No Serve instance found running.")
        return False
    if not yes:
        click.confirm("This deletes all applications of Serve on the node. Continue?", abort=True, err=True)
    return True


serve.add_command(run)
