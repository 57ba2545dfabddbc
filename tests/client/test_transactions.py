"""Transactions over a cluster in memory: listed, hanging and aborted ones."""

import pytest

from penstock.client.cluster import Cluster
from penstock.client.transactions.transactions import Transactions, UnknownTransactionError
from penstock.core.errors import AnswerLostError, BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from tests.client.fake_broker import FakeCluster
from tests.client.fake_coordinators import FakeCoordinators, FakeProducer, FakeTransaction

P0 = TopicPartition("orders", 0)
NOW_MS = 1_700_000_900_000


@pytest.fixture
def coordinators(fake: FakeCluster) -> FakeCoordinators:
    fake.add_topic("orders")
    return FakeCoordinators(fake)


@pytest.fixture
def transactions(cluster: Cluster, coordinators: FakeCoordinators) -> Transactions:
    coordinators.transactions["pay"] = FakeTransaction(7, partitions=[P0])
    coordinators.producers[P0] = [FakeProducer(7, 40), FakeProducer(8, 42), FakeProducer(9)]
    return Transactions(cluster)


def test_list_and_describe(fake: FakeCluster, transactions: Transactions) -> None:
    fake.fail_next(list_transactions.ListTransactionsRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (listed,) = transactions.list_all()
    assert listed == ("pay", 1, 7, "Ongoing")
    assert transactions.list_all(["Empty"]) == []
    fake.fail_next(
        describe_transactions.DescribeTransactionsRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    found = transactions.describe("pay")
    assert (found.producer_id, found.partitions) == (7, (P0,))
    with pytest.raises(UnknownTransactionError, match="transactional id 'nothing' not found"):
        transactions.describe("nothing")


def test_an_id_without_an_open_transaction_has_no_start(
    coordinators: FakeCoordinators, transactions: Transactions
) -> None:
    coordinators.transactions["idle"] = FakeTransaction(3, "Empty", started_ms=-1)
    assert transactions.describe("idle").started_at_ms is None


def test_a_transaction_without_an_owner_hangs(
    coordinators: FakeCoordinators, transactions: Transactions
) -> None:
    owner = transactions.owner(7, P0)
    assert owner is not None
    assert owner.transactional_id == "pay"
    assert [one.producer_id for one in transactions.hanging(P0, silent_since_ms=NOW_MS)] == [8]
    assert transactions.hanging(P0, silent_since_ms=1_600_000_000_000) == []
    coordinators.transactions["pay"].state = "CompleteCommit"
    found = transactions.hanging(P0, silent_since_ms=NOW_MS)
    assert [one.producer_id for one in found] == [7, 8]


def test_an_owner_that_has_other_partitions_is_none(
    coordinators: FakeCoordinators, transactions: Transactions
) -> None:
    coordinators.transactions["pay"].partitions = [TopicPartition("orders", 1)]
    assert transactions.owner(7, P0) is None


def test_abort_writes_a_marker_for_one_producer(
    fake: FakeCluster, transactions: Transactions
) -> None:
    fake.fail_next(describe_producers.DescribeProducersRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer = transactions.open_at(P0, 42)
    fake.fail_next(write_txn_markers.WriteTxnMarkersRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    transactions.abort(P0, producer)
    request = fake.requests[-1]
    assert isinstance(request, write_txn_markers.WriteTxnMarkersRequest)
    assert request.markers[0].coordinator_epoch == 0
    with pytest.raises(UnknownTransactionError, match=r"at offset 42 .* Open ones begin at 40\."):
        transactions.open_at(P0, 42)


def test_an_abort_whose_answer_is_lost_is_not_repeated(
    fake: FakeCluster, transactions: Transactions
) -> None:
    producer = transactions.open_at(P0, 42)
    fake.fail_next(write_txn_markers.WriteTxnMarkersRequest, "lost")
    with pytest.raises(AnswerLostError):
        transactions.abort(P0, producer)


def test_a_refused_abort_is_raised(fake: FakeCluster, transactions: Transactions) -> None:
    producer = transactions.open_at(P0, 42)
    fake.fail_next(write_txn_markers.WriteTxnMarkersRequest, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(BrokerAnswerError, match="INVALID_PRODUCER_EPOCH"):
        transactions.abort(P0, producer)
