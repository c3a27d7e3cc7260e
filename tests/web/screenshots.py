"""Take the screenshot of the documentation: `python -m tests.web.screenshots`."""

from __future__ import annotations

import argparse
from pathlib import Path

from testkit.servers.chromium import Chromium
from testkit.servers.process import eventually
from tests.web.example_store import ExampleStore
from tests.web.serving import served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
READS = 3


def main() -> None:
    """Write the image into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=IMAGES)
    folder = parser.parse_args().into
    folder.mkdir(parents=True, exist_ok=True)
    store = ExampleStore()
    with served(lambda: store) as url, Chromium() as browser:
        browser.size(1280, 1200)
        browser.open(url)
        eventually(lambda: store.reads > READS)
        browser.wait("document.querySelectorAll('#graph svg').length")
        browser.picture(folder / "web.png")
        assert not browser.problems, browser.problems


if __name__ == "__main__":
    main()
