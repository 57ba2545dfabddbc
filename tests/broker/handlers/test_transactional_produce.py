"""Produce within a transaction: the coordinator is asked when required, and the order is kept.

The coordinator, the disk and the clock are the test's; behaviour shared with Apache Kafka is in
test_read_committed.py.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from penstock.broker.answers import Answer
from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.handlers import produce
from penstock.core.deferred import Deferred
from penstock.core.limits import CONNECTION_TURN_SECONDS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from penstock.replication.manager import TransactionEnd
from tests.broker.handlers.asker import batch_of, produce_request
from tests.broker.handlers.fakes import FakeServices
from tests.storage.logs import PARTITION, Clock

TOPIC = PARTITION.topic
PRODUCER = 70


class SlowClock(Clock):
    """A slice passes with each look."""

    def monotonic(self) -> float:
        self.seconds += CONNECTION_TURN_SECONDS
        return super().monotonic()


class TaskList:
    """Tasks that run, together, when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[object, object, None]] = []

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self.waiting.append(coroutine)

    def run(self) -> None:
        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for coroutine in self.waiting:
                    group.create_task(coroutine)

        asyncio.run(together())
        self.waiting.clear()


class Bank:
    """A client with a transactional id, whose requests a test holds at any point."""

    def __init__(self) -> None:
        self.fake = FakeServices()
        self.tasks = TaskList()
        self.services: BrokerServices = replace(self.fake.services, tasks=self.tasks)

    def send(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        version: int = 12,
        producer_id: int = PRODUCER,
        partitions: tuple[int, ...] = (0,),
    ) -> list[Answer]:
        batches = {
            partition: batch_of(
                b"x",
                timestamps_ms=[1_000],
                producer_id=producer_id,
                producer_epoch=epoch,
                sequence=sequence,
                transactional=True,
            )
            for partition in partitions
        }
        context = RequestContext(self.services, version, "test", is_version_unsupported=False)
        answers: list[Answer] = []
        request = produce_request(TOPIC, batches, transactional_id="bank")
        outcome = produce.handle(request, context)
        if isinstance(outcome, Deferred):
            outcome.then(answers.append)
        else:
            answers.append(outcome)
        return answers

    async def late_turns(self) -> None:
        """Run what waits for a turn, each time after all tasks did what they could."""
        for _ in range(5):
            for _ in range(20):
                await asyncio.sleep(0)
            self.fake.run_turns()

    def settle(self) -> None:
        """Let coordinators answer and the disk sync."""
        self.tasks.run()
        self.fake.node.sync()

    def end(self, *, epoch: int = 0, commits: bool = False) -> None:
        """A marker comes."""
        end = TransactionEnd(PRODUCER, epoch, 0, commits)
        self.fake.node.replicas.append_marker(self.fake.node.partition, end, 1_000)
        self.fake.node.sync()


def result(answers: list[Answer], partition: int = 0) -> PartitionProduceResponse:
    (answer,) = answers
    assert isinstance(answer, ProduceResponse)
    found = {one.index: one for one in answer.responses[0].partition_responses}
    return found[partition]


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_the_first_batch_asks_and_the_next_ones_do_not(bank: Bank) -> None:
    first = bank.send(0)
    assert first == []
    bank.settle()
    assert result(first).base_offset == 0
    second = bank.send(1)
    assert bank.tasks.waiting == []
    bank.fake.node.sync()
    assert result(second).base_offset == 1
    assert len(bank.fake.coordinators.asked) == 1


@pytest.mark.parametrize(("version", "verify_only"), [(11, True), (12, False)])
def test_who_adds_the_partition_depends_on_the_client(
    bank: Bank, version: int, verify_only: bool
) -> None:
    bank.send(0, version=version)
    bank.settle()
    (asked,) = bank.fake.coordinators.asked
    assert asked.verify_only is verify_only
    assert (asked.producer_id, asked.producer_epoch) == (PRODUCER, 0)
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [(TOPIC, (0,))]


def test_nobody_overtakes_a_batch_that_is_being_verified(bank: Bank) -> None:
    sent = [bank.send(sequence) for sequence in range(4)]
    bank.settle()
    assert [result(answers).base_offset for answers in sent] == [0, 1, 2, 3]
    assert len(bank.fake.coordinators.asked) == 1
    assert bank.services.transaction_turns.is_free(PRODUCER)


