"""`HandshakeFailures`: why handshakes failed, counted by reason, and logged now and then.

OpenSSL reports a code. An operator needs the meaning and the remedy, and one line a minute for an
address, however often its client retries. Clients that end their connection are counted and not
logged: port scanners and health checks do it all the time.

Text of a peer never reaches the log: only its address, its first bytes in hexadecimal, and texts of
OpenSSL and of this file.
"""

import logging
import ssl
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.broker.tls.tls_limits import FAILURE_LOG_ADDRESSES_MAX, FAILURE_LOG_SECONDS
from penstock.core.metrics import Family, Registry, Row

logger = logging.getLogger(__name__)

NOT_TLS: Final = "not_tls"
TIMED_OUT: Final = "timed_out"
CROWDED_OUT: Final = "crowded_out"
ENDED_BY_CLIENT: Final = "ended_by_client"
NO_CERTIFICATE: Final = "no_certificate"
BAD_CERTIFICATE: Final = "bad_certificate"
REFUSED_BY_CLIENT: Final = "refused_by_client"
PROTOCOL_VERSION: Final = "protocol_version"
NO_SHARED_CIPHER: Final = "no_shared_cipher"
TOO_LARGE: Final = "too_large"
BAD_RECORD: Final = "bad_record"
OTHER: Final = "other"

MEANINGS: Final[Mapping[str, str]] = {
    NOT_TLS: "the client does not use TLS, and this listener requires it. Set security.protocol to "
    "SSL or SASL_SSL in the client, or use the port of a listener without TLS",
    TIMED_OUT: "the TLS handshake took too long (tls.handshake_seconds_max)",
    CROWDED_OUT: "the TLS handshake took too long while others waited (tls.handshakes_max)",
    ENDED_BY_CLIENT: "the client ended the connection during the TLS handshake",
    NO_CERTIFICATE: "the client sent no certificate, and this listener requires one. Set "
    "ssl.keystore.location, or ssl.certificate.location and ssl.key.location, in the client",
    BAD_CERTIFICATE: "the client's certificate is not accepted. It must be valid now and signed by "
    "an authority in the listener's tls.client_ca",
    REFUSED_BY_CLIENT: "the client does not accept the broker's certificate. Check the "
    "authorities that the client trusts, and the host name that it connects to",
    PROTOCOL_VERSION: "the client offers neither TLS 1.2 nor TLS 1.3",
    NO_SHARED_CIPHER: "the client offers no cipher of this listener (ECDHE with AES-GCM or "
    "CHACHA20), or no signature that fits the broker's certificate",
    TOO_LARGE: "the client sent too many bytes in the TLS handshake",
    BAD_RECORD: "the client sent a damaged TLS record after the handshake",
    OTHER: "the TLS handshake failed",
}
"""What each reason means, for the log."""

_QUIET: Final = frozenset({ENDED_BY_CLIENT})
_VERSIONS: Final = frozenset(
    {
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "VERSION_TOO_LOW",
        "WRONG_SSL_VERSION",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "INAPPROPRIATE_FALLBACK",
    }
)
_CIPHERS: Final = frozenset(
    {"NO_SHARED_CIPHER", "NO_SUITABLE_SIGNATURE_ALGORITHM", "NO_SUITABLE_KEY_SHARE"}
)
_REFUSALS: Final = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_UNRECOGNIZED_NAME",
    }
)


def reason_of(error: ssl.SSLError) -> tuple[str, str]:
    """Return the reason of a failed handshake, and OpenSSL's words for it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return BAD_CERTIFICATE, error.verify_message
    code = error.reason or ""
    words = code.lower().replace("_", " ")
    if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return ENDED_BY_CLIENT, words
    if code == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return NO_CERTIFICATE, ""
    for reason, codes in (
        (PROTOCOL_VERSION, _VERSIONS),
        (NO_SHARED_CIPHER, _CIPHERS),
        (REFUSED_BY_CLIENT, _REFUSALS),
    ):
        if code in codes:
            return reason, words
    return OTHER, words


class HandshakeFailures:
    """The handshakes of one listener, counted."""

    __slots__ = ("_logged_at", "_name", "completed", "counts")

    def __init__(self, listener_name: str) -> None:
        self._name = listener_name
        self.completed = 0
        self.counts: dict[str, int] = dict.fromkeys(MEANINGS, 0)
        self._logged_at: dict[str, float] = {}
        """When something was last logged about an address, in the order of time."""

    def count(self, reason: str) -> None:
        """Count a failure that is not logged."""
        self.counts[reason] += 1

    def note(self, reason: str, address: str, detail: str, now: float) -> None:
        """Count a failure, and log it unless this address was in the log within the last minute."""
        self.count(reason)
        if reason in _QUIET or not self._may_log(address, now):
            return
        logger.warning(
            "listener %s: closing the connection from %s: %s%s. Further failures of this address "
            "are not logged for %d s; see penstock_tls_handshakes_failed_total",
            self._name,
            address,
            MEANINGS[reason],
            f" ({detail})" if detail else "",
            FAILURE_LOG_SECONDS,
        )

    def _may_log(self, address: str, now: float) -> bool:
        logged_at = self._logged_at
        while logged_at:
            oldest = next(iter(logged_at))
            if now - logged_at[oldest] < FAILURE_LOG_SECONDS:
                break
            del logged_at[oldest]
        if address in logged_at or len(logged_at) >= FAILURE_LOG_ADDRESSES_MAX:
            return False
        logged_at[address] = now
        return True


def show_failures(metrics: Registry, listeners: Mapping[str, HandshakeFailures]) -> None:
    """Register the counts of all listeners, by the listener's name."""

    def completed() -> Iterable[Row]:
        return [Row((name,), one.completed) for name, one in listeners.items()]

    def failed() -> Iterable[Row]:
        return [
            Row((name, reason), count)
            for name, one in listeners.items()
            for reason, count in one.counts.items()
        ]

    metrics.family(
        "tls_handshakes_total", Family("TLS handshakes that succeeded.", ("listener",), completed)
    )
    metrics.family(
        "tls_handshakes_failed_total",
        Family(
            "TLS connections that the broker ended, or that ended in their handshake.",
            ("listener", "reason"),
            failed,
        ),
    )
