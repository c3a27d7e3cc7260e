"""A headless Chromium that tests control by the DevTools protocol, over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

from testkit.servers.process import eventually, program

if TYPE_CHECKING:
    from pathlib import Path

# As root, and in containers, Chromium's own sandbox cannot be set up. The page under test is ours.
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--force-color-profile=srgb"),
)
# What is sent for a key: its code, and the text that it types.
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowDown": (40, ""), "ArrowUp": (38, "")}
KEYS |= {"Tab": (9, ""), "/": (191, "/")}


class Chromium:
    """One browser with one page. What the page logs as an error is in *problems*."""

    def __enter__(self) -> Self:
        chromium = program("chromium")
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        profile = self.profile.name
        commands, self.commands = os.pipe()
        self.replies, replies = os.pipe()
        # The browser reads commands from descriptor 3 and writes replies to descriptor 4.
        script = f'exec 3<&{commands} 4>&{replies}; exec "$@"'
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                script,
                "bash",
                chromium,
                *OPTIONS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(commands, replies),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(replies)
        self.reader = os.fdopen(self.replies, "rb")
        self.buffer = b""
        self.number = 0
        self.session = ""
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        os.close(self.commands)
        self.process.wait()
        self.reader.close()
        self.profile.cleanup()

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command, and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (reply := self._read()).get("id") != self.number:
            self._note(reply)
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            chunk = os.read(self.reader.fileno(), 1 << 20)
            assert chunk, "the browser has ended"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _note(self, event: dict[str, Any]) -> None:
        """Keep the errors of the page: exceptions, blocked content, files that are missing."""
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    def size(self, width: int, height: int, *, dark: bool = False, touch: bool = False) -> None:
        """Set the size of the window and the colours that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        eventually(lambda: self.value("document.readyState") == "complete")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        eventually(lambda: self.value(f"Boolean({expression})"))

    def text(self, selector: str) -> str:
        """The text of the first element that a selector names."""
        text: str = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        return text

    def press(self, key: str) -> None:
        """Press a key."""
        code, text = KEYS[key]
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
