"""A private object store with the interface of S3: versitygw, on a free port of 127.0.0.1.

It comes from the Go module proxy, pinned by its version (whose checksum Go verifies), and is built
once, in the user's cache folder.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

import boto3
from botocore.config import Config
from testkit.servers.costs import starting
from testkit.servers.go_programs import go_program
from testkit.servers.process import HOST, START_TIMEOUT, Process, accepts, free_port

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
REGION = "us-east-1"
LOGIN = {"aws_access_key_id": "tests", "aws_secret_access_key": "none-of-them"}


class ObjectStore:
    """One server, with its objects in a folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="versitygw-"))
        (self.folder / "buckets").mkdir()
        self.port = free_port()
        self.endpoint = f"http://{HOST}:{self.port}"
        self.process: Process | None = None
        with starting("versitygw"):
            self.start()

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        key, secret = LOGIN.values()
        command = [str(go_program(MODULE, VERSION)), "--port", f"{HOST}:{self.port}"]
        command += ["--region", REGION]
        command += ["--access", key, "--secret", secret, "--quiet"]
        command += ["posix", str(self.folder / "buckets")]
        self.process = Process(command, self.folder / "log")
        assert self.process.ready(lambda: accepts(self.port)), self.process.output()

    def running(self) -> Process:
        """Its process."""
        assert self.process is not None
        return self.process

    def stop(self) -> None:
        """Kill it; the objects stay."""
        self.running().kill()

    def resource(self) -> Any:
        """A resource of boto3, as a user has it."""
        config = Config(read_timeout=START_TIMEOUT, s3={"addressing_style": "path"})
        return boto3.resource(
            "s3", region_name=REGION, endpoint_url=self.endpoint, config=config, **LOGIN
        )

    def url(self, bucket: str, prefix: str = "", **options: str) -> str:
        """The URL of a bucket, with a login."""
        words = {"region": REGION, "endpoint": self.endpoint, **options}
        login = ":".join(quote(word, safe="") for word in LOGIN.values())
        return f"s3://{login}@{bucket}/{prefix}?{urlencode(words)}"

    def close(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.process.kill()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
