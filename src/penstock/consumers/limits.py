"""Limits of consumers, each with its unit and its reason."""

from typing import Final

ATTEMPTS_MAX: Final = 1_000
"""Attempts of one record; more is a loop without an end."""
BACKOFF_SECONDS_MAX: Final = 86_400.0
"""A day: a record that waits longer belongs into a table, not into a retry topic."""
CONCURRENCY_MAX: Final = 1_000
"""Handlers at the same time; each sync handler has a thread."""
BATCH_RECORDS_MAX: Final = 10_000
"""Records of one call of a handler."""
BUFFERED_RECORDS_MIN: Final = 1_000
"""Records in memory before partitions are paused; at least two calls of every handler fit."""
BUFFERED_BYTES_MAX: Final = 16_777_216
"""Bytes of keys, values and headers in memory before partitions are paused."""
WINDOW_RECORDS_MAX: Final = 10_000
"""Offsets of one partition between the committed position and the newest received record. One slow
record holds the position; everything above it is repeated after a crash."""
ERROR_TYPE_CHARACTERS_MAX: Final = 200
ERROR_TEXT_CHARACTERS_MAX: Final = 2_000
"""Error texts in headers: a broker limits the size of a record, headers included."""
TIMEOUT_SECONDS_DEFAULT: Final = 60.0
"""Time for one call of a handler; below the 5 minutes of `max.poll.interval.ms`."""
TIMEOUT_SECONDS_MAX: Final = 86_400.0
REVOKE_SECONDS_MAX: Final = 10.0
"""Time for running handlers when their partitions move to another member; the others wait."""
STOP_SECONDS_MAX: Final = 30.0
"""Time for running handlers after SIGTERM; Kubernetes kills a process after 30 s by default."""
COMMIT_SECONDS: Final = 1.0
"""Time between two commits of positions."""
