"""kafka-python behind the port.

Two faults of kafka-python 3.0 are worked around, since a run is about the broker:

- a request of a transaction is lost when the coordinator refuses the connection at that moment, and
  the call waits for ever: such calls get a time limit;
- a member that lost its place and joins again keeps the positions of keys that it gets back, though
  others read them meanwhile: after each rebalance it is put where the group is.
"""

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

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

logging.getLogger("kafka").setLevel(logging.CRITICAL)

ERRORS = (KafkaError, AssertionError, ValueError, RuntimeError)
"""The library tells misuse and broken states in several ways; none of them says what happened."""
TRANSACTION_CALL_SECONDS_MAX = 2 * CALL_TIMEOUT_SECONDS
"""Some calls take this long and still end well: two requests that are tried again."""


def _offsets(positions: Mapping[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*partition_of(key)): OffsetAndMetadata(offset, "", -1)
        for key, offset in positions.items()
    }


def _within_the_limit(call: Callable[[], object]) -> None:
    """Run a call that has no timeout of its own; `Unknown` when it fails or does not return."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except ERRORS as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    # It may hang for ever, and must not keep the process alive.
    threading.Thread(target=run, daemon=True).start()
    try:
        ended.result(TRANSACTION_CALL_SECONDS_MAX)
    except (*ERRORS, TimeoutError) as error:
        raise Unknown(repr(error)) from error


class KafkaPythonClient:
    """See the module."""

    def __init__(self, bootstrap: str, plan: Plan, transactional_id: str) -> None:
        self._moves = Moves()
        self._unsettled: set[int] = set()
        """Keys that the group gave, and whose position was not read anew."""
        quiet: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "retry_backoff_ms": BACKOFF_MS,
            "reconnect_backoff_ms": BACKOFF_MS,
            "reconnect_backoff_max_ms": BACKOFF_MS * 4,
            "request_timeout_ms": DELIVERY_TIMEOUT_MS - 1_000,
        }
        producer = dict(quiet, enable_idempotence=True, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        producer["max_block_ms"] = int(CALL_TIMEOUT_SECONDS * 1000)
        if plan.in_transactions:
            producer["transactional_id"] = transactional_id
            producer["transaction_timeout_ms"] = plan.transaction_timeout_ms
        self._producer = KafkaProducer(**producer)
        quiet["request_timeout_ms"] = int(CALL_TIMEOUT_SECONDS * 1000)
        self._consumer = KafkaConsumer(
            **quiet,
            group_id=GROUP,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=500,
            # Its assignor "roundrobin" fails when members want different topics.
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        if plan.in_transactions:
            try:
                self._producer.init_transactions()
            except ERRORS as error:
                raise Unknown(repr(error)) from error

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except ERRORS as error:
            raise Refused(repr(error)) from error

    def send(self, sends: Sequence[Send]) -> list[Send]:
        futures = []
        done = list(sends)
        problem: Exception | None = None
        for place, send in enumerate(sends):
            topic, partition = partition_of(send.key)
            try:
                value = str(send.value).encode()
                futures.append((place, self._producer.send(topic, value, partition=partition)))
            except ERRORS as error:
                problem = error
                break
        for place, future in futures:
            try:
                answer = future.get(timeout=DELIVERY_TIMEOUT_MS / 1000 + 5)
                done[place] = dataclasses.replace(done[place], offset=answer.offset)
            except ERRORS as error:
                problem = error
        if problem is not None:
            raise SendsIncomplete(repr(problem), done, is_refused=False)
        return done

    def poll(self, seconds: float, records_max: int) -> Polled:
        try:
            polled = self._consumer.poll(timeout_ms=int(seconds * 1000), max_records=records_max)
        except KafkaError:
            return {}
        # Records from a position that is not the group's do not count.
        unsettled = set(self._unsettled)
        with contextlib.suppress(KafkaError):
            self._settle()
        found = {
            key_of(one.topic, one.partition): [(r.offset, int(r.value)) for r in records]
            for one, records in polled.items()
            if records
        }
        return {key: records for key, records in found.items() if key not in unsettled}

    def _settle(self) -> None:
        """Go on where the group is, in every key that it gave."""
        for key in sorted(self._unsettled):
            partition = TopicPartition(*partition_of(key))
            timeout_ms = int(CALL_TIMEOUT_SECONDS * 1000)
            committed = self._consumer.committed(partition, timeout_ms=timeout_ms)
            # A group that never committed begins at the beginning.
            self._consumer.seek(partition, committed or 0)
            self._unsettled.discard(key)

    def add_positions(self, positions: Mapping[int, int]) -> None:
        try:
            metadata = self._consumer.group_metadata()
        except ERRORS as error:
            raise Unknown(repr(error)) from error
        offsets = _offsets(positions)
        _within_the_limit(lambda: self._producer.send_offsets_to_transaction(offsets, metadata))

    def commit(self) -> None:
        _within_the_limit(self._producer.commit_transaction)

    def abort(self) -> None:
        _within_the_limit(self._producer.abort_transaction)

    def commit_positions(self, positions: Mapping[int, int]) -> None:
        try:
            timeout_ms = int(CALL_TIMEOUT_SECONDS * 1000)
            self._consumer.commit(_offsets(positions), timeout_ms=timeout_ms)
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def committed(self, keys: Sequence[int]) -> dict[int, int | None]:
        timeout_ms = int(CALL_TIMEOUT_SECONDS * 1000)
        try:
            return {
                key: self._consumer.committed(
                    TopicPartition(*partition_of(key)), timeout_ms=timeout_ms
                )
                for key in keys
            }
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(*partition_of(key)) for key in positions])
        for key, offset in positions.items():
            self._consumer.seek(TopicPartition(*partition_of(key)), offset)

    def subscribe(self, keys: Sequence[int]) -> None:
        topics = sorted({partition_of(key)[0] for key in keys})
        self._consumer.subscribe(topics, listener=_Listener(self._moves, self._unsettled))

    def seek(self, key: int, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(*partition_of(key)), offset)
        except ERRORS as error:
            raise Unknown(repr(error)) from error

    def take_moves(self) -> Moves:
        return self._moves.take()

    def close(self) -> None:
        with contextlib.suppress(*ERRORS):
            self._consumer.close(autocommit=False)
        with contextlib.suppress(*ERRORS):
            self._producer.close(timeout=0)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Records the moved partitions."""

    def __init__(self, moves: Moves, unsettled: set[int]) -> None:
        self._moves = moves
        self._unsettled = unsettled

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._take(revoked)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        keys = {key_of(one.topic, one.partition) for one in assigned}
        self._moves.given |= keys
        self._unsettled |= keys

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._take(lost)

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        keys = {key_of(one.topic, one.partition) for one in partitions}
        self._moves.taken |= keys
        self._unsettled -= keys
