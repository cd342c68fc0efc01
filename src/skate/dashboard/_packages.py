"""Packages of runtime environments, which clients upload before they submit a job or deploy an application."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from skate._api.starting import package_file
from skate.dashboard._node import Node
from skate.dashboard._rest import as_text
from skate.dashboard._topics import Problem

__all__ = ["Packages"]

LARGEST_PACKAGE: Final = 1 << 30
_FOLDER: Final = "packages"  # of the session
_LOCAL: Final = "local://"  # of a folder that is on the machine already
_PACKAGE: Final = re.compile(r"\w[\w.+-]{0,254}")


class Packages:
    """The paths /api/packages/….

    Args:
        node: The node, whose session has the packages.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        package = "/api/packages/{protocol}/{name}"
        return [
            Route(package, as_text(self._has), methods=["GET"]),
            Route(package, as_text(self._store), methods=["PUT"]),
        ]

    def localized(self, runtime_env: Any) -> Any:
        """Return a runtime environment with the paths of uploaded packages in place of their URIs.

        Raises:
            Problem: It is not an object, or a package was not uploaded.
        """
        if not isinstance(runtime_env, dict):
            raise Problem(400, f"runtime_env must be an object, not {type(runtime_env).__name__}.")
        changed = dict(runtime_env)
        changed.pop("_ray_commit", None)
        if "working_dir" in changed:
            changed["working_dir"] = self._local(changed["working_dir"])
        if isinstance(changed.get("py_modules"), list):
            changed["py_modules"] = [self._local(each) for each in changed["py_modules"]]
        return changed

    def with_uris(self, value: Any) -> Any:
        """Return a value in which the local paths of runtime environments are URIs, which Ray's clients insist on."""
        if isinstance(value, list):
            return [self.with_uris(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self._environment_with_uris(each)
            if name == "runtime_env" and isinstance(each, dict)
            else self.with_uris(each)
            for name, each in value.items()
        }

    def _environment_with_uris(self, environment: dict[str, Any]) -> dict[str, Any]:
        changed = dict(environment)
        if "working_dir" in changed:
            changed["working_dir"] = self._uri(changed["working_dir"])
        if isinstance(changed.get("py_modules"), list):
            changed["py_modules"] = [self._uri(each) for each in changed["py_modules"]]
        return changed

    def _uri(self, path: Any) -> Any:
        if not isinstance(path, str):
            return path
        if os.path.isabs(path):
            folder, name = os.path.split(path)
            session = self._node.session
            is_package = session is not None and folder == os.path.join(session, _FOLDER)
            return f"gcs://{name}" if is_package else _LOCAL + path
        file = package_file(path)  # of a program on this machine
        return path if file is None else f"gcs://_ray_pkg_{file.parent.name}{file.suffix}"

    def _local(self, uri: Any) -> Any:
        if isinstance(uri, str) and uri.startswith(_LOCAL):
            return uri.removeprefix(_LOCAL)
        if not isinstance(uri, str) or not uri.startswith("gcs://"):
            return uri
        path = self._path("gcs", uri.removeprefix("gcs://"))
        if not os.path.isfile(path):
            raise Problem(400, f"The package {uri} was not uploaded.")
        return path

    def _path(self, protocol: str, name: str) -> str:
        if protocol != "gcs" or not _PACKAGE.fullmatch(name):
            raise Problem(400, f"{protocol}://{name} is not the URI of a package: it must be gcs://NAME.")
        session = self._node.local_session("Upload packages to Ray's own dashboard.")
        return os.path.join(session, _FOLDER, name)

    async def _has(self, request: Request) -> Response:
        path = self._path(request.path_params["protocol"], request.path_params["name"])
        if not os.path.isfile(path):  # noqa: ASYNC240 - a local file
            raise Problem(404, f"Package gcs://{os.path.basename(path)} does not exist")
        return Response()

    async def _store(self, request: Request) -> Response:
        path = self._path(request.path_params["protocol"], request.path_params["name"])
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        draft = f"{path}.{os.urandom(4).hex()}.new"
        size = 0
        try:
            with open(draft, "xb") as file:  # noqa: ASYNC230 - a local file
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > LARGEST_PACKAGE:
                        raise Problem(413, f"A package may have at most {LARGEST_PACKAGE >> 20} MiB.")
                    await self._node.run(file.write, chunk)
            os.replace(draft, path)
        finally:
            if os.path.exists(draft):  # noqa: ASYNC240 - a local file
                os.unlink(draft)
        return Response()
