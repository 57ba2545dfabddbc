"""The error for a failed TLS connection, with its reason and remedy (pure).

OpenSSL reports a code and a line of its source. A user needs to know which side refused, and which
setting to change.
"""

import ssl
from typing import Final

from penstock.client.transport.addresses import Address
from penstock.core.errors import (
    BrokerUnreachableError,
    ClientError,
    PenstockError,
    TlsHandshakeError,
)

WRONG_LISTENER: Final = (
    "Check that this is a TLS listener; for one without TLS set security.protocol to PLAINTEXT or "
    "SASL_PLAINTEXT."
)
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_NAME_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's codes: the host name, or the IP address, is not in the certificate."""
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
    }
)


def tls_failure(address: Address, error: ssl.SSLError) -> ClientError:
    """Return the error of a handshake, or of the first bytes after it.

    A connection that ended is retried, because a broker that restarts ends connections too.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unverified(address, error)
    reason = error.reason or ""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or "EOF" in reason:
        return ended(address)
    if reason in _NO_TLS:
        return TlsHandshakeError(
            f"{address} does not answer in TLS.",
            hint="Check the port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT.",
        )
    if reason in _CERTIFICATE_ALERTS:
        return TlsHandshakeError(
            f"{address} refused the client's certificate or its absence: {_words(reason)}.",
            hint="Give a certificate that the broker trusts: ssl.certificate.location and "
            "ssl.key.location, or ssl.keystore.location.",
        )
    return TlsHandshakeError(f"the TLS handshake with {address} failed: {_words(reason)}.")


def ended(address: Address) -> BrokerUnreachableError:
    """Return the error of a connection that the server ended during the handshake."""
    return BrokerUnreachableError(
        f"{address} closed the connection during the TLS handshake.", hint=WRONG_LISTENER
    )


def ended_early(address: Address, error: PenstockError) -> BrokerUnreachableError:
    """Return the error of a connection that ended before its first answer, after the handshake.

    With TLS 1.3 a server refuses the client's certificate then. Its alert is lost when the
    connection is reset.
    """
    return BrokerUnreachableError(
        f"{address} ended the connection after the TLS handshake: {error}",
        hint="If the listener requires a client certificate, set ssl.certificate.location and "
        "ssl.key.location, or ssl.keystore.location.",
    )


def certificate_name(address: Address) -> str:
    """Return the name that the certificate must contain: without the dot of an absolute name."""
    return address.host.removesuffix(".") or address.host


def _unverified(address: Address, error: ssl.SSLCertVerificationError) -> TlsHandshakeError:
    if error.verify_code in _NAME_MISMATCHES:
        return TlsHandshakeError(
            f"the certificate of {address} does not contain the host {address.host!r}.",
            hint="Connect with a name in the certificate, or have it renewed with this name.",
        )
    if error.verify_code == _EXPIRED:
        return TlsHandshakeError(
            f"the certificate of {address} has expired.", hint="Renew the broker's certificate."
        )
    if error.verify_code == _NOT_YET_VALID:
        return TlsHandshakeError(
            f"the certificate of {address} is not valid yet.",
            hint="Check the clocks of both sides.",
        )
    return TlsHandshakeError(
        f"the certificate of {address} is not trusted: {error.verify_message}.",
        hint="Give the authority that signed it: ssl.ca.location or ssl.truststore.location.",
    )


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ") or "unknown reason"
