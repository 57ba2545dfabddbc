"""Transactions that one process writes and another one ends: the answers of both brokers.

The table in `transaction_outcomes` is this file's subject: each line of it happens here, on
Penstock in memory, and with the marker on a Penstock process and on Apache Kafka.
"""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from penstock.client.calls import LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchSender
from penstock.client.transactions.producer_transactions import (
    VERSION_0,
    VERSION_2,
    ProducerTransactions,
)
from penstock.client.transactions.transaction_outcomes import (
    CommitOutcome,
    OpenTransaction,
    TransactionSight,
    is_open,
    outcome_of_sight,
)
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap

TIMEOUT_MS = 60_000
PATIENCE_SECONDS = 20.0


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        yield address


def opened_cluster(
    bootstrap: str, timeout_seconds: float = 10, clock: Clock | None = None
) -> Cluster:
    return Cluster(
        parse_addresses(bootstrap),
        lambda address: connect(address, timeout_seconds=10),
        timeout_seconds=timeout_seconds,
        request_timeout_seconds=10,
        clock=clock,
    )


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with opened_cluster(bootstrap) as opened:
        yield opened


@pytest.fixture
def at(cluster: Cluster) -> TopicPartition:
    name = f"written-{uuid.uuid4()}"
    cluster.create_topic(NewTopic(name, 1))
    deadline = time.monotonic() + 10
    while name not in cluster.describe([name]):  # Kafka informs its brokers a moment later
        assert time.monotonic() < deadline, f"{name} does not appear"
        time.sleep(0.05)
    return TopicPartition(name, 0)


