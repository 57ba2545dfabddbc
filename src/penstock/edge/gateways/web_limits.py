"""Every bound of the gateways, with its unit and the reason for its value."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 16_777_216
"""One binary WebSocket message: as many bytes as one session may have in progress."""

JSON_MESSAGE_BYTES_MAX: Final = 1_048_576
"""One text WebSocket message. The event loop parses it: 10 ms. Larger records use frames."""

FIRST_MESSAGE_BYTES_MAX: Final = 131_072
"""One WebSocket message of a client that is not authenticated yet: a token of 64 KiB fits."""

FRAMES_PER_MESSAGE_MAX: Final = 10_000
"""Frames in one binary WebSocket message of a client."""

JSON_FRAMES_PER_MESSAGE_MAX: Final = 1_000
"""Frames in one text WebSocket message of a client: 8 ms of the event loop."""

FLUSH_BYTES: Final = 65_536
"""Frames of one turn of the event loop are one WebSocket message, up to this size."""

JSON_FLUSH_BYTES: Final = 4_096
"""The same for JSON: larger runs are encoded in the turn of their session, which is bounded."""

ENCODE_SECONDS: Final = 0.002
"""Time in which all streams and reads encode JSON in one turn of the event loop."""

EVENTS_TOGETHER: Final = 100
"""Events that a stream encodes at a time: about 1 ms."""

PING_SECONDS: Final = 15.0
"""Time between two pings to a WebSocket client. Its answer counts as a sign of life, so a page
without timers keeps its session."""

CLOSE_SECONDS_MAX: Final = 2.0
"""Time for the client to answer the end of a WebSocket, before its connection is cut."""

BODY_BYTES_MAX: Final = 16_777_216
"""One body with the bytes of a record. The topic's own bound is checked by the broker."""

JSON_BODY_BYTES_MAX: Final = 4_194_304
"""One body with records as JSON."""

BODIES_BYTES_MAX: Final = 134_217_728
"""Bodies that are being received or stored, over all requests."""

PARSE_ON_LOOP_BYTES_MAX: Final = 32_768
"""A larger JSON body is parsed on a thread, because it would hold up the event loop."""

RECORDS_PER_REQUEST_MAX: Final = 1_000
"""Records of one publish or one read over HTTP: 8 ms of the event loop."""

RECORDS_DEFAULT: Final = 100
"""Records of one read without `max`."""

ANSWER_BYTES_MAX: Final = 1_048_576
"""Bytes of the records in one answer. A larger record is sent alone."""

WAIT_MS_MAX: Final = 30_000
"""Time that a read waits for the first record."""

REQUEST_SECONDS_MAX: Final = 60.0
"""Time for one request, from its head to the end of its answer; a stream has none."""

STREAM_PARTITIONS_MAX: Final = 64
"""Partitions of one stream of events: each event repeats the positions of all of them."""

STREAM_CREDIT: Final = 10_000
"""Records of a stream that wait for the socket; its bytes are bounded by the session."""

RETRY_AFTER_SECONDS: Final = 1
"""When a request that was refused for lack of room is repeated."""

QUOTA_SECONDS_MAX: Final = 30.0
"""How long a quota delays one answer at most."""
