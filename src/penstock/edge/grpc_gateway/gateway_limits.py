"""Every bound of the gRPC gateway, with its unit and the reason for its value."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 1_114_112
"""One received message, by default (`edge.grpc_message_bytes_max`): a batch of Kafka's default
`max.message.bytes` and 64 KiB. gRPC compares the length before it allocates. A larger record uses
Session, whose frames may span messages."""

FIELDS_MAX: Final = 16_384
"""Fields of one received message with its inner messages: about 8 ms of parsing on the loop."""

RECORDS_MAX: Final = 2_000
"""Records of one Produce and of one answer to Fetch, as push parses on the event loop. A batch may
have more."""

TOPICS_MAX: Final = 100
"""Topics of one GetTopicMetadata."""

PARTITIONS_MAX: Final = 10_000
"""Partitions in one answer to GetTopicMetadata."""

FETCH_BYTES_DEFAULT: Final = 131_072
FETCH_BYTES_MAX: Final = 1_048_576
"""Bytes of records in one answer to Fetch; one record or batch may be larger."""

FETCH_WAIT_MS_MAX: Final = 30_000

CALL_SECONDS_MAX: Final = 60.0
"""One call that is not a Session, with or without a deadline of its client."""

REQUEST_SECONDS_MAX: Final = 10.0
"""Time until the message of a call has arrived."""

MESSAGES_BYTES_MAX: Final = 268_435_456
"""Messages and answers of all calls and sessions at one time. A call or a session that waits for a
message counts the largest one: gRPC does not say how much of it has arrived, and cannot withdraw a
read. A hundred sessions that each send a message without its last byte use 110 MiB (measured). A
received message counts its bytes, and an answer its own until the client has accepted it. So 240
sessions are open at one time, and 1,000 with messages of up to 262,144 bytes; calls that wait for
records are hardly counted."""

CALLS_MAX: Final = 1_000
"""Calls and sessions at one time."""

CALLS_PER_ADDRESS_MAX: Final = 200
"""Calls and sessions of one address at one time."""

STREAMS_PER_CONNECTION_MAX: Final = 200
"""As calls of one address: the next ones wait at the client."""

CONNECTIONS_MAX: Final = 2_000
"""Connections; gRPC closes the next one at once."""

METADATA_BYTES_MAX: Final = 65_536
"""Metadata of one call: a token of an identity provider fits."""

HANDSHAKE_MS_MAX: Final = 10_000
"""Time until a connection has sent its TLS and HTTP/2 settings."""

IDLE_MS_MAX: Final = 600_000
"""A connection without calls is closed, as `connections.max.idle.ms` of Kafka."""

KEEPALIVE_MS: Final = 30_000
KEEPALIVE_TIMEOUT_MS: Final = 15_000
"""A ping after this silence; a client that does not answer is gone."""

PINGS_MS_MIN: Final = 10_000
"""A client that pings more often is disconnected."""

LOGIN_MEMORY_SECONDS: Final = 60.0
"""How long a proven credential is not checked again for calls of one address: a password check uses
10 ms of a core and more."""

LOGIN_MEMORY_MAX: Final = 10_000

CHECKS_MAX: Final = 1_024
"""Credentials that are being checked, or whose refusal is delayed. A call that is cancelled does
not end its check."""

CHECKS_PER_ADDRESS_MAX: Final = 64
"""Of these, checks of one address."""

SEND_BYTES: Final = 262_144
"""Bytes of the push protocol in one message to the client."""

DRAIN_SECONDS_MAX: Final = 5.0
"""Time for the last frames of a session whose client sends no more."""

THROTTLE_SECONDS_MAX: Final = 30.0
"""Longest delay of an answer to a client above its quota."""
