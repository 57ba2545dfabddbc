"""A client that runs through crashes, as a process of its own.

    python -m tests.crash.load CLIENT BOOTSTRAP SEED SECONDS

SECONDS is the time for the answer to one request.

A producer is idempotent, sends unique values, and prints the answers that it gets: `a NUMBER
PARTITION OFFSET` for an acknowledgement, `f NUMBER PARTITION REASON` for a record that it
abandoned. It survives a dead broker by its own retries: nothing here opens a second producer.
`watcher` is a consumer that prints everything that it reads: `w PARTITION OFFSET VALUE`. It ends
when its input ends, after requests in flight are settled.

The rate is bounded on purpose: a round is about where the crash falls, not about speed.
"""

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaProducer

from tests.crash.clients import BACKOFF_MS, GIVE_UP_SECONDS, PARTITIONS, TOPIC
from tests.crash.ledger import Sent

IN_FLIGHT_MAX = 60
BURST = 8
PAUSE_SECONDS = 0.03
"""Between bursts: some batches are in flight at any time, and a run stays small enough to read."""

is_over = threading.Event()


def tell(*words: object) -> None:
    """One line to whoever started this."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def tell_acknowledged(sent: Sent, offset: int) -> None:
    tell("a", sent.number, sent.partition, offset)


def tell_given_up(sent: Sent, reason: object) -> None:
    tell("f", sent.number, sent.partition, repr(reason).replace("\n", " "))


class Records:
    """The records of one producer; runs in one partition make longer batches."""

    def __init__(self, producer: str, seed: str) -> None:
        self._producer = producer
        self._dice = random.Random(f"{seed}/{producer}")
        self._number = -1
        self._partition = 0

    def next(self) -> Sent:
        if self._dice.random() < 0.2:
            self._partition = self._dice.randrange(PARTITIONS)
        self._number += 1
        return Sent(self._producer, self._number, self._partition)


def produce_with_confluent(bootstrap: str, records: Records, request_seconds: int) -> None:
    """The client of librdkafka."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": GIVE_UP_SECONDS * 1000,
            "request.timeout.ms": request_seconds * 1000,
            "socket.timeout.ms": request_seconds * 1000,
            "retry.backoff.ms": BACKOFF_MS,
            "reconnect.backoff.ms": BACKOFF_MS,
            "reconnect.backoff.max.ms": BACKOFF_MS * 2,
            "topic.metadata.refresh.fast.interval.ms": BACKOFF_MS,
            "log_level": 0,
        }
    )

    def send(sent: Sent) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                tell_given_up(sent, error)
            else:
                tell_acknowledged(sent, offset)

        producer.produce(TOPIC, sent.value(), partition=sent.partition, on_delivery=told)

    while not is_over.is_set():
        for _ in range(min(BURST, IN_FLIGHT_MAX - len(producer))):
            send(records.next())
        producer.poll(PAUSE_SECONDS)
        time.sleep(PAUSE_SECONDS)
    producer.flush(GIVE_UP_SECONDS)


def produce_with_kafka_python(bootstrap: str, records: Records, request_seconds: int) -> None:
    """kafka-python."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=GIVE_UP_SECONDS * 1000,
        request_timeout_ms=request_seconds * 1000,
        retry_backoff_ms=BACKOFF_MS,
        reconnect_backoff_ms=BACKOFF_MS,
        reconnect_backoff_max_ms=BACKOFF_MS * 2,
        max_block_ms=GIVE_UP_SECONDS * 1000,
    )
    in_flight = threading.Semaphore(IN_FLIGHT_MAX)

    def send(sent: Sent) -> None:
        def told(answer: object) -> None:
            in_flight.release()
            tell_acknowledged(sent, answer.offset)  # type: ignore[attr-defined]

        def failed(error: object) -> None:
            in_flight.release()
            tell_given_up(sent, error)

        future = producer.send(TOPIC, sent.value(), partition=sent.partition)
        future.add_callback(told)
        future.add_errback(failed)

    while not is_over.is_set():
        for _ in range(BURST):
            if in_flight.acquire(timeout=PAUSE_SECONDS):
                send(records.next())
        time.sleep(PAUSE_SECONDS)
    producer.flush(timeout=GIVE_UP_SECONDS)
    producer.close(timeout=GIVE_UP_SECONDS)


def produce_with_aiokafka(bootstrap: str, records: Records, _request_seconds: int) -> None:
    """aiokafka, on a loop of its own."""
    asyncio.run(_produce_with_aiokafka(bootstrap, records))


async def _produce_with_aiokafka(bootstrap: str, records: Records) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=GIVE_UP_SECONDS * 1000,
        retry_backoff_ms=BACKOFF_MS,
    )
    in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def note(sent: Sent, future: asyncio.Future[object]) -> None:
        try:
            answer = await future
            tell_acknowledged(sent, answer.offset)  # type: ignore[attr-defined]
        except AiokafkaError as error:
            tell_given_up(sent, error)
        finally:
            in_flight.release()

    await producer.start()
    try:
        async with asyncio.TaskGroup() as group:
            while not is_over.is_set():
                for _ in range(BURST):
                    await in_flight.acquire()
                    sent = records.next()
                    future = await producer.send(TOPIC, sent.value(), partition=sent.partition)
                    group.create_task(note(sent, future))
                await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await producer.stop()


def watch(bootstrap: str, _records: Records, request_seconds: int) -> None:
    """Follow the log through every crash and tell what was shown."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none: it only assigns",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "socket.timeout.ms": request_seconds * 1000,
            "reconnect.backoff.ms": BACKOFF_MS,
            "reconnect.backoff.max.ms": BACKOFF_MS * 2,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    while not is_over.is_set():
        for message in consumer.consume(500, timeout=0.05):
            value = message.value()
            if message.error() is None and isinstance(value, bytes):
                tell("w", message.partition(), message.offset(), value.hex())
    consumer.close()


CLIENTS: dict[str, Callable[[str, Records, int], None]] = {
    "confluent-kafka": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
    "watcher": watch,
}


def _end_with_input() -> None:
    sys.stdin.read()
    is_over.set()


if __name__ == "__main__":
    client, bootstrap_servers, seed_text, seconds_text = sys.argv[1:]
    threading.Thread(target=_end_with_input, daemon=True).start()
    CLIENTS[client](bootstrap_servers, Records(client, seed_text), int(seconds_text))
