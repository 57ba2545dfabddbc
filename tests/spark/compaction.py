"""A compacted topic whose batches have gaps, written by the broker's own cleaner.

Guarantees: when `fill_compacted` returns, every segment but the last was compacted, and nothing is
left for the cleaner to do: two readers see the same. Of one producer the last batch lost all its
records (brokers keep its header), transactions were committed and aborted, and some keys end with
a tombstone.

Both brokers look for work every 15 seconds, so this waits for up to half a minute.
"""

import random
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.spark.topics import SECONDS_MAX, Record, create_topic, new_producer, produce, send

SEGMENT_BYTES = 1_048_576
"""The least that Kafka allows."""
KEYS = 50
VALUE_BYTES = 1_000
RECORDS = 4_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000
COMPACTION_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.5

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
}


def fill_compacted(bootstrap: str, topic: str) -> None:
    """Make the topic, write about four segments over a few keys, wait for the cleaner."""
    create_topic(bootstrap, topic, config=SETTINGS)
    # All of it is overwritten below.
    produce(bootstrap, topic, [_record(number, KEYS, b"old") for number in range(60)])
    _transactions(bootstrap, topic)
    draw = random.Random(1)
    records = []
    for number in range(RECORDS):
        key = draw.randrange(KEYS)
        # Not the same length twice: batches must not all end alike.
        filler = draw.randbytes(VALUE_BYTES - draw.randrange(100))
        is_tombstone = number > RECORDS // 2 and key % 10 == 3
        records.append(_record(number, key, None if is_tombstone else b"%d " % number + filler))
    producer = new_producer(bootstrap, {"compression.type": "none", "batch.size": "16384"})
    send(producer, topic, records)
    _wait_until_compacted(bootstrap, topic)


def _record(number: int, key: int, value: bytes | None) -> Record:
    headers = (("number", b"%d" % number),) if number % 2 else ()
    return Record(value, b"key-%d" % key, 0, FIRST_TIMESTAMP_MS + number, headers)


def _transactions(bootstrap: str, topic: str) -> None:
    settings = {"transactional.id": f"{topic}-writer", "compression.type": "lz4"}
    producer = new_producer(bootstrap, settings)
    producer.init_transactions(SECONDS_MAX)
    for turn in range(6):
        producer.begin_transaction()
        # Some keys of their own: these records outlive the compaction.
        keys = [KEYS + 1 + turn * 5 + number for number in range(5)] + list(range(10))
        send(producer, topic, [_record(n, key, b"turn %d" % turn) for n, key in enumerate(keys)])
        if turn % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)


def _wait_until_compacted(bootstrap: str, topic: str) -> None:
    """Until what is readable fits one segment (the last is not compacted) and the keys."""
    records_max = SEGMENT_BYTES // (VALUE_BYTES - 100) + 2 * KEYS
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while (found := _readable(bootstrap, topic)) > records_max:
        assert time.monotonic() < deadline, f"{found} records are left, {records_max} at most"
        time.sleep(_POLL_SECONDS)


def _readable(bootstrap: str, topic: str) -> int:
    """How many records a reader of everything finds now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "log_level": "0",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    try:
        while True:
            for message in consumer.consume(500, _POLL_SECONDS):
                error = message.error()
                if error is None:
                    count += 1
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                return count
    finally:
        consumer.close()
