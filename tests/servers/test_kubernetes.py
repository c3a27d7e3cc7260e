"""The build of kube-apiserver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers import kubernetes

if TYPE_CHECKING:
    from pathlib import Path


def test_without_go_the_skip_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As root and in CI a skip that begins so is a failure: see `tests.skips`."""
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path)
    monkeypatch.setattr(kubernetes, "GO", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match=r"^no server: kube-apiserver .* install Go"):
        kubernetes.apiserver()
