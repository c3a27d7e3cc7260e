"""Adds the project's URLs to the metadata of the package: those in release.toml, if filled in."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

URLS = ("documentation", "source", "issues", "changelog")


class ProjectURLs(MetadataHookInterface):
    """Reads release.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs that are known."""
        given = tomllib.loads(Path(self.root, "release.toml").read_text("utf-8"))
        metadata["urls"] = {name.capitalize(): given[name] for name in URLS if given[name]}
