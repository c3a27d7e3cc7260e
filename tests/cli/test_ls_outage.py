"""ls --watch --json while the store is down; ls without what only cools down."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from testkit.servers.process import closed_port

if TYPE_CHECKING:
    from tests.cli.processes import Shell


def test_watch_answers_with_a_document_while_the_store_is_down(shell: Shell) -> None:
    with closed_port() as port:
        url = f"redis://127.0.0.1:{port}"
        listing = shell.start("ls", "--watch", "--json", "--interval", "100ms", "--url", url)
        assert listing.stdout is not None
        documents = [json.loads(listing.stdout.readline()) for _ in range(2)]
        listing.terminate()
        listing.wait()
    for document in documents:
        assert document["error"] == "unreachable"
        assert str(port) in document["message"]
        assert document["backend"] == url


def test_locks_that_only_cool_down_can_be_left_out(shell: Shell) -> None:
    assert shell.run("run", "--once-per", "1h", "webhook", "true").returncode == 0
    shell.job("busy")
    assert "webhook" in shell.run("ls").stdout
    listed = shell.run("ls", "--hide-cooling")
    assert "webhook" not in listed.stdout
    assert "busy" in listed.stdout
