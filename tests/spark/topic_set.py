"""One set of topics with everything that a reader must get right, the same on both brokers.

Guarantees: the content is generated from a seed, by librdkafka, and every partition's records are
sent by one thread in a fixed order, so that topic, partition, offset, key, value and headers are
the same on both brokers; timestamps too, except where the broker sets them. `TopicSet.close` ends
the one transaction that is left open on purpose.

The builder does NOT read anything back: the tests compare the topics' content.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.spark.compaction import fill_compacted
from tests.spark.topics import (
    SECONDS_MAX,
    Record,
    Writer,
    create_topic,
    delete_records_before,
    new_producer,
    send,
    wait_until_decided,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
NO_TIMESTAMP_MS = -1
"""What a record has that was given none."""
CALENDAR_FIRST_MS = -12_219_292_800_000
"""15 October 1582: the first day of the calendar of now. What is older, the connectors differ in; a
test of its own says how."""
OPEN_BOUNDS = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""For a topic that takes any time."""
LARGE_VALUE_BYTES = 3_000_000
"""More than one fetch of a partition asks for (1 MiB by default)."""


@dataclasses.dataclass(frozen=True)
class TopicSet:
    """The names, their records, and the producer of the open transaction."""

    prefix: str
    committed_counts: dict[str, int]
    """Records that `read_committed` shows, by topic; not of compacted ones."""
    all_counts: dict[str, int]
    """Records that `read_uncommitted` shows, by topic; not of compacted ones."""
    compacted: str
    open_producer: Producer

    @property
    def names(self) -> list[str]:
        """Every topic, sorted."""
        return sorted({*self.committed_counts, self.compacted})

    def close(self) -> None:
        """Abort the open transaction."""
        self.open_producer.abort_transaction(SECONDS_MAX)


def random_records(seed: int, count: int, partition: int = 0) -> list[Record]:
    """Records of many sizes with keys, headers on some, and timestamps that go up."""
    draw = random.Random(seed)
    return [
        Record(
            value=b"%d " % number + draw.randbytes(8) * draw.choice([0, 1, 20, 500]),
            key=b"key-%d" % draw.randrange(50),
            partition=partition,
            timestamp_ms=FIRST_TIMESTAMP_MS + number * 1_000 + draw.randrange(1_000),
            headers=(("seed", b"%d" % seed),) if number % 3 == 0 else (),
        )
        for number in range(count)
    ]


def _codecs(writer: Writer, topic: str) -> int:
    """A partition for each codec, in several batches each."""
    create_topic(writer.bootstrap, topic, partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        for part in range(4):
            records = random_records(partition * 10 + part, 100, partition)
            writer.produce(topic, records, codec=codec)
    return len(CODECS) * 400


def _mixed_codecs(writer: Writer, topic: str) -> int:
    """Batches of all codecs in one partition, single records among them."""
    create_topic(writer.bootstrap, topic)
    counts = [1, 70, 1, 300, 2, 25, 1, 1, 40, 1]
    for number, count in enumerate(counts):
        records = random_records(100 + number, count)
        writer.produce(topic, records, codec=CODECS[number % len(CODECS)])
    return sum(counts)


def _headers(writer: Writer, topic: str) -> int:
    """Null and empty values, keys that repeat, keys that are empty or not ASCII, none at all."""
    create_topic(writer.bootstrap, topic, partitions=2)
    kinds: Sequence[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("one", b"1"),),
        (("null", None),),
        (("empty", b""),),
        (("", b"empty key"),),
        (("twice", b"first"), ("twice", b"second"), ("twice", None)),
        (("ключ", "значение".encode()), ("鍵", b"\xff\xfe\x00")),
        tuple((f"h{number}", b"x" * number) for number in range(40)),
    ]
    records = [
        Record(b"%d" % number, b"k", number % 2, FIRST_TIMESTAMP_MS + number, headers)
        for number, headers in enumerate([*kinds, *kinds])
    ]
    writer.produce(topic, records, codec="lz4")
    return len(records)


def _nulls(writer: Writer, topic: str) -> int:
    """Null and empty keys and values, in every combination."""
    create_topic(writer.bootstrap, topic)
    choices: Sequence[bytes | None] = (None, b"", b"x", b"\x00\xff" * 100)
    records = [
        Record(value, key, 0, FIRST_TIMESTAMP_MS + number)
        for number, (key, value) in enumerate((k, v) for k in choices for v in choices)
    ]
    writer.produce(topic, records)
    writer.produce(topic, records, codec="snappy")
    return 2 * len(records)


def _timestamps(writer: Writer, topic: str) -> int:
    """The client's timestamps: out of order, none at all, before 1970 and 1900, far ahead."""
    create_topic(writer.bootstrap, topic, config=OPEN_BOUNDS)
    far = 253_402_300_799_999  # The last millisecond of the year 9999.
    stamps = [1, FIRST_TIMESTAMP_MS, 999, far, FIRST_TIMESTAMP_MS - 1, 1_000, 86_399_999]
    stamps += [NO_TIMESTAMP_MS, -2, -999, -1_000, -86_400_001]
    stamps += [
        -2_208_988_800_001,  # The last millisecond before the year 1900.
        CALENDAR_FIRST_MS,
    ]
    records = [Record(b"%d" % stamp, timestamp_ms=stamp) for stamp in stamps]
    for codec in CODECS:
        writer.produce(topic, records, codec=codec)
    return len(CODECS) * len(records)


