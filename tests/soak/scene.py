"""The numbers of a soak: limits low enough to be reached, topics, rates. Data only."""

from typing import Final

MEBIBYTE: Final = 1 << 20

CONNECTIONS_MAX: Final = 120
CONNECTIONS_PER_ADDRESS_MAX: Final = 50
REQUEST_BYTES_IN_FLIGHT_MAX: Final = 16 * MEBIBYTE
SLOW_READER_SECONDS: Final = 4
REQUEST_SECONDS: Final = 4
IDLE_SECONDS: Final = 7_200
"""Longer than a soak: real clients have idle connections, and nobody would see those end."""
DISK_BYTES: Final = 1024 * MEBIBYTE
RELOAD_SECONDS: Final = 60.0

LEDGER: Final = "ledger"
LEDGER_PARTITIONS: Final = 4
"""As `tests.crash.clients` reads it back."""
MOVES: Final = "moves"
LARGE: Final = "large"
BULK: Final = "bulk"
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    LEDGER: (LEDGER_PARTITIONS, {"retention.ms": "-1", "segment.bytes": str(8 * MEBIBYTE)}),
    MOVES: (2, {"retention.ms": "-1"}),
    LARGE: (1, {"retention.ms": "-1"}),
    BULK: (1, {"retention.bytes": str(8 * MEBIBYTE), "segment.bytes": str(4 * MEBIBYTE)}),
}
"""Partitions and settings of each topic."""
LARGE_RECORDS: Final = 14
LARGE_RECORD_BYTES: Final = 1_000_000
"""14 MB: more than the kernel and the broker's socket buffer take together."""


def settings_text(version: int) -> str:
    """The settings file; versions differ in something that no client notices."""
    return f"""
[node]
log_level = "{("info", "warning")[version % 2]}"

[listener]
connections_max = {CONNECTIONS_MAX}
connections_per_address_max = {CONNECTIONS_PER_ADDRESS_MAX}
request_bytes_in_flight_max = {REQUEST_BYTES_IN_FLIGHT_MAX}
slow_reader_seconds_max = {SLOW_READER_SECONDS}.0
frame_completion_seconds_max = {REQUEST_SECONDS}.0
connection_idle_seconds_max = {IDLE_SECONDS + version}.0

[groups]
offsets_partitions = 5
initial_rebalance_delay_ms = 0

[transactions]
state_partitions = 5
"""
