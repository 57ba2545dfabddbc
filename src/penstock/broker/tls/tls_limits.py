"""Bounds of the TLS layer, each with its unit and its reason.

`penstock.core.limits` has the bounds of everything else; limits that an operator may set are
defaults here. It does NOT enforce them.
"""

from typing import Final, NamedTuple

HANDSHAKES_MAX: Final = 256
"""Handshakes with TLS state at a time: about 10 MB, and a quarter of a second of work."""

HANDSHAKES_PER_ADDRESS_MAX: Final = 16
"""Of these, handshakes of one address: one client host cannot hold all places."""

HANDSHAKES_WAITING_MAX: Final = 1_024
"""Connections that wait for one of these places, without TLS state. A host that starts a hundred
clients at once is served, and a flood cannot use up the connections of the listener."""

HANDSHAKE_SECONDS_MAX: Final = 10.0
"""A client completes its handshake within this time, waiting included. Kafka's clients stop after
10 s (socket.connection.setup.timeout.ms)."""

HANDSHAKE_PLACE_SECONDS_MIN: Final = 1.0
"""A handshake keeps its place for this time, even if others wait: longer than honest handshakes
take, and short enough that silent clients do not keep others out."""

HANDSHAKE_BYTES_MAX: Final = 32_768
"""Bytes of a client in its handshake: a chain of ten certificates. OpenSSL would accept 100 KiB and
keep them with the session."""

BARREN_BYTES_MAX: Final = 40_960
"""Bytes of a client after its handshake without content: two records, one of them incomplete."""

HANDSHAKE_READ_BYTES: Final = 16_384
"""Bytes read at a time during a handshake: a client can occupy this much before it has a place."""

RECORD_BYTES_MAX: Final = 16_640
"""The content of one TLS record: 16 KiB and 256 bytes for encryption (RFC 5246)."""

RECORD_HEADER_BYTES: Final = 5

PIECE_RECORDS_MAX: Final = 64
"""Records that are decrypted in one step, about 0.3 ms if they are small: the time is checked
between two steps. A read of full records has 16."""

RAW_READ_BYTES: Final = 262_144
"""Bytes of one read from the socket; one buffer for all connections of an event loop."""

SHORT_READ_EXTRA_BYTES: Final = 512
"""TLS overhead that is read in addition to the bytes that a connection wants while memory is
short."""

ENCRYPT_BYTES_MAX: Final = 262_144
"""Bytes that are encrypted in one step. A fetch of 55 MiB is therefore never copied whole."""

ENCRYPT_TURN_BYTES_MAX: Final = 2_097_152
"""Bytes that one connection encrypts before others get a turn: about 1.5 ms. An answer of 1 MiB
with its head fits."""

JOIN_BYTES_MAX: Final = 16_384
"""Answers up to this size are joined: a TLS record costs about as much as the copy of 16 KiB, the
largest content of a record."""

FAILURE_LOG_SECONDS: Final = 60.0
"""Time between two log lines about failed handshakes of one address."""

FAILURE_LOG_ADDRESSES_MAX: Final = 1_024
"""Addresses that are remembered for it. Above it, nothing is logged for new ones until a minute
has passed: an attacker with many addresses cannot fill the log."""


class HandshakeLimits(NamedTuple):
    """The limits on handshakes of one listener."""

    handshakes_max: int = HANDSHAKES_MAX
    per_address_max: int = HANDSHAKES_PER_ADDRESS_MAX
    waiting_max: int = HANDSHAKES_WAITING_MAX
    seconds_max: float = HANDSHAKE_SECONDS_MAX
    place_seconds_min: float = HANDSHAKE_PLACE_SECONDS_MIN
