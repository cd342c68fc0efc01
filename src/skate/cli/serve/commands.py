"""`skate serve`: deploy and inspect applications."""

from __future__ import annotations

import json
from typing import Any

import click

from skate._version import __version__
from skate.cli.output import say
from skate.cli.serve import files
from skate.cli.serve.options import address_option, app_dir_option, environment_options, http_options
from skate.cli.serve.run import run
from skate.cli.serve.session import alias_ray, attach, import_from, run_user_code, serve_client, show_errors
from skate.cli.serve.targets import (
    http_overrides,
    single_application,
    start_for,
    wait_until_running,
    write_address,
)


@click.group()
def serve() -> None:
    """Serve applications: run them, deploy them to a node, inspect them.

    An application is named by an import path, `module:app`, of a bound application or a function that returns
    one, or by a configuration file in YAML, in the format of Ray Serve.
    """


@serve.command()
@address_option
@http_options
@click.option(
    "--proxy-location",
    type=click.Choice(["Disabled", "HeadOnly", "EveryNode"]),
    help="Where proxies listen; `Disabled` for nowhere.",
)
@click.option("--grpc-port", type=int, help="The port for gRPC. Default: 9000.")
@click.option(
    "--grpc-servicer-functions",
    multiple=True,
    metavar="IMPORT_PATH",
    help="A generated function `add_…Servicer_to_server`. Repeatable. Without one, gRPC is disabled.",
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

    `deploy` starts Serve if necessary, with the options of its file. Prints the HTTP address.
    """
    from skate.serve._controller.client import connect, connect_or_start

    alias_ray()
    http = http_overrides(http_host, http_port)
    grpc: dict[str, Any] = {"grpc_servicer_functions": list(grpc_servicer_functions)}
    if grpc_port is not None:
        grpc["port"] = grpc_port
    with attach(address):
        if connect() is not None:
            say("Serve runs already: it stays as it is.")
        with show_errors():
            client = connect_or_start(proxy_location, http, grpc if grpc_servicer_functions else None)
        write_address(client)


@serve.command()
@environment_options
@app_dir_option
@click.option("--name", help="The name of the application. Not for files, which contain the names.")
@click.option("--wait", is_flag=True, help="Return when all applications run; fail if one does not.")
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
    """Deploy an application, or the applications of a file, to a long-lived node.

    ARGUMENTS, each as key=value, are passed to the function at the import path.

    The command replaces all applications that were deployed with it before: unchanged ones keep running, and
    those that are missing now are deleted. Applications of programs are not affected. Returns at once; see
    `skate serve status` for the progress.
    """
    if files.is_file(target):
        file = files.read_config(target)
        if arguments:
            raise click.UsageError("Arguments belong to an import path; a file has them under `args:`.")
    else:
        env = files.environment(runtime_env, runtime_env_json, working_dir)
        file = single_application(target, arguments, env, name)
    alias_ray()
    with import_from(app_dir) as folder, attach(address), show_errors():
        client = start_for(file)
        client.deploy_config(file, folder=folder)
        click.echo("Sent deploy request successfully.")
        if wait:
            wait_until_running(client, file)
        else:
            say("See the progress with `skate serve status`.")


@serve.command()
@app_dir_option
@click.option(
    "-o",
    "--output-path",
    type=click.Path(dir_okay=False),
    help="The file to write. Default: standard output.",
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
    """Write a configuration file for applications, with the options of their code."""
    from skate.serve._build.building import build as take_apart
    from skate.serve._build.importing import imported
    from skate.serve._schema.deployment import schema_of
    from skate.serve.deployment import Application
    from skate.serve.schema import LoggingConfig, ServeDeploySchema

    applications = []
    with import_from(app_dir), run_user_code():
        alias_ray()
        for number, path in enumerate(import_paths, 1):
            found = imported(path)
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
                    "deployments": [schema_of(each.options, given_only=True) for each in spec.deployments],
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
    say("The applications are called app1, app2, …: rename them as you like.")


@serve.command()
@address_option
@click.option("-n", "--name", help="Show this application only.")
def status(address: str, name: str | None) -> None:
    """Show the status of all applications as YAML.

    \b
    The status of an application is
      DEPLOYING      while it changes to its target state;
      RUNNING        when it has reached its target state;
      DEPLOY_FAILED  if the deployment failed: the message contains the reason;
      UNHEALTHY      while lost replicas are being replaced;
      DELETING       while it is being deleted.
    """  # noqa: D301 - the backspace keeps click from wrapping the lines
    from skate.serve.schema import ServeStatus

    with serve_client(address) as client:
        found = ServeStatus() if client is None else client.status()
    if name is None:
        click.echo(files.as_yaml(found), nl=False)
    elif name in found.applications:
        click.echo(files.as_yaml(found.applications[name]), nl=False)
    else:
        known = ", ".join(found.applications) or "none"
        raise click.ClickException(f"Application {name!r} does not exist. There are: {known}.")


@serve.command()
@address_option
@click.option("-n", "--name", help="Show the configuration of this application only.")
def config(address: str, name: str | None) -> None:
    """Show the deployed configuration: one YAML document per application."""
    with serve_client(address) as client:
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
    """Show the health of the Serve controller: its load, and the delays of its inputs."""
    with serve_client(address) as client:
        if client is None:
            raise click.ClickException(
                "There is no Serve instance running on the node. `skate serve start` and `skate serve deploy` start it."
            )
        found = client.health().model_dump()
    click.echo(f"{json.dumps(found, indent=2)}\n" if as_json else files.as_yaml(found), nl=False)


@serve.command()
@address_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def shutdown(address: str, yes: bool) -> None:
    """Stop all applications and Serve itself, and wait until they have ended."""
    from skate.serve._controller.client import forget

    with serve_client(address) as client:
        if client is None:
            say("No Serve instance found running.")
            return
        if not yes:
            click.confirm(
                "This deletes all applications of Serve on the node. Continue?", abort=True, err=True
            )
        client.shutdown()
        forget()
    say("Serve has been shut down.")


serve.add_command(run)
