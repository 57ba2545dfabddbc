"""aiokafka behind the port; its loop runs while a call does.

It puts positions into a transaction without saying which member of the group it is (an older form
of the request, which brokers must take), so that nothing fences a member that the group has lost.
Exactly-once is not promised for that, and `plan`s of it leave this client out.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.checker.history import Send
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
from tests.histories.plan import GROUP, Plan, key_of, partition_of

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)

T = TypeVar("T")
ERRORS = (KafkaError, TimeoutError, AssertionError, ValueError, RuntimeError, OSError)
"""The library tells misuse and broken states in several ways; none of them says what happened."""


class AiokafkaClient:
    """See the module."""

    def __init__(self, bootstrap: str, plan: Plan, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._moves = Moves()
        self._plan = plan
        words: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "retry_backoff_ms": BACKOFF_MS,
            "request_timeout_ms": DELIVERY_TIMEOUT_MS,
        }
        try:
            self._run(self._open(words, transactional_id))
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    async def _open(self, words: dict[str, Any], transactional_id: str) -> None:
        plan = self._plan
        transactional: dict[str, Any] = {}
        if plan.in_transactions:
            transactional["transactional_id"] = transactional_id
            transactional["transaction_timeout_ms"] = plan.transaction_timeout_ms
        self._producer = AIOKafkaProducer(**words, enable_idempotence=True, **transactional)
        self._consumer = AIOKafkaConsumer(
            **words,
            group_id=GROUP if plan.via == "subscribe" else None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        await self._producer.start()
        await self._consumer.start()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, CALL_TIMEOUT_SECONDS))

    def begin(self) -> None:
        try:
            self._run(self._producer.begin_transaction())
        except ERRORS as error:
            raise Refused(repr(error)) from error

    async def _send(self, sends: Sequence[Send]) -> list[Send | BaseException]:
        # Each is handed over before the next: that keeps their order. The answers come together.
        futures = []
        for send in sends:
            topic, partition = partition_of(send.key)
            value = str(send.value).encode()
            futures.append(await self._producer.send(topic, value, partition=partition))
        answers = await asyncio.gather(*futures, return_exceptions=True)
        return [
            answer
            if isinstance(answer, BaseException)
            else dataclasses.replace(send, offset=answer.offset)
            for send, answer in zip(sends, answers, strict=True)
        ]

    def send(self, sends: Sequence[Send]) -> list[Send]:
        try:
            answers = self._run(self._send(sends))
        except ERRORS as error:
            raise SendsIncomplete(repr(error), sends, is_refused=False) from error
        done = [
            answer if isinstance(answer, Send) else send
            for send, answer in zip(sends, answers, strict=True)
        ]
        problems = [answer for answer in answers if not isinstance(answer, Send)]
        if problems:
            raise SendsIncomplete(repr(problems[0]), done, is_refused=False)
        return done

    def poll(self, seconds: float, records_max: int) -> Polled:
        try:
            polled = self._run(
                self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=records_max)
            )
        except ERRORS:
            return {}
        return {
            key_of(one.topic, one.partition): [(r.offset, int(r.value)) for r in records]
            for one, records in polled.items()
            if records
        }

    def add_positions(self, positions: Mapping[int, int]) -> None:
        offsets = {TopicPartition(*partition_of(key)): at for key, at in positions.items()}
        try:
            self._run(self._producer.send_offsets_to_transaction(offsets, GROUP))
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def commit(self) -> None:
        try:
            self._run(self._producer.commit_transaction())
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def abort(self) -> None:
        try:
            self._run(self._producer.abort_transaction())
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        offsets = {TopicPartition(*partition_of(key)): at for key, at in positions.items()}
        try:
            self._run(self._consumer.commit(offsets))
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def committed(self, keys: Sequence[int]) -> dict[int, int | None]:
        try:
            return {
                key: self._run(self._consumer.committed(TopicPartition(*partition_of(key))))
                for key in keys
            }
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def assign(self, positions: Mapping[int, int]) -> None:
        async def assign() -> None:
            self._consumer.assign([TopicPartition(*partition_of(key)) for key in positions])
            for key, offset in positions.items():
                self._consumer.seek(TopicPartition(*partition_of(key)), offset)

        self._run(assign())

    def subscribe(self, keys: Sequence[int]) -> None:
        topics = sorted({partition_of(key)[0] for key in keys})

        async def subscribe() -> None:
            self._consumer.subscribe(topics, listener=_Listener(self._moves))

        self._run(subscribe())

    def seek(self, key: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(TopicPartition(*partition_of(key)), offset)

        try:
            self._run(seek())
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def take_moves(self) -> Moves:
        return self._moves.take()

    def close(self) -> None:
        for stop in (self._consumer.stop, self._producer.stop):
            with contextlib.suppress(*ERRORS, asyncio.CancelledError):
                self._run(stop())


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Records the moved partitions."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._moves.taken.update(key_of(one.topic, one.partition) for one in revoked)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._moves.given.update(key_of(one.topic, one.partition) for one in assigned)