def test_nobody_overtakes_a_verified_request_that_goes_on_in_slices(bank: Bank) -> None:
    """Guards `_appended`: the next batch came before the rest, and was refused as out of order."""
    bank.fake.node.add(TOPIC, 1)
    bank.services = replace(bank.services, clock=SlowClock())
    first = bank.send(0, partitions=(0, 1))
    second = bank.send(1, partitions=(1,))
    bank.tasks.start(bank.late_turns())
    bank.settle()
    assert [result(first, index).base_offset for index in (0, 1)] == [0, 0]
    assert (result(second, 1).error_code, result(second, 1).base_offset) == (ErrorCode.NONE, 1)
    assert bank.services.transaction_turns.is_free(PRODUCER)


def test_a_marker_between_the_answer_and_the_append_wins(bank: Bank) -> None:
    bank.fake.coordinators.before_answer = bank.end
    late = bank.send(0)
    bank.settle()
    assert result(late).error_code == ErrorCode.INVALID_TXN_STATE
    assert bank.fake.node.partition.log.producers.transactions.is_all_decided


@pytest.mark.parametrize("version", [11, 12])
def test_the_marker_of_the_last_transaction_may_come_before_the_yes(
    bank: Bank, version: int
) -> None:
    """Guards `_begin_revoked`: with several brokers, the marker ended the next verification too."""
    bank.send(0)
    bank.settle()

    def end_once() -> None:
        bank.fake.coordinators.before_answer = lambda: None
        bank.end(epoch=1, commits=True)

    bank.fake.coordinators.before_answer = end_once
    sent = bank.send(0, epoch=1, version=version)
    bank.settle()
    assert (result(sent).error_code, result(sent).base_offset) == (ErrorCode.NONE, 2)
    assert [asked.producer_epoch for asked in bank.fake.coordinators.asked] == [0, 1, 1]


def test_a_transaction_that_ended_before_the_yes_is_refused_by_its_coordinator(
    bank: Bank,
) -> None:
    bank.fake.coordinators.codes = [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]
    bank.fake.coordinators.before_answer = bank.end
    late = bank.send(0)
    bank.settle()
    assert result(late).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bank.fake.node.partition.log.producers.transactions.is_all_decided


def test_after_an_end_the_coordinator_is_asked_again(bank: Bank) -> None:
    bank.send(0)
    bank.settle()
    bank.end(epoch=1)
    bank.send(0, epoch=1)
    bank.settle()
    assert [asked.producer_epoch for asked in bank.fake.coordinators.asked] == [0, 1]


def test_an_old_epoch_is_told_so_whatever_the_coordinator_says(bank: Bank) -> None:
    bank.end(epoch=1)
    old = bank.send(0, epoch=0)
    bank.settle()
    assert result(old).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinator_that_still_ends_the_last_one_is_asked_again(bank: Bank) -> None:
    bank.fake.coordinators.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
    sent = bank.send(0)
    bank.settle()
    assert result(sent).error_code == ErrorCode.NONE
    assert len(bank.fake.coordinators.asked) == 2


def test_an_older_client_comes_back_by_itself(bank: Bank) -> None:
    bank.fake.coordinators.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
    sent = bank.send(0, version=11)
    bank.settle()
    assert result(sent).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_a_producer_is_told(
    bank: Bank, version: int, said: ErrorCode, told: ErrorCode
) -> None:
    bank.fake.coordinators.codes = [said]
    refused = bank.send(0, version=version)
    bank.settle()
    assert result(refused).error_code == told
    assert bank.fake.node.partition.log.end_offset == 0


def test_a_batch_behind_one_that_failed_waits_for_it_to_come_again(bank: Bank) -> None:
    bank.fake.coordinators.codes = [ErrorCode.NOT_COORDINATOR]
    first, second = bank.send(0), bank.send(1)
    bank.settle()
    assert result(first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert result(second).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = bank.send(0)
    bank.settle()
    assert result(again).base_offset == 0


def test_a_repeated_batch_is_answered_with_where_it_is(bank: Bank) -> None:
    bank.send(0)
    bank.settle()
    again = bank.send(0)
    bank.fake.node.sync()
    assert result(again).base_offset == 0
    assert bank.fake.node.partition.log.end_offset == 1


def test_one_request_belongs_to_one_producer(bank: Bank) -> None:
    batches = {
        index: batch_of(
            b"x",
            timestamps_ms=[1_000],
            producer_id=PRODUCER + index,
            sequence=0,
            transactional=True,
        )
        for index in (0, 1)
    }
    request = produce_request(TOPIC, batches, transactional_id="bank")
    answer = produce.handle(request, bank.fake.context(12))
    assert isinstance(answer, ProduceResponse)
    for index in (0, 1):
        assert result([answer], index).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_partition_that_is_not_here_does_not_stop_the_others(bank: Bank) -> None:
    sent = bank.send(0, partitions=(0, 9))
    bank.settle()
    assert result(sent, 0).error_code == ErrorCode.NONE
    assert result(sent, 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
