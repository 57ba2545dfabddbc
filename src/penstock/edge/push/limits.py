"""Every bound of the push protocol, with its unit and the reason for its value."""

from typing import Final

FIRST_FRAME_SECONDS_MAX: Final = 10.0
"""Time until the first whole frame of a connection."""

HEARTBEAT_SECONDS: Final = 15.0
"""Silence of this side after which it sends HEARTBEAT."""

SILENCE_SECONDS_MAX: Final = 45.0
"""Silence of the client that ends its session: three heartbeats are missing."""

DRAIN_SECONDS_MAX: Final = 5.0
"""Time for the last commits and publishes of a session that ends."""

STOP_SECONDS_MAX: Final = 1.0
"""The same at a stop of the broker, whose parts share 5 s."""

SUBSCRIPTIONS_MAX: Final = 64
"""Subscriptions of one session."""

UNACKNOWLEDGED_BYTES_MAX: Final = 16_777_216
"""Delivered and not acknowledged bytes of one session. At the bound the log is not read for it."""

UNACKNOWLEDGED_FRAMES_MAX: Final = 100_000
"""The same in DATA frames, over all subscriptions: each uses 170 bytes of memory."""

COMMITS_IN_FLIGHT_MAX: Final = 100
"""COMMIT_OFFSET frames of one session that are not answered yet. Reading pauses above."""

PUBLISHES_IN_FLIGHT_MAX: Final = 1_000
"""Published records of one session that are not on disk yet. Reading pauses above."""

PUBLISH_BYTES_IN_FLIGHT_MAX: Final = 16_777_216
"""As above, in bytes."""

PUBLISH_BATCH_BYTES: Final = 65_536
"""Published records that arrive together are appended as one batch up to this size: an append
costs as much as fifty records."""

FIRST_FRAME_BYTES_MAX: Final = 65_536
"""Payload of a frame before the client is authenticated: a token of an identity provider fits."""

COMMIT_INTERVAL_SECONDS: Final = 1.0
"""Time between two commits of a group by one subscription. The end of a subscription commits at
once; a broken connection repeats at most the records of this time."""

TURN_BYTES: Final = 65_536
"""Bytes that one session gets in its turn, or one record or batch if that is larger."""

DATA_OVERHEAD_BYTES: Final = 15
"""Bytes of a DATA frame beside its payload without the subscription."""

FRAME_SECONDS_MAX: Final = 30.0
"""Time from the first byte of a frame to its last, as for requests of Kafka clients: a client that
sends a byte now and then does not hold memory for ever."""

READ_BYTES: Final = 131_072
"""Bytes that one read of the log returns; sessions at the same position share it."""

RUN_CACHE_BYTES_MAX: Final = 33_554_432
"""Bytes of recent reads, and of their records, that all sessions share."""

QUEUE_CACHE_BYTES_MAX: Final = 16_777_216
"""The same for queues, whose batches are acquired in parts by several subscribers."""

RUNS_PER_PARTITION_MAX: Final = 8
"""Recent reads of one partition that are kept: consumers at its end share one."""

PUMP_SECONDS: Final = 0.002
"""Work on deliveries in one turn of the event loop, over all sessions."""

UNFOLD_ON_LOOP_RECORDS_MAX: Final = 2_000
"""Records of one read that are parsed on the event loop: 6 ms. A thread parses more."""

WRITE_BUFFER_BYTES_HIGH: Final = 65_536
"""Bytes that the socket of a session does not accept, above which the session gets no turn."""

STALL_SECONDS_MAX: Final = 30.0
"""A client whose socket accepts nothing for this long is disconnected, as a Kafka client is."""

UNSENT_BYTES_MAX: Final = 134_217_728
"""Bytes that sockets do not accept, over all sessions. Above it, sessions with unsent bytes get no
turn: slow consumers wait, and consumers that read at once are served."""

HELD_BYTES_MAX: Final = 134_217_728
"""Received bytes of incomplete frames, over all sessions. Above it, a session that holds more than
`HELD_BYTES_FREE` is ended: many clients that begin a large frame each do not fill the memory."""

HELD_BYTES_FREE: Final = 65_536

UNPROVEN_SESSIONS_MAX: Final = 1_000
"""Connections that are not authenticated yet, on a listener that needs it. Above it the oldest is
closed: a flood of silent connections leaves room for clients."""

RETRY_AFTER_MS_MIN: Final = 500
RETRY_AFTER_MS_MAX: Final = 5_000
"""When clients of a stopping broker come back; spread over this time."""
