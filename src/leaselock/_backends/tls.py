"""TLS by the options of a URL: whom to trust, and the certificate to show."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def tls_context(options: Mapping[str, str], store: str, prefix: str = "") -> ssl.SSLContext:
    """How to verify the servers, from the options ``ca``, ``cert`` and ``key``: files in PEM
    format, of which the names begin with *prefix*. Without ``ca`` the authorities are those that
    the system trusts. ValueError for a file that cannot be used.
    """
    ca, cert, key = (prefix + name for name in ("ca", "cert", "key"))
    if key in options and cert not in options:
        raise ValueError(f"a URL for {store} has ?{key}= without ?{cert}=: give both files")
    try:
        context = ssl.create_default_context(cafile=options.get(ca))
    except OSError as error:
        raise ValueError(f"?{ca}= must be a file of certificates in PEM format: {error}") from error
    if cert in options:
        try:
            # An encrypted key is refused: without a password here, OpenSSL would ask the terminal.
            context.load_cert_chain(options[cert], options.get(key), password="")
        except OSError as error:
            raise ValueError(
                f"?{cert}= and ?{key}= must be files in PEM format with a certificate and its key, "
                f"which is not encrypted: {error}"
            ) from error
    return context
