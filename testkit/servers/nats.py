"""A private NATS server with JetStream, built from its Go module."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Self

from testkit.servers.costs import starting
from testkit.servers.go_programs import go_program
from testkit.servers.process import HOST, Process, accepts, free_port

MODULE, VERSION = "github.com/nats-io/nats-server/v2", "v2.15.2"


class Nats:
    """One server, which keeps its data in a folder of its own."""

    def __init__(self) -> None:
        program = go_program(MODULE, VERSION)
        self.folder = Path(tempfile.mkdtemp(prefix="nats-"))
        self.port = free_port()
        command = [str(program), "--addr", HOST, "--port", str(self.port)]
        command += ["--jetstream", "--store_dir", str(self.folder / "data")]
        with starting("NATS"):
            self.process = Process(command, self.folder / "log")
            assert self.process.ready(lambda: accepts(self.port)), self.process.output()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
