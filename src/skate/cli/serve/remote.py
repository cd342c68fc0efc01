"""Serve on the node behind the URL of a dashboard, over Ray's REST paths."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from skate._api import nodes

if TYPE_CHECKING:
    from skate.serve.schema import ServeDeploySchema, ServeInstanceDetails

__all__ = ["RemoteServe", "remote_at"]

_APPLICATIONS: Final = "/api/serve/applications/"
_WITHOUT_SERVER: Final = (
    '`skate dashboard` starts one; without it, --address "auto" is the node of `skate start`.'
)
_POLL_INTERVAL_S: Final = 0.5  # there is no event to wait for
_TIMEOUT_S: Final = 150.0  # the server gives Serve less
_BUSY: Final = ("NOT_STARTED", "DEPLOYING")


class RemoteServe:
    """Sends the requests of commands to a dashboard; errors of the server are those of the command.

    Args:
        url: The URL of the dashboard, with its token.
    """

    def __init__(self, url: str) -> None:
        from skate._api.dashboard_client import DashboardClient

        self._server = DashboardClient(
            url, without_server=_WITHOUT_SERVER, token_advice="Pass the URL with its token."
        )

    def details(self) -> ServeInstanceDetails:
        """Return the full state of Serve."""
        from skate.serve.schema import ServeInstanceDetails

        return ServeInstanceDetails.model_validate(self._call("GET"))

    def configs(self) -> dict[str, Any]:
        """Return the configurations of the applications that a file declares, by application name."""
        found = self._call("GET")["applications"]
        return {
            name: app["deployed_app_config"] for name, app in found.items() if app.get("deployed_app_config")
        }

    def deploy(self, file: ServeDeploySchema) -> None:
        """Deploy the applications of a configuration; the folders of their environments are uploaded."""
        config = file.model_dump(mode="json", exclude_unset=True)
        for app in config["applications"]:
            if app.get("runtime_env"):
                app["runtime_env"] = self._uploaded(app["runtime_env"])
        self._call("PUT", config)

    def wait_until_running(self, names: list[str]) -> None:
        """Wait until applications run; fail if one does not."""
        while True:
            found = self._call("GET")["applications"]
            apps = {name: found[name] for name in names if name in found}
            if not any(app["status"] in _BUSY for app in apps.values()):
                break
            time.sleep(_POLL_INTERVAL_S)
        problems = [
            f"Application {name!r} does not run. {apps[name]['message'] if name in apps else 'It was deleted.'}"
            for name in names
            if name not in apps or apps[name]["status"] != "RUNNING"
        ]
        if problems:
            raise click.ClickException("\n".join(problems))

    def is_running(self) -> bool:
        """Return whether Serve runs."""
        return bool(self._call("GET")["controller_info"])

    def shut_down(self) -> None:
        """Stop all applications and Serve itself."""
        self._call("DELETE")

    def _uploaded(self, environment: dict[str, Any]) -> dict[str, Any]:
        from skate._api.dashboard_client import RefusedError

        try:
            return self._server.uploaded(environment)
        except (OSError, RefusedError, TypeError, ValueError) as error:
            raise click.ClickException(str(error)) from None

    def _call(self, method: str, value: Any = None) -> Any:
        from skate._api.dashboard_client import RefusedError

        try:
            return self._server.call(method, _APPLICATIONS, value, timeout_s=_TIMEOUT_S)
        except RefusedError as error:
            raise click.ClickException(str(error)) from None


def remote_at(address: str | None) -> RemoteServe | None:
    """Return Serve behind an address if it is the URL of a dashboard, else None."""
    return RemoteServe(address) if address is not None and nodes.is_dashboard(address) else None
