"""The scenarios of every client with every broker: the calls, and the required answers.

Each scenario is a function over a `Stage`: one driver, one topic name of its own. It asserts the
promises of Kafka's protocol; the whole transcript is compared between the brokers afterwards, so
that an answer without an assertion must still be the same.

Timestamps lie in the hour before the run, the same ones for both brokers: older ones would fall to
retention while the test runs.
"""

import dataclasses
import datetime
import functools
import random
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.interop.client_drivers import DriverError, DriverProcess
from tests.interop.driver_protocol import NO_OFFSET, UNSUPPORTED, Fetch, Produce, Record

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_BYTES_DEFAULT_MAX = 1_048_588
"""`max.message.bytes` of a topic that does not set it: a mebibyte and twelve bytes."""

BATCH_HEADER_BYTES = 61
RECORD_AROUND_VALUE_BYTES = 11
"""One record without key and headers: length 3, attributes 1, deltas 2, key length 1, value
length 3, header count 1."""

BASE_MS = int((datetime.datetime.now(datetime.UTC).timestamp() - 3600) * 1000)
SPAN_MS = 600_000
"""All explicit timestamps are from `BASE_MS` up to this much later."""

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Traits:
    """Behaviour of the client and not of the broker; everything else must be alike."""

    sends_null_header: bool = True
    sends_neither_key_nor_value: bool = True
    tells_topic_id: bool = True
    asks_max_timestamp: bool = True
    turns_no_offset_into_latest: bool = False
    out_of_range_code: int | None = 1


