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
EVENT_TIMEOUT_S = 60
WAIT_MS = 30_000  # for a condition: less, so that the failure names it
KEY_CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "/": 191}


@contextmanager
def open_browser(*options: str) -> Iterator[str]:
    """Start a browser, and yield the address of its DevTools. Without Chromium, the test is skipped.

    Args:
        options: Further options of the program.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    profile = tempfile.mkdtemp()
    process = subprocess.Popen(
        [program, *OPTIONS, *options, f"--user-data-dir={profile}"],
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
        height: Its height.
        dark: Whether the user prefers dark colours.
    """

    def __init__(self, browser: str, *, width: int = 1000, height: int = 844, dark: bool = False) -> None:
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
            height=height,
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
            self._note(json.loads(self._socket.recv(timeout=EVENT_TIMEOUT_S)))

    def run(self, script: str) -> Any:
        """Return the value of an expression, or of the promise that it gives."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a condition holds; it is tested whenever the document changes."""
        late = json.dumps(f"this did not become true: {condition}")
        self.run(f"""new Promise((resolve, reject) => {{
            setTimeout(() => reject({late} + "; the page: " + document.body.innerText), {WAIT_MS});
            const check = () => {{ if ({condition}) {{ observer.disconnect(); resolve(true); }} }};
            const observer = new MutationObserver(check);
            const all = {{ subtree: true, childList: true, characterData: true, attributes: true }};
            observer.observe(document, all);
            check();
        }})""")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def activate(self, selector: str) -> None:
        """Wait for an element, and do what a click on it does."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(found)
        self.run(f"{found}.click()")

    def type(self, selector: str, text: str) -> None:
        """Type a text into an empty field, and press Enter."""
        self.run(
            f"{{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select(); }}"
        )
        self._call("Input.insertText", text=text)
        self.press("Enter", text="\r")

    def press(self, key: str, *, text: str = "", shift: bool = False) -> None:
        """Press a key, such as "Escape", "/" or "ArrowLeft", where the focus is."""
        text = text or (key if len(key) == 1 else "")
        code = KEY_CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
        shared = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self._call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **shared)
        self._call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def click(self, selector: str, *, x: float = 0.5, y: float = 0.5) -> None:
        """Click into an element; x and y are shares of its width and height."""
        place = self.place(selector, x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, *place, button="left", clickCount=1)

    def drag(self, selector: str, start: float, end: float, y: float = 0.5) -> None:
        """Drag with the mouse across an element, from one share of its width to another."""
        before, after = self.place(selector, start, y), self.place(selector, end, y)
        self._mouse("mousePressed", *before, button="left", clickCount=1)
        for step in range(1, 6):
            x = before[0] + (after[0] - before[0]) * step / 5
            self._mouse("mouseMoved", x, before[1], button="left", buttons=1)
        self._mouse("mouseReleased", *after, button="left", clickCount=1)

    def wheel(self, selector: str, pixels: float, x: float = 0.5, y: float = 0.5) -> None:
        """Turn the mouse wheel above an element; positive is down."""
        self._mouse("mouseWheel", *self.place(selector, x, y), deltaX=0, deltaY=pixels)

    def place(self, selector: str, x: float, y: float) -> tuple[float, float]:
        """Return a place inside an element, scrolled into view, in pixels of the window."""
        box = self.run(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "nearest"}});
            const box = element.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()""")
        return box[0] + box[2] * x, box[1] + box[3] * y

    def set_offline(self, offline: bool) -> None:
        """Cut the browser off from all servers, or connect it again."""
        self._call("Network.enable")
        shared = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self._call("Network.emulateNetworkConditions", offline=offline, **shared)

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def save_picture(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the whole page, or of what is in the window."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=EVENT_TIMEOUT_S))
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