class Writer:
    """A producer that writes one record in a transaction and disconnects."""

    def __init__(self, cluster: Cluster, at: TopicPartition, version: int) -> None:
        self.cluster = cluster
        self.at = at
        self.version = version
        self.transactions = ProducerTransactions(cluster)

    def begin(self, name: str, timeout_ms: int = TIMEOUT_MS) -> OpenTransaction:
        begun = self.transactions.begin(name, timeout_ms)
        return begun._replace(version=self.version)

    def write(self, transaction: OpenTransaction, sequence: int = 0) -> None:
        record = Record(offset=0, timestamp_ms=0, key=None, value=b"x", headers=())
        data = build_batch(
            [record],
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        explicit = self.version == VERSION_0
        sender = BatchSender(
            self.cluster,
            transactional_id=transaction.transactional_id,
            join=(lambda some: self.transactions.add_partitions(transaction, some))
            if explicit
            else None,
        )
        sender.send(self.at, data)
        sender.flush()

    def open(self, name: str | None = None, timeout_ms: int = TIMEOUT_MS) -> OpenTransaction:
        transaction = self.begin(name or f"id-{uuid.uuid4()}", timeout_ms)
        self.write(transaction)
        return transaction


@pytest.fixture(params=[VERSION_0, VERSION_2])
def writer(request: pytest.FixtureRequest, cluster: Cluster, at: TopicPartition) -> Writer:
    return Writer(cluster, at, request.param)


def visible_end(cluster: Cluster, at: TopicPartition) -> int:
    found = cluster.look_up_offsets({at: LATEST_TIMESTAMP}, is_read_committed=True)
    return found[at].offset


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def outcome(writer: Writer, transaction: OpenTransaction) -> CommitOutcome:
    """What another process is told that commits it."""
    with Cluster(
        [next(iter(writer.cluster.brokers().values()))],
        lambda address: connect(address, timeout_seconds=10),
        timeout_seconds=10,
    ) as other:
        outcomes = ProducerTransactions(other).commit_all([transaction])
    return outcomes[transaction.transactional_id]


def test_both_brokers_have_agreed_on_version_two(cluster: Cluster) -> None:
    assert ProducerTransactions(cluster).version() == VERSION_2


def test_another_process_commits_it_again_and_again(writer: Writer) -> None:
    transaction = writer.open()
    assert visible_end(writer.cluster, writer.at) == 0
    for _ in range(3):
        assert outcome(writer, transaction) is CommitOutcome.COMMITTED
    wait_for(lambda: visible_end(writer.cluster, writer.at) == 2)


def test_an_aborted_one_cannot_be_committed(writer: Writer) -> None:
    transaction = writer.open()
    writer.transactions.abort_all([transaction, transaction])
    assert outcome(writer, transaction) is CommitOutcome.ABORTED


def test_one_that_timed_out_cannot_be_committed(writer: Writer) -> None:
    transaction = writer.open(timeout_ms=1_000)
    name = transaction.transactional_id
    wait_for(lambda: writer.transactions.look_at([name])[name].state == "CompleteAbort")
    assert outcome(writer, transaction) is CommitOutcome.ABORTED
    assert outcome(writer, transaction) is CommitOutcome.ABORTED


def test_one_that_was_fenced_cannot_be_committed(writer: Writer) -> None:
    transaction = writer.open()
    writer.transactions.fence_all([transaction], TIMEOUT_MS)
    assert outcome(writer, transaction) is not CommitOutcome.COMMITTED
    with pytest.raises(BrokerAnswerError) as caught:
        writer.write(transaction, sequence=1)
    fenced = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
    assert ErrorCode(caught.value.code) in fenced


def test_one_that_nobody_knows_has_no_outcome(writer: Writer) -> None:
    nobody = OpenTransaction(f"nobody-{uuid.uuid4()}", 4711, 0, writer.version)
    assert outcome(writer, nobody) is CommitOutcome.UNKNOWN


def test_a_committed_one_cannot_be_aborted(writer: Writer) -> None:
    transaction = writer.open()
    assert outcome(writer, transaction) is CommitOutcome.COMMITTED
    wait_for(lambda: visible_end(writer.cluster, writer.at) == 2)
    writer.transactions.abort_all([transaction])
    assert outcome(writer, transaction) is CommitOutcome.COMMITTED


def test_the_abort_of_a_later_one_is_not_taken_for_ours(
    cluster: Cluster, at: TopicPartition
) -> None:
    """Its id was used again: that it was committed cannot be seen any more."""
    writer = Writer(cluster, at, VERSION_2)
    first = writer.open()
    assert outcome(writer, first) is CommitOutcome.COMMITTED
    wait_for(lambda: visible_end(cluster, at) == 2)
    second = writer.open(first.transactional_id)
    writer.transactions.abort_all([second])
    assert outcome(writer, second) is CommitOutcome.ABORTED
    assert outcome(writer, first) is CommitOutcome.UNKNOWN


def test_many_are_ended_and_looked_at_at_once(cluster: Cluster, at: TopicPartition) -> None:
    writer = Writer(cluster, at, VERSION_2)
    prefix = f"many-{uuid.uuid4()}"
    opened = [writer.open(f"{prefix}.{n}") for n in range(20)]
    names = [one.transactional_id for one in opened]
    assert sorted(writer.transactions.list_open(prefix + ".")) == sorted(names)
    sights = writer.transactions.look_at([*names, "nobody"])
    assert all(is_open(one, sights[one.transactional_id]) for one in opened)
    assert "nobody" not in sights

    outcomes = writer.transactions.commit_all(opened[:10])
    assert set(outcomes.values()) == {CommitOutcome.COMMITTED}
    found = writer.transactions.find_open(prefix + ".")
    assert sorted(found) == sorted(opened[10:])
    writer.transactions.fence_all(found, TIMEOUT_MS)
    wait_for(lambda: not writer.transactions.list_open(prefix + "."))


def test_the_next_transaction_of_a_producer_goes_on(writer: Writer) -> None:
    first = writer.open()
    second = writer.transactions.end(first, commits=True)
    is_bumped = writer.version == VERSION_2
    assert second.producer_epoch - first.producer_epoch == int(is_bumped)
    writer.write(second, sequence=0 if is_bumped else 1)
    writer.transactions.end(second, commits=True)
    wait_for(lambda: visible_end(writer.cluster, writer.at) == 4)


def test_an_id_under_which_something_is_open_is_left_alone(writer: Writer) -> None:
    names = [f"free-{uuid.uuid4()}" for _ in range(3)]
    first = writer.open(names[0])
    second = writer.transactions.begin_unused(names, TIMEOUT_MS)
    assert second is not None
    assert second.transactional_id == names[1]
    assert outcome(writer, first) is CommitOutcome.COMMITTED
    wait_for(lambda: writer.transactions.look_at([names[0]])[names[0]].state == "CompleteCommit")
    again = writer.transactions.begin_unused(names, TIMEOUT_MS)
    assert again is not None
    assert again.transactional_id == names[0]
    assert writer.transactions.begin_unused([], TIMEOUT_MS) is None


class SleepyClock:
    """The machine's clock, in a process that may sleep."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self.slept_seconds = 0.0

    def now_ms(self) -> int:
        return self._machine.now_ms()

    def monotonic(self) -> float:
        return self._machine.monotonic() + self.slept_seconds


def test_who_slept_after_the_look_looks_again(
    bootstrap: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that sleeps does not take the id that another one wrote under meanwhile."""
    names = [f"late-{uuid.uuid4()}" for _ in range(2)]
    clock = SleepyClock()
    with opened_cluster(bootstrap, timeout_seconds=60, clock=clock) as cluster:
        late = ProducerTransactions(cluster)
        look_at = late.look_at
        opened: list[OpenTransaction] = []

        def look_and_sleep(wanted: list[str]) -> dict[str, TransactionSight]:
            sights = look_at(wanted)
            if not opened:
                opened.append(writer.open(names[0]))
                clock.slept_seconds += 10
            return sights

        monkeypatch.setattr(late, "look_at", look_and_sleep)
        begun = late.begin_unused(names, TIMEOUT_MS)
    assert begun is not None
    assert begun.transactional_id == names[1]
    assert outcome(writer, opened[0]) is CommitOutcome.COMMITTED


def test_a_timeout_that_brokers_do_not_allow_is_told(cluster: Cluster) -> None:
    with pytest.raises(BrokerAnswerError, match="INVALID_TRANSACTION_TIMEOUT"):
        ProducerTransactions(cluster).begin(f"id-{uuid.uuid4()}", 2**31 - 1)


def test_a_partition_that_is_not_there_cannot_be_added(bootstrap: str, cluster: Cluster) -> None:
    transactional_id = f"id-{uuid.uuid4()}"
    begun = ProducerTransactions(cluster).begin(transactional_id, TIMEOUT_MS)
    with (
        opened_cluster(bootstrap, timeout_seconds=0.3) as impatient,
        pytest.raises(BrokerAnswerError, match="UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        ProducerTransactions(impatient).add_partitions(
            begun._replace(version=VERSION_0), [TopicPartition("nowhere", 0)]
        )


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (None, CommitOutcome.UNKNOWN),
        (TransactionSight("CompleteAbort", 8, 2), CommitOutcome.UNKNOWN),
        (TransactionSight("CompleteAbort", 7, 2), CommitOutcome.ABORTED),
        (TransactionSight("PrepareAbort", 7, 2), CommitOutcome.ABORTED),
        (TransactionSight("CompleteAbort", 7, 3), CommitOutcome.ABORTED),
        (TransactionSight("CompleteAbort", 7, 4), CommitOutcome.UNKNOWN),
        (TransactionSight("CompleteAbort", 7, 1), CommitOutcome.UNKNOWN),
        (TransactionSight("Empty", 7, 2), CommitOutcome.UNKNOWN),
        (TransactionSight("CompleteCommit", 7, 3), CommitOutcome.UNKNOWN),
    ],
)
def test_what_a_coordinator_says_after_a_refusal(
    sight: TransactionSight | None, expected: CommitOutcome
) -> None:
    assert outcome_of_sight(OpenTransaction("id", 7, 1, VERSION_2), sight) is expected
