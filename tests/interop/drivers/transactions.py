"""Transactions with one of the Python clients, as a program of its own.

Arguments: client, bootstrap, source topic, target topic. It fills the source with transactions of
which some abort, copies committed records to the target exactly once, and lets one producer fence
another. It prints one line with `>` for each result; the test compares. `Transactions.java` does
the same with the Java client.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka.structs import OffsetAndMetadata

SECONDS_MAX = 30.0
Result = TypeVar("Result")


class FencedError(Exception):
    """Another producer with the same transactional id took over."""


class TransactionalClient(Protocol):
    """A transactional producer, and a group of one consumer with read_committed."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        """Connect and take over the transactional id."""
        ...

    def transact(self, topic: str, values: Iterable[bytes], *, commits: bool) -> None:
        """Send the values and wait for them, then commit or abort."""
        ...

    def copy(self, source: str, target: str, group: str, *, count: int, abort_every: int) -> None:
        """Read `count` committed values and write each once, offsets and values together.

        Every `abort_every`-th transaction is aborted, and what it had read is read again.
        """
        ...

    def close(self) -> None:
        """Let go."""
        ...


class ConfluentClient:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        )
        self._producer.init_transactions(SECONDS_MAX)

    def transact(self, topic: str, values: Iterable[bytes], *, commits: bool) -> None:
        try:
            self._producer.begin_transaction()
            for value in values:
                self._producer.produce(topic, value, partition=0)
            self._producer.flush(SECONDS_MAX)
            if commits:
                self._producer.commit_transaction(SECONDS_MAX)
            else:
                self._producer.abort_transaction(SECONDS_MAX)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise FencedError from error
            raise

    def copy(self, source: str, target: str, group: str, *, count: int, abort_every: int) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([source])
        producer, done, transactions = self._producer, 0, 0
        deadline = time.monotonic() + SECONDS_MAX
        while done < count:
            assert time.monotonic() < deadline, f"{done} of {count} after {SECONDS_MAX} s"
            messages = consumer.consume(7, 1.0)
            if not messages:
                continue
            transactions += 1
            producer.begin_transaction()
            for message in messages:
                assert message.error() is None
                producer.produce(target, message.value(), partition=0)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                SECONDS_MAX,
            )
            if transactions % abort_every == 0:
                producer.abort_transaction(SECONDS_MAX)
                for found in consumer.committed(consumer.assignment(), SECONDS_MAX):
                    offset = max(found.offset, 0)
                    consumer.seek(ConfluentPartition(found.topic, found.partition, offset))
            else:
                producer.commit_transaction(SECONDS_MAX)
                done += len(messages)
        consumer.close()

    def close(self) -> None:
        self._producer.flush(0)


class PythonClient:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        )
        self._producer.init_transactions()

    def transact(self, topic: str, values: Iterable[bytes], *, commits: bool) -> None:
        try:
            self._producer.begin_transaction()
            for sent in [self._producer.send(topic, value, partition=0) for value in values]:
                sent.get(SECONDS_MAX)
            if commits:
                self._producer.commit_transaction()
            else:
                self._producer.abort_transaction()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedError from error

    def copy(self, source: str, target: str, group: str, *, count: int, abort_every: int) -> None:
        consumer = kafka.KafkaConsumer(
            source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer, done, transactions = self._producer, 0, 0
        deadline = time.monotonic() + SECONDS_MAX
        while done < count:
            assert time.monotonic() < deadline, f"{done} of {count} after {SECONDS_MAX} s"
            messages = [
                message
                for batch in consumer.poll(1_000, max_records=7).values()
                for message in batch
            ]
            if not messages:
                continue
            transactions += 1
            producer.begin_transaction()
            for message in messages:
                producer.send(target, message.value, partition=0)
            producer.send_offsets_to_transaction(
                {
                    partition: OffsetAndMetadata(consumer.position(partition), "", -1)
                    for partition in consumer.assignment()
                },
                consumer.group_metadata(),
            )
            if transactions % abort_every == 0:
                producer.abort_transaction()
                for partition in consumer.assignment():
                    consumer.seek(partition, consumer.committed(partition) or 0)
            else:
                producer.commit_transaction()
                done += len(messages)
        consumer.close()

    def close(self) -> None:
        self._producer.close(timeout=0)


class AsyncClient:
    """aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._producer = self._run(self._start(transactional_id))

    def _run(self, work: Coroutine[object, object, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS_MAX))

    async def _start(self, transactional_id: str) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id
        )
        await producer.start()
        return producer

    def transact(self, topic: str, values: Iterable[bytes], *, commits: bool) -> None:
        try:
            self._run(self._transact(topic, values, commits=commits))
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise FencedError from error

    async def _transact(self, topic: str, values: Iterable[bytes], *, commits: bool) -> None:
        await self._producer.begin_transaction()
        for value in values:
            await self._producer.send_and_wait(topic, value, partition=0)
        if commits:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    def copy(self, source: str, target: str, group: str, *, count: int, abort_every: int) -> None:
        self._run(self._copy(source, target, group, count, abort_every))

    async def _copy(
        self, source: str, target: str, group: str, count: int, abort_every: int
    ) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        producer, done, transactions = self._producer, 0, 0
        while done < count:
            batches = await consumer.getmany(timeout_ms=1_000, max_records=7)
            messages = [message for batch in batches.values() for message in batch]
            if not messages:
                continue
            transactions += 1
            await producer.begin_transaction()
            for message in messages:
                await producer.send(target, message.value, partition=0)
            offsets = {
                partition: await consumer.position(partition) for partition in consumer.assignment()
            }
            await producer.send_offsets_to_transaction(offsets, group)
            if transactions % abort_every == 0:
                await producer.abort_transaction()
                for partition in consumer.assignment():
                    consumer.seek(partition, await consumer.committed(partition) or 0)
            else:
                await producer.commit_transaction()
                done += len(messages)
        await consumer.stop()

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()


CLIENTS: dict[str, Callable[[str, str], TransactionalClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": PythonClient,
    "aiokafka": AsyncClient,
}
TRANSACTIONS = 8
RECORDS = 5


def fill(client: TransactionalClient, topic: str) -> int:
    """Every third transaction aborts; how many values are committed."""
    committed = 0
    for number in range(TRANSACTIONS):
        values = [f"{number}-{record}".encode() for record in range(RECORDS)]
        commits = number % 3 != 2
        client.transact(topic, values, commits=commits)
        committed += len(values) if commits else 0
    return committed


def main(name: str, bootstrap: str, source: str, target: str) -> None:
    """Play all of it."""
    make = CLIENTS[name]
    client = make(bootstrap, f"{name}-{source}")
    count = fill(client, source)
    client.copy(source, target, f"{name}-{source}", count=count, abort_every=3)
    print(f"> copied: {count}")
    client.close()
    zombie = make(bootstrap, f"{name}-fence-{source}")
    heir = make(bootstrap, f"{name}-fence-{source}")
    try:
        zombie.transact(target, [b"zombie"], commits=True)
        print("> the zombie won")
    except FencedError:
        print("> zombie: fenced")
    heir.transact(target, [b"heir"], commits=True)
    heir.close()
    print("> done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
