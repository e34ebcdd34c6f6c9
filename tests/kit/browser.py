"""A browser without a window, driven over a pipe with the Chrome DevTools Protocol; how long a page takes to open.

Only the standard library: ``--remote-debugging-pipe`` speaks JSON, one message after another with a null byte
behind each, over the file descriptors 3 (to the browser) and 4 (from it).
https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
"""``--no-sandbox``: in a container there is often no sandbox to be had, and the pages are our own."""

TIMEOUT = 60.0
"""Seconds that one answer may take; only a browser that hangs needs them."""

_KEY_CODES = {
    "Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip

_BESIDE_STANDARD = 10
"""Ends of pipes get numbers from here on, so that 3 and 4 are free to be the child's."""


def find() -> str | None:
    """The browser that ``CONFORMANCE_BROWSER`` names, or the first one on the path."""
    named = os.environ.get("CONFORMANCE_BROWSER")
    return next((path for name in ([named] if named else NAMES) if (path := shutil.which(name))), None)


class Navigated(RuntimeError):
    """The page that a command was for has been left for another meanwhile."""


class Browser:
    """A running browser. Raises RuntimeError for what it refuses or does not answer."""

    def __init__(self, program: str, profile: Path) -> None:
        read_here, write_there = _pipe()
        read_there, write_here = _pipe()
        log = profile / "log.txt"
        self._pid = os.posix_spawn(
            program,
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_there, 3),
                (os.POSIX_SPAWN_DUP2, write_there, 4),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
            setpgroup=0,
        )
        os.close(read_there)
        os.close(write_there)
        self._in, self._out = read_here, write_here
        self._log = log
        self._buffer = b""
        self._last = 0
        self.pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come in between go to their page."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        _write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + TIMEOUT
        while True:
            answer = self._receive(end, method)
            if answer.get("id") == self._last:
                if "error" in answer:
                    left = "navigated" in answer["error"]["message"]
                    raise (Navigated if left else RuntimeError)(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, end: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                said = self._log.read_text(errors="replace")[-500:] if self._log.exists() else ""
                raise RuntimeError(f"the browser did not answer {waiting_for}; it said: {said}")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        page = self.pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.told(message["method"], message["params"])
        return message

    @contextmanager
    def page(self, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A page in a context of its own: nothing that another page stored is there."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        page.colours("dark" if dark else "light")
        try:
            yield page
        finally:
            del self.pages[session]
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        with suppress(RuntimeError, OSError):
            self.call("Browser.close")
        os.close(self._in)
        os.close(self._out)
        end = time.monotonic() + 10
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.killpg(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return
            time.sleep(0.02)


@dataclass
class Page:
    """One tab, and what it said since it was opened."""

    browser: Browser
    session: str
    complaints: list[str] = field(default_factory=list)
    """Exceptions, console messages of any level, violations of the content security policy."""
    requests: list[str] = field(default_factory=list)
    """Every address that was asked for."""
    opened: list[str] = field(default_factory=list)
    """Those of them that ``open`` asked for."""

    def told(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {parameters['message']}")

    def forget(self) -> None:
        """Let what was said and asked for until now be of no account."""
        for heard in (self.complaints, self.requests, self.opened):
            heard.clear()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, file: Path, fragment: str = "", query: str = "") -> None:
        """Opens a report from disk, and waits until all of it is there. A page that differs from the one that is
        open in its fragment alone would not be loaded; another query makes it another page."""
        self.opened.append(file.resolve().as_uri() + (f"?{query}" if query else ""))
        self.call("Page.navigate", url=f"{self.opened[-1]}{fragment}")
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['result'].get('description')}")
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until the expression is true. A page that is left while it is asked about says nothing yet."""
        end = time.monotonic() + TIMEOUT
        while True:
            with suppress(Navigated):
                if self.value(expression):
                    return
            if time.monotonic() > end:
                raise RuntimeError(f"never became true: {expression}; the page said: {self.complaints}")
            time.sleep(0.01)

    def press(self, key: str) -> None:
        """One key, as ``KeyboardEvent.key`` names it."""
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        about = {"key": key, "windowsVirtualKeyCode": _KEY_CODES.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        for character in text:
            self.press(character)

    def click(self, selector: str) -> None:
        """In the middle of an element, which is scrolled into view first."""
        x, y = self.value(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node.scrollIntoView({block: 'center'}); const box = node.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int) -> None:
        """In CSS pixels; a narrow one as a phone has it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip

    def colours(self, scheme: str) -> None:
        """What the system prefers: ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@contextmanager
def running(program: str) -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        browser = Browser(program, Path(profile))
        try:
            yield browser
        finally:
            browser.close()


def load_times(browser: Browser, file: Path) -> dict[str, float]:
    """Seconds since navigation began until rows stand in the document, are painted, and the matrix is whole."""
    with browser.page() as page:
        page.open(file)
        page.wait("performance.getEntriesByName('painted').length > 0")
        return {
            name: page.value(f"performance.getEntriesByName({name!r})[0].startTime") / 1000
            for name in ("first-row", "painted", "whole")
        }


def _pipe() -> tuple[int, int]:
    """Both ends with numbers above those that the child's protocol uses."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _BESIDE_STANDARD) for end in low)
    for end in low:
        os.close(end)
    return high[0], high[1]


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