TRAITS = {
    "confluent-kafka": Traits(out_of_range_code=-140),
    "kafka-python": Traits(sends_null_header=False, sends_neither_key_nor_value=False),
    "aiokafka": Traits(
        sends_neither_key_nor_value=False, tells_topic_id=False, asks_max_timestamp=False
    ),
    "kafkajs": Traits(
        sends_null_header=False,
        tells_topic_id=False,
        asks_max_timestamp=False,
        turns_no_offset_into_latest=True,
    ),
    "franz-go": Traits(turns_no_offset_into_latest=True),
    # Its consumer raises a class of its own, without a number.
    "java": Traits(out_of_range_code=None),
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """The input of a scenario."""

    driver: DriverProcess
    bootstrap: str
    topic: str

    @property
    def traits(self) -> Traits:
        return TRAITS[self.driver.client]

    def create(self, topic: str | None = None, **configs: str) -> None:
        """Create the topic and wait until the broker knows it and leads its partitions."""
        name = topic or self.topic
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.driver.create_topic(name, PARTITIONS, dotted)
        self.eventually(lambda: self.driver.describe_topic(name))
        for partition in range(PARTITIONS):
            leads = functools.partial(self.driver.list_offset, name, partition, "latest")
            self.eventually(leads)

    def fails(self, call: Callable[[], object], code: int | None) -> None:
        """The call must be refused with this number of Kafka's."""
        with pytest.raises(DriverError) as caught:
            call()
        assert caught.value.error.code == code

    def eventually(self, call: Callable[[], Result]) -> Result:
        """Kafka applies a metadata change a moment after it answers; only the last try is kept."""
        before = len(self.driver.transcript)
        deadline = time.monotonic() + 10
        while True:
            try:
                return call()
            except (AssertionError, DriverError):
                if time.monotonic() > deadline:
                    raise
                del self.driver.transcript[before:]
                time.sleep(0.02)

    def read(
        self, partition: int, count: int, at: str = "earliest", number: int = 0
    ) -> list[Record]:
        return self.driver.fetch(Fetch(self.topic, partition, at, count, number))


def expected(records: list[Record], first_offset: int = 0) -> list[Record]:
    """How records of one partition are read back: as they were sent, with offsets in order."""
    return [
        dataclasses.replace(record, offset=first_offset + index, timestamp_type="create")
        for index, record in enumerate(records)
    ]


def some_records(count: int, *, seed: int, partitions: int = PARTITIONS) -> list[Record]:
    """Records with keys, headers and timestamps; some bytes repeat and some do not."""
    dice = random.Random(seed)
    return [
        Record(
            partition=index % partitions,
            key=None if index % 7 == 6 else f"key-{index}".encode(),
            value=dice.randbytes(40) + b"abcdefgh" * dice.randrange(1, 30),
            headers=(("trace", dice.randbytes(8)), ("trace", b"second"), ("naïve", b""))[
                : index % 4
            ],
            timestamp_ms=BASE_MS + index * 100,
        )
        for index in range(count)
    ]


def cluster(stage: Stage) -> None:
    """The one broker is where it was found, and it is the controller."""
    found = stage.driver.describe_cluster()
    (node,) = found["nodes"]
    assert f"{node['host']}:{node['port']}" == stage.bootstrap
    assert found["controller"] == node["id"]
    assert found["cluster_id"]


def topic_lifecycle(stage: Stage) -> None:
    """Create, describe, list, read settings, delete, create again."""
    driver = stage.driver
    configs = {"retention.ms": "7200000", "segment.bytes": "2097152"}
    driver.create_topic(stage.topic, PARTITIONS, configs)
    found = stage.eventually(lambda: driver.describe_topic(stage.topic))
    (node,) = driver.describe_cluster()["nodes"]
    assert found["name"] == stage.topic
    assert bool(found["topic_id"]) == stage.traits.tells_topic_id
    alone = [node["id"]]
    assert sorted(found["partitions"], key=lambda p: p["id"]) == [
        {"id": index, "leader": node["id"], "replicas": alone, "isr": alone}
        for index in range(PARTITIONS)
    ]
    stage.fails(lambda: driver.create_topic(stage.topic, PARTITIONS), 36)
    assert stage.topic in driver.list_topics()
    names = [*configs, "cleanup.policy", "max.message.bytes", "message.timestamp.type"]
    assert driver.topic_configs(stage.topic, names) == {
        **configs,
        "cleanup.policy": "delete",
        "max.message.bytes": str(BATCH_BYTES_DEFAULT_MAX),
        "message.timestamp.type": "CreateTime",
    }
    driver.produce(Produce(stage.topic, (Record(0, b"of the first life", timestamp_ms=BASE_MS),)))
    driver.delete_topic(stage.topic)
    _deleted_and_created_again(stage, found["topic_id"])


def _deleted_and_created_again(stage: Stage, first_id: str | None) -> None:
    driver = stage.driver

    def is_gone() -> None:
        assert stage.topic not in driver.list_topics()

    stage.eventually(is_gone)
    stage.fails(lambda: driver.describe_topic(stage.topic), 3)
    stage.fails(lambda: driver.delete_topic(stage.topic), 3)
    stage.create()
    again = driver.describe_topic(stage.topic)
    assert first_id is None or again["topic_id"] != first_id
    assert driver.list_offset(stage.topic, 0, "latest") == 0


def topic_errors(stage: Stage) -> None:
    """What cannot be created is refused with Kafka's numbers."""
    driver = stage.driver
    stage.fails(lambda: driver.create_topic("no spaces here", 1), 17)
    stage.fails(lambda: driver.create_topic("x" * 250, 1), 17)
    stage.fails(lambda: driver.create_topic(stage.topic, 0), 37)
    stage.fails(lambda: driver.create_topic(stage.topic, 1, {"no.such.setting": "1"}), 40)
    stage.fails(lambda: driver.create_topic(stage.topic, 1, {"retention.ms": "soon"}), 40)
    stage.fails(lambda: driver.create_topic(stage.topic, 1, {"cleanup.policy": "burn"}), 40)
    stage.fails(lambda: driver.describe_topic(stage.topic), 3)
    assert stage.topic not in driver.list_topics()


def round_trip(codec: str) -> Callable[[Stage], None]:
    """Keys, headers and timestamps over three partitions with idempotence on, in one codec."""

    def scenario(stage: Stage) -> None:
        stage.create()
        records = some_records(150, seed=CODECS.index(codec))
        places = stage.driver.produce(Produce(stage.topic, tuple(records), codec=codec))
        assert places == [(record.partition, index // 3) for index, record in enumerate(records)]
        for partition in range(PARTITIONS):
            mine = [record for record in records if record.partition == partition]
            assert stage.read(partition, len(mine)) == expected(mine)

    scenario.__name__ = f"round_trip_{codec}"
    return scenario


def mixed_codecs(stage: Stage) -> None:
    """Batches of every codec lie in one partition, and are read from the middle of each."""
    stage.create()
    records = some_records(20 * len(CODECS), seed=50, partitions=1)
    for index, codec in enumerate(CODECS):
        part = tuple(records[index * 20 : index * 20 + 20])
        places = stage.driver.produce(Produce(stage.topic, part, codec=codec))
        assert places[0] == (0, index * 20)
    assert stage.read(0, len(records)) == expected(records)
    for index in range(len(CODECS)):
        middle = index * 20 + 9
        assert stage.read(0, 11, "offset", middle) == expected(
            records[middle : middle + 11], middle
        )


def acks(stage: Stage) -> None:
    """Without idempotence: no answer, the leader's answer, and everybody's."""
    stage.create()
    records = some_records(12, seed=60, partitions=1)
    end = 0
    for level in ("0", "1", "all"):
        part = tuple(records[end : end + 4])
        places = stage.driver.produce(
            Produce(stage.topic, part, acks=level, idempotence=False, codec="gzip")
        )
        if level != "0":
            assert places == [(0, end + index) for index in range(4)]
        end += 4
        # With acks=0 a client continues before the broker has the records.
        assert stage.read(0, end) == expected(records[:end])


def sizes(stage: Stage) -> None:
    """Records of one byte to one mebibyte that no codec can make smaller."""
    stage.create(max_message_bytes=str(2 << 20))
    dice = random.Random(70)
    lengths = [1, 2, 63, 64, 8191, 8192, 65_536, 300_000, 1 << 20]
    records = [
        Record(1, dice.randbytes(length), timestamp_ms=BASE_MS + index)
        for index, length in enumerate(lengths)
    ]
    for codec in ("none", "zstd"):
        stage.driver.produce(Produce(stage.topic, tuple(records), codec=codec))
    assert stage.read(1, len(records)) == expected(records)
    assert stage.read(1, 1, "offset", 2 * len(records) - 1) == expected(
        records[-1:], 2 * len(records) - 1
    )


def size_limit(stage: Stage) -> None:
    """The largest batch that a topic takes by default is taken; one byte more is not."""
    stage.create()
    fits = BATCH_BYTES_DEFAULT_MAX - BATCH_HEADER_BYTES - RECORD_AROUND_VALUE_BYTES
    largest = Record(0, random.Random(80).randbytes(fits), timestamp_ms=BASE_MS)
    assert stage.driver.produce(Produce(stage.topic, (largest,))) == [(0, 0)]
    for idempotence in (True, False):
        larger = dataclasses.replace(largest, value=b"x" * (fits + 1))
        call = Produce(stage.topic, (larger,), idempotence=idempotence)
        stage.fails(functools.partial(stage.driver.produce, call), 10)
    assert stage.driver.list_offset(stage.topic, 0, "latest") == 1
    assert stage.read(0, 1) == expected([largest])


def positions(stage: Stage) -> None:
    """Read from the start, the middle, a timestamp and the end; ask for the same offsets."""
    stage.create()
    driver = stage.driver
    records = some_records(60, seed=90, partitions=1)
    driver.produce(Produce(stage.topic, tuple(records[:40]), codec="lz4"))
    driver.produce(Produce(stage.topic, tuple(records[40:])))
    assert stage.read(0, 3) == expected(records[:3])
    assert stage.read(0, 5, "offset", 23) == expected(records[23:28], 23)
    assert stage.read(0, 5, "timestamp", BASE_MS + 4500) == expected(records[45:50], 45)
    assert stage.read(0, 5, "timestamp", BASE_MS + 3101) == expected(records[32:37], 32)
    last = Record(0, b"sent while the fetch waits", timestamp_ms=BASE_MS + 6000)
    then = Produce(stage.topic, (last,))
    waited = driver.fetch(Fetch(stage.topic, 0, "latest", 1, then_produce=then))
    assert waited == expected([last], 60)
    out = Fetch(stage.topic, 0, "offset", 1, 1000, timeout_ms=10_000)
    stage.fails(lambda: driver.fetch(out), stage.traits.out_of_range_code)
    assert driver.list_offset(stage.topic, 0, "earliest") == 0
    assert driver.list_offset(stage.topic, 0, "latest") == 61
    assert driver.list_offset(stage.topic, 0, "timestamp", 0) == 0
    assert driver.list_offset(stage.topic, 0, "timestamp", BASE_MS + 2399) == 24
    assert driver.list_offset(stage.topic, 0, "timestamp", BASE_MS + SPAN_MS) == (
        61 if stage.traits.turns_no_offset_into_latest else NO_OFFSET
    )
    _max_timestamp(stage, 0, 60)


def _max_timestamp(stage: Stage, partition: int, offset: int) -> None:
    def ask() -> int:
        return stage.driver.list_offset(stage.topic, partition, "max_timestamp")

    if stage.traits.asks_max_timestamp:
        assert ask() == offset
        return
    with pytest.raises(DriverError) as caught:
        ask()
    assert caught.value.error.kind == UNSUPPORTED


def timestamps_out_of_order(stage: Stage) -> None:
    """A record is found by time even when a later one is older; the largest is not the last."""
    stage.create()
    times = [5000, 1000, 9000, 2000]
    records = [Record(2, f"at {delta}".encode(), timestamp_ms=BASE_MS + delta) for delta in times]
    stage.driver.produce(Produce(stage.topic, tuple(records)))
    assert stage.read(2, 4) == expected(records)
    assert stage.read(2, 2, "timestamp", BASE_MS + 6000) == expected(records[2:], 2)
    assert stage.driver.list_offset(stage.topic, 2, "timestamp", BASE_MS + 1500) == 0
    _max_timestamp(stage, 2, 2)


def nothing_there(stage: Stage) -> None:
    """An empty partition has offsets, and a fetch of it ends with nothing."""
    stage.create()
    assert stage.driver.list_offset(stage.topic, 2, "earliest") == 0
    assert stage.driver.list_offset(stage.topic, 2, "latest") == 0
    assert stage.driver.list_offset(stage.topic, 2, "timestamp", BASE_MS) == (
        0 if stage.traits.turns_no_offset_into_latest else NO_OFFSET
    )
    _max_timestamp(stage, 2, NO_OFFSET)
    assert stage.driver.fetch(Fetch(stage.topic, 2, "earliest", 1, timeout_ms=600)) == []


def absent_and_empty(stage: Stage) -> None:
    """No key is not an empty key, no value is not an empty one, and so with headers."""
    stage.create()
    empty = (("empty", b""), ("", b"nameless"))
    records = [
        Record(0, None, key=b"a tombstone", timestamp_ms=BASE_MS),
        Record(0, b"", key=b"", headers=empty, timestamp_ms=BASE_MS),
        Record(0, b"", key=None, timestamp_ms=BASE_MS),
    ]
    if stage.traits.sends_neither_key_nor_value:
        records.append(Record(0, None, key=None, timestamp_ms=BASE_MS))
    if stage.traits.sends_null_header:
        headers = (("null", None), ("null", b"not"))
        records.append(Record(0, b"v", headers=headers, timestamp_ms=BASE_MS))
    stage.driver.produce(Produce(stage.topic, tuple(records)))
    assert stage.read(0, len(records)) == expected(records)


def log_append_time(stage: Stage) -> None:
    """The broker's time takes the place of the client's where the topic says so."""
    stage.create(message_timestamp_type="LogAppendTime")
    records = some_records(10, seed=100, partitions=1)
    for codec in ("none", "snappy"):
        stage.driver.produce(Produce(stage.topic, tuple(records), codec=codec))
    found = stage.read(0, 20)
    assert [record.value for record in found] == [record.value for record in records] * 2
    assert {record.timestamp_type for record in found} == {"append"}
    assert all((record.timestamp_ms or 0) > BASE_MS + SPAN_MS for record in found)
    assert stage.driver.list_offset(stage.topic, 0, "timestamp", BASE_MS + SPAN_MS) == 0


SCENARIOS: tuple[Callable[[Stage], None], ...] = (
    cluster,
    topic_lifecycle,
    topic_errors,
    *(round_trip(codec) for codec in CODECS),
    mixed_codecs,
    acks,
    sizes,
    size_limit,
    positions,
    timestamps_out_of_order,
    nothing_there,
    absent_and_empty,
    log_append_time,
)
