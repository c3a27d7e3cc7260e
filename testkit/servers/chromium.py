"""A headless Chromium, the one of the system, that tests control with Playwright."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from playwright.sync_api import ConsoleMessage, Error, sync_playwright
from testkit.servers.process import eventually, program

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = ("--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")


class Chromium:
    """One browser with one page. What the page logs as an error is in *problems*."""

    def __enter__(self) -> Self:
        self.problems: list[str] = []
        with ExitStack() as stack:
            browsers = stack.enter_context(sync_playwright()).chromium
            # As root, and in containers, Chromium's own sandbox cannot be set up. The page under
            # test is ours.
            browser = browsers.launch(
                executable_path=program("chromium"), chromium_sandbox=False, args=OPTIONS
            )
            stack.callback(browser.close)
            # `size` sets the size, and whether it is a phone, while the page is open.
            self.page = browser.new_page(no_viewport=True)
            self.devtools = self.page.context.new_cdp_session(self.page)
            self.page.on("pageerror", self._note_error)
            self.page.on("console", self._note_message)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _note_error(self, error: Error) -> None:
        self.problems.append(error.stack or error.message)

    def _note_message(self, message: ConsoleMessage) -> None:
        """Keep the errors of the page: blocked content, files that are missing."""
        if message.type == "error":
            self.problems.append(f"{message.text} {message.location['url']}")

    def size(self, width: int, height: int, *, dark: bool = False, touch: bool = False) -> None:
        """Set the size of the window and the colours that the user prefers."""
        self.devtools.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch},
        )
        self.page.emulate_media(color_scheme="dark" if dark else "light")

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self.page.goto(url)

    def begin_to_open(self, url: str) -> None:
        """Open a page, and do not wait until it is loaded."""
        self.page.goto(url, wait_until="commit")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(expression)

    def wait(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        eventually(lambda: self.value(f"Boolean({expression})"))

    def text(self, selector: str) -> str:
        """The text of the first element that a selector names."""
        text: str = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        return text

    def press(self, key: str) -> None:
        """Press a key."""
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.page.keyboard.insert_text(text)

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        self.page.screenshot(path=path)
