"""`Ledger`: acknowledged and consumed records; and the violations of a log that was read back.

The rules, for each partition of a log that was read from its beginning to its end:

- every acknowledged record is there, at the offset that was acknowledged;
- every record that a consumer was ever shown is there, at the offset it was shown at;
- no record is there twice: producers are idempotent;
- the records of one producer are in the order in which it sent them;
- every record was sent to this partition by a producer, byte for byte;
- offsets have no gaps: these topics know neither compaction nor transactions.

A record whose fate the client does not know (not acknowledged yet, or given up) may be there once
or not at all. The ledger is filled by several threads; it knows nothing of brokers and clients.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PADDING_BYTES_MAX = 300
"""Values are of many sizes, so that batches and rolls fall differently each time."""
LARGE_BYTES = 20_000
LARGE_EVERY = 64
VIOLATIONS_SHOWN_MAX = 10

PartitionContent = Sequence[tuple[int, bytes]]
"""Offsets and values of one partition, in the order they were read."""


class Sent(NamedTuple):
    """One record: its producer, a number that this producer counts up, and where it was sent."""

    producer: str
    number: int
    partition: int

    def value(self) -> bytes:
        """The bytes that are sent: unique, and the record is known again from them."""
        size = (self.number * 7_919) % PADDING_BYTES_MAX
        if self.number % LARGE_EVERY == LARGE_EVERY - 1:
            size += LARGE_BYTES
        return f"{self.producer}:{self.number}:{self.partition}:".encode() + bytes(size)


class Placed(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


def sent_of(value: bytes) -> Sent | None:
    """The record that has this value, or None when nobody can have sent it."""
    name, number, partition, *_ = (*value.split(b":", 3), b"", b"", b"")
    if not (name.isascii() and number.isdigit() and partition.isdigit()):
        return None
    sent = Sent(name.decode(), int(number), int(partition))
    return sent if sent.value() == value else None


@dataclass(frozen=True)
class Expected:
    """The required content of a log that is read from now on."""

    acknowledged: Mapping[Sent, Placed]
    seen: Mapping[Placed, Sent]


class Ledger:
    """The memory of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[Sent, Placed] = {}
        self._acknowledged_by: Counter[str] = Counter()
        self._seen: dict[Placed, Sent] = {}
        self._broken: list[str] = []
        self.given_up: list[str] = []
        """Records that a client gave up on, and why."""

    def acknowledged(self, sent: Sent, offset: int) -> None:
        """A client was told where its record is."""
        with self._lock:
            self._acknowledged[sent] = Placed(sent.partition, offset)
            self._acknowledged_by[sent.producer] += 1

    def gave_up(self, sent: Sent, reason: str) -> None:
        """A client gave a record up; it may be in the log or not."""
        with self._lock:
            self.given_up.append(f"{sent}: {reason}")

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        """A consumer was shown a record."""
        sent, place = sent_of(value), Placed(partition, offset)
        with self._lock:
            if sent is None:
                self._broken.append(f"garbage: a consumer was shown {value[:24]!r} at {place}")
            elif self._seen.setdefault(place, sent) != sent:
                self._broken.append(f"changed: {place} was {self._seen[place]}, then {sent}")

    def acknowledged_count(self, producer: str) -> int:
        """How many records of this producer are acknowledged."""
        return self._acknowledged_by[producer]

    @property
    def totals(self) -> str:
        """How much happened, for a report."""
        with self._lock:
            return (
                f"{len(self._acknowledged)} records acknowledged, {len(self._seen)} seen, "
                f"{len(self.given_up)} given up"
            )

    def expected(self) -> Expected:
        """What a log must hold that is read from now on."""
        with self._lock:
            return Expected(dict(self._acknowledged), dict(self._seen))

    def violations(self, expected: Expected, log: Mapping[int, PartitionContent]) -> list[str]:
        """What the log breaks; empty when every promise is kept."""
        with self._lock:
            found = list(self._broken)
        places: dict[Sent, Placed] = {}
        for partition, content in log.items():
            found += _check_partition(partition, content, places)
        found += _missing("lost", expected.acknowledged.items(), places)
        found += _missing("vanished", ((sent, at) for at, sent in expected.seen.items()), places)
        return found


def _check_partition(
    partition: int, content: PartitionContent, places: dict[Sent, Placed]
) -> Iterator[str]:
    last_number: dict[str, int] = {}
    for position, (offset, value) in enumerate(content):
        place = Placed(partition, offset)
        if offset != content[0][0] + position:
            yield f"gap: {place} is record {position} of its partition"
        sent = sent_of(value)
        if sent is None or sent.partition != partition:
            yield f"garbage: {place} holds what was never sent here: {value[:24]!r}"
            continue
        if sent in places:
            yield f"duplicate: {sent} is at {places[sent]} and at {place}"
        elif last_number.get(sent.producer, -1) > sent.number:
            yield f"order: {sent} at {place} comes after {last_number[sent.producer]}"
        places.setdefault(sent, place)
        last_number[sent.producer] = sent.number


def _missing(
    word: str, owed: Iterable[tuple[Sent, Placed]], places: Mapping[Sent, Placed]
) -> Iterator[str]:
    """Records that are not where they must be."""
    for sent, place in owed:
        if places.get(sent) != place:
            yield f"{word}: {sent} was at {place}, now {places.get(sent)}"


def summary(violations: Sequence[str]) -> str:
    """A few violations, and how many there are of each kind."""
    kinds = Counter(text.partition(":")[0] for text in violations)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return "\n".join([counts, *violations[:VIOLATIONS_SHOWN_MAX]])
