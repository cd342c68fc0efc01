"""A headless Chromium, driven over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
)
PATIENCE_S = 60


@contextmanager
def open_browser() -> Iterator[str]:
    """Start a browser, and yield the address of its DevTools. Without Chromium, the test is skipped."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    profile = tempfile.mkdtemp()
    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={profile}"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if line.startswith("DevTools listening on "))
        yield line.split()[-1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the program may be a script that starts the browser
        process.communicate()
        shutil.rmtree(profile, ignore_errors=True)


class Page:
    """A tab.

    Args:
        browser: The address of the browser's DevTools.
        width: The width of the window in pixels.
        dark: Whether the user prefers dark colours.
    """

    def __init__(self, browser: str, *, width: int = 1000, dark: bool = False) -> None:
        self._resources = ExitStack()
        self._socket: ClientConnection = self._resources.enter_context(
            connect(browser, max_size=None, compression=None)
        )
        self._calls = 0
        self._session: str | None = None
        self._loads = 0
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        self._call("Page.close")
        self._resources.close()

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        loads = self._loads
        self._call("Page.navigate", url=url)
        while self._loads == loads:
            self._note(json.loads(self._socket.recv(timeout=PATIENCE_S)))

    def run(self, script: str) -> Any:
        """Return the value of an expression, or of the promise that it gives."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a condition holds; it is tested whenever the document changes."""
        self.run(f"""new Promise((resolve) => {{
            const check = () => {{ if ({condition}) {{ observer.disconnect(); resolve(true); }} }};
            const observer = new MutationObserver(check);
            const all = {{ subtree: true, childList: true, characterData: true, attributes: true }};
            observer.observe(document, all);
            check();
        }})""")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def type(self, selector: str, text: str) -> None:
        """Type a text into an empty field, and press Enter."""
        self.run(
            f"{{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select(); }}"
        )
        self._call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="Enter",
                code="Enter",
                text="\r",
                windowsVirtualKeyCode=13,
            )

    def save_picture(self, path: Path) -> None:
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if answer.get("id") == self._calls:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Page.loadEventFired":
            self._loads += 1
        elif event["method"] == "Page.javascriptDialogOpening":
            self.dialogs.append(event["params"]["message"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(event["params"]["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(str(event["params"]["entry"]))