def _append_time(writer: Writer, topic: str) -> int:
    """The broker's timestamps: one for each batch, whatever the records say."""
    create_topic(writer.bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    for number, codec in enumerate(CODECS):
        writer.produce(topic, random_records(200 + number, 30), codec=codec)
    return len(CODECS) * 30


def _one_of_three(writer: Writer, topic: str) -> int:
    """Two empty partitions beside one with records."""
    create_topic(writer.bootstrap, topic, partitions=3)
    writer.produce(topic, random_records(300, 50, partition=1))
    return 50


def _void(writer: Writer, topic: str) -> int:
    """No record at all."""
    create_topic(writer.bootstrap, topic, partitions=2)
    return 0


def _shortened(writer: Writer, topic: str) -> int:
    """The start was moved: into a batch, to the end, and not at all."""
    create_topic(writer.bootstrap, topic, partitions=3)
    for partition in range(3):
        writer.produce(topic, random_records(400 + partition, 200, partition), codec="zstd")
    delete_records_before(writer.bootstrap, topic, 0, 77)
    delete_records_before(writer.bootstrap, topic, 1, 200)
    return 123 + 200


def _large(writer: Writer, topic: str) -> int:
    """Records larger than what a fetch asks for, among small ones."""
    create_topic(writer.bootstrap, topic, config={"max.message.bytes": str(2 * LARGE_VALUE_BYTES)})
    large = Record(random.Random(500).randbytes(LARGE_VALUE_BYTES), b"large", 0, FIRST_TIMESTAMP_MS)
    producer = new_producer(writer.bootstrap, {"message.max.bytes": str(2 * LARGE_VALUE_BYTES)})
    small = random_records(501, 20)
    send(producer, topic, [*small, large, *small, large])
    return 42


PLAIN: dict[str, Callable[[Writer, str], int]] = {
    "append-time": _append_time,
    "codecs": _codecs,
    "headers": _headers,
    "large": _large,
    "mixed-codecs": _mixed_codecs,
    "nulls": _nulls,
    "one-of-three": _one_of_three,
    "shortened": _shortened,
    "timestamps": _timestamps,
    "void": _void,
}
"""Topics without transactions: they hold the same for every reader."""


def transactional(bootstrap: str, name: str, **settings: str) -> Producer:
    """A producer that has its transactional id."""
    producer = new_producer(bootstrap, {"transactional.id": name, **settings})
    producer.init_transactions(SECONDS_MAX)
    return producer


def _transactions(writer: Writer, topic: str) -> tuple[int, int]:
    """Committed and aborted, two producers at once, plain records between; aborts at the end."""
    create_topic(writer.bootstrap, topic, partitions=3)
    first = transactional(writer.bootstrap, f"{topic}-first", **{"compression.type": "zstd"})
    second = transactional(writer.bootstrap, f"{topic}-second")
    committed = total = 0
    for turn in range(8):
        first.begin_transaction()
        second.begin_transaction()
        for part in range(3):
            send(first, topic, random_records(600 + turn, 7, partition=part % 2))
            send(second, topic, random_records(700 + turn, 5, partition=part % 2))
        writer.produce(topic, random_records(800 + turn, 3, partition=turn % 2))
        committed += 3
        total += 3 + 21 + 15
        if turn % 3 == 2:
            first.abort_transaction(SECONDS_MAX)
        else:
            first.commit_transaction(SECONDS_MAX)
            committed += 21
        if turn % 2 == 0:
            second.commit_transaction(SECONDS_MAX)
            committed += 15
        else:
            second.abort_transaction(SECONDS_MAX)
        wait_until_decided(writer.bootstrap, topic, 3)
    # Nothing but an aborted transaction: a reader of committed records must get to the end.
    first.begin_transaction()
    send(first, topic, random_records(900, 40, partition=2))
    first.abort_transaction(SECONDS_MAX)
    wait_until_decided(writer.bootstrap, topic, 3)
    return committed, total + 40


def _undecided(writer: Writer, topic: str) -> tuple[int, int, Producer]:
    """Records behind a transaction that is still open."""
    create_topic(writer.bootstrap, topic, partitions=2)
    writer.produce(topic, random_records(1_000, 20))
    producer = transactional(
        writer.bootstrap, f"{topic}-open", **{"transaction.timeout.ms": "900000"}
    )
    producer.begin_transaction()
    send(producer, topic, random_records(1_001, 10))
    writer.produce(topic, random_records(1_002, 15))
    writer.produce(topic, random_records(1_003, 5, partition=1))
    return 25, 50, producer


@contextmanager
def topic_set(bootstrap: str, prefix: str) -> Iterator[TopicSet]:
    """Make every topic of the set, with names that begin with `prefix`."""
    writer = Writer(bootstrap)
    counts = {f"{prefix}-{kind}": fill(writer, f"{prefix}-{kind}") for kind, fill in PLAIN.items()}
    committed, total = _transactions(writer, f"{prefix}-transactions")
    before_open, with_open, open_producer = _undecided(writer, f"{prefix}-undecided")
    compacted = f"{prefix}-compacted"
    fill_compacted(bootstrap, compacted)
    made = TopicSet(
        prefix=prefix,
        committed_counts={
            **counts,
            f"{prefix}-transactions": committed,
            f"{prefix}-undecided": before_open,
        },
        all_counts={
            **counts,
            f"{prefix}-transactions": total,
            f"{prefix}-undecided": with_open,
        },
        compacted=compacted,
        open_producer=open_producer,
    )
    try:
        yield made
    finally:
        made.close()
