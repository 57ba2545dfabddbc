"""`Workload`: the parameters of a measurement, checked before anything starts (pure).

All problems are reported together, each with its remedy, as one `ConfigError`. A workload has no
broker address, so the same workload can be run against two brokers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core.errors import ConfigError
from penstock.core.quantities import number_text
from penstock.records.compression import CODEC_NAMES

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
END_TO_END: Final = "end-to-end"
GROUPS: Final = "groups"
LOOKUP: Final = "lookup"
KINDS: Final = (PRODUCE, CONSUME, END_TO_END, GROUPS, LOOKUP)

NO_KEYS: Final = "none"
UNIFORM: Final = "uniform"
ZIPF: Final = "zipf"
KEY_DISTRIBUTIONS: Final = (NO_KEYS, UNIFORM, ZIPF)

ACKS: Final[Mapping[str, int]] = {"all": -1, "1": 1, "0": 0}

CLIENTS_MAX: Final = 256
"""Client processes. With more processes than cores the scheduler is measured."""
MEMBERS_MAX: Final = 2_000
PARTITIONS_MAX: Final = 10_000
KEYS_MAX: Final = 100_000
DURATION_SECONDS_MIN: Final = 0.5
"""In a shorter run, one pause of the machine is a large part of the result."""
DURATION_SECONDS_MAX: Final = 86_400.0
BATCH_BYTES_MAX: Final = 1_000_000
"""By default a broker accepts 1,048,588 bytes with headers (message.max.bytes)."""
STAMP_BYTES: Final = 16
"""Bytes of the stamp in a record for end-to-end latency: its run and its due time."""
IN_FLIGHT_MAX: Final = 5
"""Kafka's bound for a producer whose batches are numbered."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One measurement; sizes refer to a record's value."""

    kind: str = PRODUCE
    size_bytes: int = 1_000
    batch_records: int = 100
    clients: int = 1
    partitions: int = 1
    duration_seconds: float = 10.0
    count: int | None = None
    """Records (commits, for groups) to measure, instead of a duration."""
    warmup_seconds: float = 2.0
    acks: int = -1
    compression: str = "none"
    keys: str = NO_KEYS
    key_count: int = 10_000
    rate: float | None = None
    """Records (commits) per second of all clients together; None: as fast as possible."""
    in_flight: int = IN_FLIGHT_MAX
    members: int = 8
    topic: str | None = None
    """An existing topic; None creates a topic and deletes it at the end."""
    replication_factor: int = -1
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    seed: int = 1

    def __post_init__(self) -> None:
        problems = [*_problems(self)]
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def is_numbered(self) -> bool:
        """Whether batches have a producer's sequence numbers, as Kafka's clients with acks=all."""
        return self.acks == -1

    @property
    def requests_in_flight(self) -> int:
        """Return the limit of requests in flight on a connection.

        Without a rate the end-to-end latency is measured with one request at a time. Otherwise the
        wait behind other requests would be measured.
        """
        if self.kind == END_TO_END and self.rate is None:
            return 1
        return self.in_flight

    @property
    def codec(self) -> int:
        """Return the number of the codec."""
        return CODEC_NAMES.index(self.compression)

    def document(self) -> dict[str, object]:
        """Return the measured workload, for JSON and for reports."""
        return {
            "kind": self.kind,
            "size_bytes": self.size_bytes,
            "batch_records": self.batch_records,
            "clients": self.clients,
            "partitions": self.partitions,
            "duration_seconds": None if self.count is not None else self.duration_seconds,
            "count": self.count,
            "warmup_seconds": self.warmup_seconds,
            "acks": "all" if self.acks == -1 else str(self.acks),
            "compression": self.compression,
            "keys": self.keys,
            "key_count": None if self.keys == NO_KEYS else self.key_count,
            "rate": self.rate,
            "in_flight": self.requests_in_flight,
            "members": self.members if self.kind == GROUPS else None,
            "topic": self.topic,
            "topic_settings": dict(self.topic_settings),
        }


def _problems(wanted: Workload) -> Iterator[str]:
    yield from _wrong_words(wanted)
    yield from _outside(wanted)
    if wanted.count is None and wanted.duration_seconds < DURATION_SECONDS_MIN:
        yield (
            f"a duration of {wanted.duration_seconds:g} s is too short to mean anything: one pause "
            f"of the machine would be the result. Take {DURATION_SECONDS_MIN:g} s or more; ten is "
            "a good start."
        )
    if wanted.batch_records * wanted.size_bytes > BATCH_BYTES_MAX:
        yield (
            f"a batch of {wanted.batch_records} records of {wanted.size_bytes} bytes is above "
            f"{BATCH_BYTES_MAX:,} bytes, which brokers refuse by default. Make batches of at most "
            f"{max(1, BATCH_BYTES_MAX // max(1, wanted.size_bytes))} records, or records smaller."
        )
    if wanted.kind == END_TO_END and wanted.size_bytes < STAMP_BYTES:
        yield (
            f"a record of {wanted.size_bytes} bytes cannot carry the time it was sent at. "
            f"Take {STAMP_BYTES} bytes or more."
        )
    if wanted.kind == END_TO_END and wanted.acks == 0:
        yield (
            "with acks=0 records may be lost without an error, so the end of the run is unknown. "
            "Take acks 1 or all."
        )
    if wanted.kind == CONSUME and wanted.rate is not None:
        yield "reading has no rate: it is as fast as possible. Leave the rate out."


def _wrong_words(wanted: Workload) -> Iterator[str]:
    for what, value, known in (
        ("kind", wanted.kind, KINDS),
        ("compression", wanted.compression, CODEC_NAMES),
        ("keys", wanted.keys, KEY_DISTRIBUTIONS),
        ("acks", wanted.acks, tuple(ACKS.values())),
    ):
        if value not in known:
            yield f"{what} {value!r} is not known. Take one of {', '.join(map(str, known))}."


def _outside(wanted: Workload) -> Iterator[str]:
    for what, value, low, high in (
        ("size", wanted.size_bytes, 1, BATCH_BYTES_MAX),
        ("batch", wanted.batch_records, 1, BATCH_BYTES_MAX),
        ("clients", wanted.clients, 1, CLIENTS_MAX),
        ("partitions", wanted.partitions, 1, PARTITIONS_MAX),
        ("duration", wanted.duration_seconds, 0, DURATION_SECONDS_MAX),
        ("warm-up", wanted.warmup_seconds, 0, DURATION_SECONDS_MAX),
        ("key count", wanted.key_count, 1, KEYS_MAX),
        ("in flight", wanted.in_flight, 1, IN_FLIGHT_MAX),
        ("members", wanted.members, 1, MEMBERS_MAX),
        ("count", 1 if wanted.count is None else wanted.count, 1, 10**12),
        ("rate", 1.0 if wanted.rate is None else wanted.rate, 0.001, 10**9),
        ("timeout", wanted.timeout_seconds, 0.1, 3_600),
    ):
        if not low <= value <= high:
            yield (
                f"{what} {number_text(value)} is outside of what is possible: "
                f"{number_text(low)} to {number_text(high)}."
            )
