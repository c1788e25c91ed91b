"""A headless Chromium for tests of pages, driven over the DevTools protocol through a pair of pipes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--remote-debugging-pipe", "--window-size=1400,1000"),
)
ANSWER_SECONDS_MAX = 60
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"
"""Charts are drawn in the frame after the one in which their element got its size."""


class Browser:
    """One Chromium with one page; `complaints` gathers what its console and its policies say."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser wants its pipes at 3 and 4, whatever numbers they have here; plain sh knows one digit only.
        script = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, "bash", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdout=quiet, stderr=quiet)
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._asked = 0
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser with all its processes: it leaves by itself when it is asked to, or when its pipe ends."""
        try:
            self._session = None
            self.ask("Browser.close")
        except (EOFError, BrokenPipeError):
            pass
        finally:
            os.close(self._write)
            os.close(self._read)
            try:
                self._process.wait(ANSWER_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _attach(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are noted."""
        self._asked += 1
        message: dict[str, object] = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._asked:
                if "error" in heard:
                    raise AssertionError(f"{method}: {heard['error']}")
                result: dict[str, Any] = heard["result"]
                return result
            self._note(heard)

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select([self._read], [], [], ANSWER_SECONDS_MAX)
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise EOFError("the browser has gone silent")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"])[:600])
        elif method == "Log.entryAdded":
            self.complaints.append(str(parameters["entry"]["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file:", "data:")):
            self.complaints.append(f"fetches {parameters['request']['url']}")

    def open(self, path: Path, anchor: str = "") -> None:
        """Load a page and wait until it is drawn; an empty page first, so that another anchor loads too."""
        for url in ("about:blank", f"{path.resolve().as_uri()}{anchor}"):
            self._loaded = False
            self.ask("Page.navigate", url=url)
            while not self._loaded:
                self._note(self._hear())
        self.painted()

    def painted(self) -> None:
        """Wait until what was changed is on the screen."""
        self.run(PAINTED)

    def run(self, script: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.ask("Input.insertText", text=text)
        self.painted()

    def press(self, key: str) -> None:
        """Press one key."""
        codes = {"Enter": 13, "ArrowRight": 39, "Tab": 9}
        extra = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = extra if kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **more)
        self.painted()

    def prefer(self, scheme: str) -> None:
        """Choose between light and dark, as a system would."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.painted()

    def resize(self, width: int, height: int) -> None:
        """Change the size of the window."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.painted()
