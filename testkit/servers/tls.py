"""Certificates of a private authority, made by openssl for one test run.

The keys are in a temporary folder, and the authority signs for 127.0.0.1 and localhost only.
"""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

from testkit.servers.process import program

if TYPE_CHECKING:
    from pathlib import Path

ELLIPTIC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Certificates:
    """A throw-away authority, and one certificate for a server."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca, self.cert, self.key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
        ca_key, request, names = (folder / name for name in ("ca-key.pem", "request", "names"))
        # Without these extensions, Python 3.13 and later refuse a certificate: VERIFY_X509_STRICT.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        names.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
            "basicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        new = ["req", *ELLIPTIC, "-subj"]
        self._openssl(
            *new, "/CN=throw-away authority", "-x509", *usage, "-keyout", ca_key, "-out", self.ca
        )
        self._openssl(*new, "/CN=127.0.0.1", "-keyout", self.key, "-out", request)
        signed: list[str | Path] = [
            "-CA",
            self.ca,
            "-CAkey",
            ca_key,
            "-CAcreateserial",
            "-extfile",
            names,
        ]
        self._openssl("x509", "-req", "-in", request, *signed, "-out", self.cert)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(
            [program("openssl"), *map(str, arguments)], check=True, capture_output=True, text=True
        )

    def context(self) -> ssl.SSLContext:
        """For a client that verifies, and as strictly as Python 3.13 does."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context
