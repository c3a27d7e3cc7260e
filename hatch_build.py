"""Adds what release.toml says to the metadata of the package: the project's URLs, if filled in, and
the README, whose links lead to the repository then, because the package index has no other page.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

URLS = ("documentation", "source", "issues", "changelog")
# A link or an image of a page in Markdown, unless it is a URL or leads to a place on the same page.
LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")


class Release(MetadataHookInterface):
    """Reads release.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs that are known, and the README."""
        given = tomllib.loads(Path(self.root, "release.toml").read_text("utf-8"))
        metadata["urls"] = {name.capitalize(): given[name] for name in URLS if given[name]}
        text = Path(self.root, "README.md").read_text("utf-8")
        if given["source"]:
            text = absolute(text, given["source"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, source: str, tag: str) -> str:
    """Return a page whose links lead to the files of a tag in the repository."""

    def link(found: re.Match[str]) -> str:
        # `raw` is the file itself, `blob` is the page that shows it.
        view = "raw" if found["mark"] else "blob"
        url = f"{source.rstrip('/')}/{view}/{tag}/{found['path']}"
        return f"{found['mark']}[{found['text']}]({url})"

    return LINK.sub(link, text)
