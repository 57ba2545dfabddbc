"""Feeds a topic while pipelines are killed, and judges their tables.

`Feeder` produces until it is stopped, whatever happens to the broker: transactions, a third of
which are aborted, and records outside of any. `Ledger` reads the topic by librdkafka with
read_committed: the tables must hold the same records, up to the offsets of their note, each offset
once, with the same values. It uses nothing of the code under test but its names.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.spark.tables.pipeline_world import World, with_places
from tests.spark.topics import new_producer

PARTITIONS = 3
RECORDS_PER_SECOND = 100
"""Of each of both producers."""
TRANSACTION_RECORDS = 20
COLUMNS_MAX = 5
READ_SECONDS_MAX = 60.0

Place = tuple[int, int]
"""Partition and offset."""
Row = tuple[object, ...]


class Feeder:
    """Two producers in two threads."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._numbers = count()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._feed, args=(step, random.Random(f"{seed} {name}")))
            for name, step in (("plain", self._plain), ("transactions", self._transactions))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged or given up."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _feed(self, work: Callable[[random.Random], None], dice: random.Random) -> None:
        while not self._ended.is_set():
            try:
                work(dice)
            except KafkaException:
                time.sleep(0.2)  # the broker is down, or the producer must be recreated

    def _plain(self, dice: random.Random) -> None:
        producer = new_producer(self._bootstrap)
        while not self._ended.wait(5 / RECORDS_PER_SECOND):
            for _ in range(5):
                self._produce(producer, dice)
            producer.poll(0)
        producer.flush(30)

    def _transactions(self, dice: random.Random) -> None:
        producer = new_producer(
            self._bootstrap, {"transactional.id": "feeder", "transaction.timeout.ms": "30000"}
        )
        producer.init_transactions(30)
        while not self._ended.wait(TRANSACTION_RECORDS / RECORDS_PER_SECOND):
            producer.begin_transaction()
            for _ in range(TRANSACTION_RECORDS):
                self._produce(producer, dice)
            if dice.random() < 1 / 3:
                producer.flush(30)  # they are in the log before they are taken back
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def _produce(self, producer: Producer, dice: random.Random) -> None:
        producer.produce(
            self._topic, value_of(next(self._numbers), dice), partition=dice.randrange(PARTITIONS)
        )


def value_of(number: int, dice: random.Random) -> bytes:
    """A record's value: two in a hundred are no JSON, five have a negative amount."""
    chance = dice.random()
    if chance < 0.02:
        return b"not json %d" % number
    amount = -number / 4 if chance < 0.07 else number / 4
    more = {f"more{column}": f"m{number}" for column in range(COLUMNS_MAX)}
    return json.dumps({"id": number, "amount": amount, "name": f"n{number}", **more}).encode()


@dataclass(frozen=True)
class Finding:
    """The findings of a check of the tables."""

    records: int
    rejects: int
    missing: int
    doubled: int
    """Or there, and not in the topic."""
    different: int
    """Values that are not those of the topic, and good records among the rejects."""

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.doubled or self.different)

    def __str__(self) -> str:
        return (
            f"{self.records} records, {self.rejects} of them rejects, {self.missing} missing, "
            f"{self.doubled} doubled, {self.different} different"
        )


class Ledger:
    """The committed records of the topic, read once each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "log_level": "0",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._reached = dict.fromkeys(range(PARTITIONS), 0)
        self._values: dict[Place, bytes] = {}

    def close(self) -> None:
        self._consumer.close()

    def compare(self, world: World, ends: Mapping[int, int]) -> Finding:
        """What the tables hold before these offsets, and what they should."""
        self._read_to(ends)
        expected = {
            place: value for place, value in self._values.items() if place[1] < ends[place[0]]
        }
        rows, rejects = read_calmly(world.rows), read_calmly(world.rejects)
        rows = with_places(rows)
        held = _before(ends, rows, ("partition", "offset"), ("id", "amount"))
        bad = _before(ends, rejects, ("partition", "offset"), ("value",))
        found = Counter(place for place, _ in (*held, *bad))
        wanted = Counter(dict.fromkeys(expected, 1))
        different = [place for place, row in held if not _is_row(expected.get(place), row)]
        different += [place for place, row in bad if not _is_reject(expected.get(place), row)]
        return Finding(
            len(expected),
            len(bad),
            (wanted - found).total(),
            (found - wanted).total(),
            len(different),
        )

    def _read_to(self, ends: Mapping[int, int]) -> None:
        deadline = time.monotonic() + READ_SECONDS_MAX
        while any(self._reached[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"the topic ends at {self._reached}, not {ends}"
            for message in self._consumer.consume(500, 0.2):
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        assert partition is not None
                        assert offset is not None
                        self._reached[partition] = max(self._reached[partition], offset)
                    continue
                assert partition is not None
                assert offset is not None
                self._reached[partition] = offset + 1
                self._values[partition, offset] = message.value() or b""


def read_calmly(read: Callable[[], pa.Table]) -> pa.Table:
    """Read a table whose old files may be removed meanwhile."""
    for _ in range(5):
        try:
            return read()
        except OSError:
            time.sleep(0.2)
    return read()


def _before(
    ends: Mapping[int, int], table: pa.Table, place: tuple[str, str], names: tuple[str, ...]
) -> list[tuple[Place, Row]]:
    """Where each row came from, and what it has in these columns; up to these offsets."""
    places = zip(*(table[name].to_pylist() for name in place), strict=True)
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return [(at, row) for at, row in zip(places, rows, strict=True) if at[1] < ends[at[0]]]


def _is_row(value: bytes | None, row: Row) -> bool:
    if value is None or value.startswith(b"not"):
        return False
    document = json.loads(value)
    return (document["id"], document["amount"]) == row


def _is_reject(value: bytes | None, row: Row) -> bool:
    if value is None or (value,) != row:
        return False
    return value.startswith(b"not") or json.loads(value)["amount"] < 0
