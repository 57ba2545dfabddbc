"""librdkafka behind the port."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from penstock.core.clock import SystemClock
from tests.checker.history import Send
from tests.checker.vanishing import record_key
from tests.histories.client import (
    BACKOFF_MS,
    CALL_TIMEOUT_SECONDS,
    DELIVERY_TIMEOUT_MS,
    Moves,
    Polled,
    Refused,
    SendsIncomplete,
    Unknown,
)
from tests.histories.plan import GROUP, OLD_MS, Plan, key_of, partition_of

CLOCK = SystemClock()
NEVER_SENT = {
    KafkaError._QUEUE_FULL,
    KafkaError._PURGE_QUEUE,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
"""All others may follow a try that did arrive."""


def _quiet(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "retry.backoff.ms": BACKOFF_MS,
        "reconnect.backoff.ms": BACKOFF_MS,
        "reconnect.backoff.max.ms": BACKOFF_MS * 4,
        "topic.metadata.refresh.fast.interval.ms": BACKOFF_MS,
        # With `rebootstrap`, the default, librdkafka 2.16 throws its brokers away when all are
        # gone, but not the group coordinator that it remembers: after a restart of the broker
        # `send_offsets_to_transaction` waits for a connection that is never opened again, longer
        # than its timeout. It does so on Apache Kafka too.
        "metadata.recovery.strategy": "none",
        "log_level": 0,
        "error_cb": lambda _error: None,
    }


def _partitions(positions: Mapping[int, int]) -> list[TopicPartition]:
    return [TopicPartition(*partition_of(key), offset) for key, offset in positions.items()]


class ConfluentClient:
    """See the module."""

    def __init__(self, bootstrap: str, plan: Plan, transactional_id: str) -> None:
        self._plan = plan
        self._moves = Moves()
        producer = {
            **_quiet(bootstrap),
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        }
        if plan.in_transactions:
            producer["transactional.id"] = transactional_id
            producer["transaction.timeout.ms"] = plan.transaction_timeout_ms
        consumer = {
            **_quiet(bootstrap),
            "group.id": GROUP,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "group.protocol": plan.protocol,
        }
        if plan.protocol == "classic":
            consumer["session.timeout.ms"] = plan.session_timeout_ms
            consumer["heartbeat.interval.ms"] = 500
            # A group has one assignor that all its members know.
            is_alone = set(plan.libraries) == {"confluent-kafka"}
            consumer["partition.assignment.strategy"] = (
                "cooperative-sticky" if is_alone else "range"
            )
        self._producer = Producer(producer)
        self._consumer = Consumer(consumer)
        if plan.in_transactions:
            try:
                self._retried(self._producer.init_transactions)
            except KafkaException as error:
                raise Unknown(str(error)) from error

    def _retried(self, call: Callable[[float], None]) -> None:
        """Again while the library says that it may be tried again and there is time."""
        deadline = time.monotonic() + CALL_TIMEOUT_SECONDS
        while True:
            try:
                call(max(0.1, deadline - time.monotonic()))
                return
            except KafkaException as error:
                cause = error.args[0]
                if not cause.retriable() or time.monotonic() > deadline:
                    raise

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise Refused(str(error)) from error

    def send(self, sends: Sequence[Send]) -> list[Send]:
        done = {send: send for send in sends}
        errors: list[KafkaError] = []
        waiting = len(sends)

        def report(send: Send) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, message: Message) -> None:
                nonlocal waiting
                waiting -= 1
                if error is None:
                    done[send] = dataclasses.replace(send, offset=message.offset())
                else:
                    errors.append(error)

            return note

        for send in sends:
            topic, partition = partition_of(send.key)
            try:
                self._producer.produce(
                    topic,
                    str(send.value).encode(),
                    partition=partition,
                    on_delivery=report(send),
                    **self._words(send),
                )
            except (BufferError, KafkaException) as error:
                raise SendsIncomplete(str(error), [*done.values()], is_refused=False) from error
        try:
            while waiting:
                # It ends: each message is acknowledged or times out.
                self._producer.poll(0.1)
        except KafkaException as error:
            raise SendsIncomplete(str(error), [*done.values()], is_refused=False) from error
        if errors:
            is_refused = len(errors) == len(sends) and all(e.code() in NEVER_SENT for e in errors)
            raise SendsIncomplete(str(errors[0]), [*done.values()], is_refused=is_refused)
        return [*done.values()]

    def _words(self, send: Send) -> dict[str, Any]:
        """Key and timestamp, where the plan wants them."""
        words: dict[str, Any] = {}
        if self._plan.upheavals:
            words["key"] = str(record_key(send.value))
        if self._plan.has_old_timestamps:
            words["timestamp"] = CLOCK.now_ms() - OLD_MS
        return words

    def poll(self, seconds: float, records_max: int) -> Polled:
        found: Polled = {}
        for place in range(records_max):
            message = self._consumer.poll(0 if place else seconds)
            if message is None:
                break
            value, offset = message.value(), message.offset()
            topic, partition = message.topic(), message.partition()
            if message.error() is None and isinstance(value, bytes):
                assert topic is not None
                assert partition is not None
                assert offset is not None
                found.setdefault(key_of(topic, partition), []).append((offset, int(value)))
        return found

    def add_positions(self, positions: Mapping[int, int]) -> None:
        try:
            metadata = self._consumer.consumer_group_metadata()
            offsets = _partitions(positions)
            self._retried(
                lambda left: self._producer.send_offsets_to_transaction(offsets, metadata, left)
            )
        except KafkaException as error:
            raise Unknown(str(error)) from error

    def commit(self) -> None:
        try:
            self._retried(self._producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise Unknown(str(error)) from error
            try:
                self._retried(self._producer.abort_transaction)
            except KafkaException as second:
                raise Unknown(f"{error}, then {second}") from second
            raise Refused(str(error)) from error

    def abort(self) -> None:
        try:
            self._retried(self._producer.abort_transaction)
        except KafkaException as error:
            raise Unknown(str(error)) from error

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        try:
            answers = self._consumer.commit(offsets=_partitions(positions), asynchronous=False)
        except KafkaException as error:
            raise Unknown(str(error)) from error
        for answer in answers or ():
            if answer.error is not None:
                raise Unknown(str(answer.error))

    def committed(self, keys: Sequence[int]) -> dict[int, int | None]:
        asked = [TopicPartition(*partition_of(key)) for key in keys]
        try:
            answers = self._consumer.committed(asked, timeout=CALL_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise Unknown(str(error)) from error
        if any(answer.error is not None for answer in answers):
            raise Unknown("a partition has no answer")
        return {
            key_of(answer.topic, answer.partition): (
                None if answer.offset == OFFSET_INVALID else answer.offset
            )
            for answer in answers
        }

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign(_partitions(positions))

    def subscribe(self, keys: Sequence[int]) -> None:
        def given(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._moves.given.update(key_of(one.topic, one.partition) for one in partitions)

        def taken(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._moves.taken.update(key_of(one.topic, one.partition) for one in partitions)

        topics = sorted({partition_of(key)[0] for key in keys})
        self._consumer.subscribe(topics, on_assign=given, on_revoke=taken, on_lost=taken)

    def seek(self, key: int, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(*partition_of(key), offset))
        except KafkaException as error:
            raise Unknown(str(error)) from error

    def take_moves(self) -> Moves:
        return self._moves.take()

    def close(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
        # A producer that was fenced answers every call with that.
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(0)
