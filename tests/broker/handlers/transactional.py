"""`Transactional`: one transactional id on one connection, with the calls that tests repeat.

Guarantees: each call is one request, except that a retriable answer of the coordinator
(CONCURRENT_TRANSACTIONS, or a coordinator that is being created) is retried; a test of those sends
its own requests.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.handlers.asker import SECONDS_MAX, Asker

TRANSACTION_KEY = 1
COME_BACK = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
Result = TypeVar("Result")


def retried(attempt: Callable[[], Result], code_of: Callable[[Result], ErrorCode]) -> Result:
    """Try until the answer is not to come back."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        result = attempt()
        if code_of(result) not in COME_BACK:
            return result
        assert time.monotonic() < deadline, code_of(result).name


def find_coordinator(asker: Asker, key: str, key_type: int = TRANSACTION_KEY) -> None:
    """Make sure that there is a coordinator; it is made when the first client asks."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
    retried(
        lambda: asker.ask(request, 6, FindCoordinatorResponse),
        lambda found: found.coordinators[0].error_code,
    )


def until_written(asker: Asker, topic: str, high_watermark: int) -> None:
    """Wait for the markers of a transaction, which come a moment after the answer to EndTxn."""
    deadline = time.monotonic() + SECONDS_MAX
    while asker.fetch(topic, 0).high_watermark != high_watermark:
        assert time.monotonic() < deadline


class Transactional:
    """A transactional producer."""

    def __init__(self, asker: Asker, name: str) -> None:
        self.asker = asker
        self.name = name
        self.producer_id = -1
        self.epoch = -1
        find_coordinator(asker, name)

    @property
    def producer(self) -> tuple[int, int]:
        """Who it is now."""
        return self.producer_id, self.epoch

    def ask_init(
        self, version: int = 5, *, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)
    ) -> InitProducerIdResponse:
        """InitProducerId, once."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        return self.asker.ask(request, version, InitProducerIdResponse)

    def init(self, *, expected: tuple[int, int] = (-1, -1)) -> "Transactional":
        """InitProducerId until it succeeds."""
        answer = retried(lambda: self.ask_init(expected=expected), lambda answer: answer.error_code)
        assert answer.error_code == ErrorCode.NONE, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return self

    def ask_add(
        self,
        topic: str,
        *partitions: int,
        version: int = 3,
        producer: tuple[int, int] | None = None,
    ) -> list[ErrorCode]:
        """AddPartitionsToTxn, once, in a client's version."""
        producer_id, epoch = producer or self.producer
        topics = (AddPartitionsToTxnTopic(name=topic, partitions=partitions),)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        answer = self.asker.ask(request, version, AddPartitionsToTxnResponse)
        (found,) = answer.results_by_topic_v3_and_below
        codes = {
            one.partition_index: one.partition_error_code for one in found.results_by_partition
        }
        return [codes[partition] for partition in partitions]

    def add(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn until it succeeds."""
        codes = retried(lambda: self.ask_add(topic, *partitions), lambda codes: codes[0])
        assert set(codes) == {ErrorCode.NONE}

    def batch_entry(
        self,
        topic: str,
        *partitions: int,
        verify_only: bool = False,
        producer: tuple[int, int] | None = None,
    ) -> AddPartitionsToTxnTransaction:
        """One transaction in a broker's version of AddPartitionsToTxn."""
        producer_id, epoch = producer or self.producer
        return AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions),),
        )

    def ask_add_offsets(
        self, group: str, version: int = 4, producer: tuple[int, int] | None = None
    ) -> ErrorCode:
        """AddOffsetsToTxn, once."""
        producer_id, epoch = producer or self.producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group,
        )
        return self.asker.ask(request, version, AddOffsetsToTxnResponse).error_code

    def ask_end(
        self, *, commits: bool, version: int = 5, producer: tuple[int, int] | None = None
    ) -> EndTxnResponse:
        """EndTxn, once."""
        producer_id, epoch = producer or self.producer
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commits,
        )
        return self.asker.ask(request, version, EndTxnResponse)

    def end(self, *, commits: bool, version: int = 5) -> None:
        """EndTxn until it succeeds; the producer is then whom the coordinator says."""
        answer = retried(
            lambda: self.ask_end(commits=commits, version=version),
            lambda answer: answer.error_code,
        )
        assert answer.error_code == ErrorCode.NONE
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
