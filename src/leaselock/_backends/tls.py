"""TLS by the options of a URL: whom to trust, and the certificate to show."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The server has answered with something else than TLS.
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
NOT_TLS = "the server does not use TLS"
REFUSED = "the server refuses the certificate of this client"
# An alert with one of these words is about the client's certificate.
CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
# The server cannot serve at the moment.
PASSING_ALERT = "INTERNAL_ERROR"


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


def tls_problem(error: BaseException | None) -> str:
    """What is wrong with the certificates or the settings, if TLS was not set up for that reason;
    "" if it was not, or if the connection has just ended.
    """
    lost = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    if not isinstance(error, ssl.SSLError) or isinstance(error, lost):
        return ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not verified: {error.verify_message}"
    reason = error.reason or str(error)
    if PASSING_ALERT in reason:
        return ""
    if reason in NO_TLS:
        return NOT_TLS
    if "ALERT" in reason and any(word in reason for word in CERTIFICATE_ALERTS):
        return f"{REFUSED}: {reason}"
    return f"TLS: {reason}"


def error_behind(error: BaseException | None) -> OSError | None:
    """The error of the operating system, or of TLS, that a client library has replaced."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__ or getattr(error, "original_exception", None)
    return error
