"""One member of a group, by one of the Python clients, as a process that can be killed.

    python -m tests.interop.drivers.group_member CLIENT BOOTSTRAP GROUP TOPIC

It prints a line of JSON whenever its assignment changes and for each record, and commits the
printed records. A commit that a rebalance overtakes is rejected by either broker; the next owner of
the partition reads these records again. A line on its standard input makes it read its partitions
from their beginning again; when the input ends it leaves the group and goes.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

SESSION_MS = 6_000
HEARTBEAT_MS = 500
POLL_SECONDS = 0.1
KAFKA_PYTHON_POLL_SECONDS = 1.0
"""Longer than a slow broker takes to answer. A leader that joins again because it learned of
partitions, and whose SyncGroup is answered between two polls, never takes its assignment up: as of
kafka-python 3.0.12 the next poll thinks that there is nothing to wait for. Any broker will do."""

stopping = threading.Event()
rewinding = threading.Event()


def say(**words: object) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def is_told_to_rewind() -> bool:
    """Whether a line came since this was last asked."""
    told = rewinding.is_set()
    rewinding.clear()
    return told


class Assignment:
    """Says when it changes."""

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def now(self, partitions: list[int]) -> None:
        """What it is now."""
        if sorted(partitions) != self._last:
            self._last = sorted(partitions)
            say(assigned=self._last)


def confluent(protocol: str, strategy: str) -> Callable[[str, str, str], None]:
    """librdkafka, in one of the two protocols."""

    def member(bootstrap: str, group: str, topic: str) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": protocol,
        }
        if protocol == "classic":
            settings |= {
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": strategy,
            }
        consumer, assignment = Consumer(settings), Assignment()
        consumer.subscribe([topic])
        while not stopping.is_set():
            record = consumer.poll(POLL_SECONDS)
            assignment.now([one.partition for one in consumer.assignment()])
            if record is not None and not record.error():
                say(value=(record.value() or b"").decode(), partition=record.partition())
                with suppress(KafkaException):
                    consumer.commit(message=record, asynchronous=False)
            if is_told_to_rewind():
                for one in consumer.assignment():
                    consumer.seek(TopicPartition(one.topic, one.partition, 0))
        consumer.close()

    return member


def kafka_python(bootstrap: str, group: str, topic: str) -> None:
    """The pure Python client."""
    from kafka import KafkaConsumer
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    assignment = Assignment()
    while not stopping.is_set():
        polled = consumer.poll(int(KAFKA_PYTHON_POLL_SECONDS * 1000))
        assignment.now([one.partition for one in consumer.assignment()])
        for records in polled.values():
            for record in records:
                say(value=record.value.decode(), partition=record.partition)
        if polled:
            with suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()
        if is_told_to_rewind():
            for one in consumer.assignment():
                consumer.seek(one, 0)
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str) -> None:
    """The asyncio client."""
    asyncio.run(_aiokafka(bootstrap, group, topic))


async def _aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import CommitFailedError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    await consumer.start()
    assignment = Assignment()
    while not stopping.is_set():
        polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        assignment.now([one.partition for one in consumer.assignment()])
        for records in polled.values():
            for record in records:
                say(value=record.value.decode(), partition=record.partition)
        if polled:
            with suppress(CommitFailedError):
                await consumer.commit()
        if is_told_to_rewind():
            for one in consumer.assignment():
                consumer.seek(one, 0)
    await consumer.stop()


MEMBERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-eager": confluent("classic", "range"),
    "confluent-cooperative": confluent("classic", "cooperative-sticky"),
    "confluent-consumer": confluent("consumer", ""),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def main() -> None:
    """Be a member until standard input ends."""
    client, bootstrap, group, topic = sys.argv[1:]

    def wait() -> None:
        for _ in sys.stdin:
            rewinding.set()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
    MEMBERS[client](bootstrap, group, topic)
    say(left=True)


if __name__ == "__main__":
    main()
