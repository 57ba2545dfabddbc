"""Ranges, offsets and both transports against real brokers: Apache Kafka and Penstock."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from penstock.client import calls
from penstock.client.async_cluster import AsyncCluster
from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchBounds, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import (
    RANGE_BOUNDS,
    AbortedTransaction,
    FetchedBatches,
    RangeGoneError,
    RangeReader,
    TopicRecreatedError,
)
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.connection import connect
from penstock.client.transport.options import ClientOptions
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.messages import delete_records, end_txn, init_producer_id
from penstock.records.batch import iterate_headers
from penstock.records.builder import build_batch, iterate_records
from penstock.records.compression import CODEC_NAMES
from penstock.records.record import Record
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

_NUMBERS = count()


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    started = kafka_broker(folder) if request.param == "kafka" else penstock_broker(folder)
    with started as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    options = ClientOptions(parse_addresses(broker.bootstrap), retry_timeout_ms=15_000)
    with open_cluster(options) as opened:
        yield opened


@pytest.fixture
def at(cluster: Cluster) -> TopicPartition:
    name = f"range.{next(_NUMBERS)}"
    cluster.create_topic(NewTopic(name, 1))
    cluster.topic(name, auto_create=True)  # waits until the broker knows of it
    return TopicPartition(name, 0)


def write(cluster: Cluster, at: TopicPartition, values: Sequence[bytes], codec: int = 0) -> None:
    writer = TopicWriter(cluster, at.topic, codec=codec, batch_bytes_max=4_000)
    for value in values:
        writer.append(None, value)
    writer.flush()


def records_of(
    batches: Iterator[FetchedBatches], from_offset: int, until_offset: int
) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for fetched in batches:
        for position, _ in iterate_headers(fetched.data):
            for record in iterate_records(fetched.data, position):
                if from_offset <= record.offset < until_offset:
                    assert record.offset not in found
                    found[record.offset] = record.value
    return found


def read(
    cluster: Cluster,
    at: TopicPartition,
    from_offset: int,
    until_offset: int,
    *,
    bounds: FetchBounds = RANGE_BOUNDS,
) -> list[bytes | None]:
    reader = RangeReader(
        cluster, at, from_offset, until_offset, is_read_committed=False, bounds=bounds
    )
    return list(records_of(iter(reader), from_offset, until_offset).values())


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_every_range_of_every_codec(cluster: Cluster, at: TopicPartition, codec: int) -> None:
    values = [b"%d-" % number + b"x" * (number % 500) for number in range(400)]
    write(cluster, at, values, codec)
    assert read(cluster, at, 0, 400) == values
    small = FetchBounds(bytes_max=9_000, partition_bytes_max=9_000)
    random_source = random.Random(codec)
    for _ in range(20):
        start, stop = sorted(random_source.randrange(401) for _ in range(2))
        assert read(cluster, at, start, stop, bounds=small) == values[start:stop]


def test_the_id_of_the_topic_and_what_is_told_of_the_log(
    cluster: Cluster, at: TopicPartition
) -> None:
    write(cluster, at, [b"a", b"b"])
    topic = cluster.describe([at.topic])[at.topic]
    assert topic.topic_id is not None
    found = cluster.look_up_offsets({at: LATEST_TIMESTAMP}, is_read_committed=True)[at]
    assert found.offset == 2
    assert found.leader_epoch == topic.partitions[0].leader_epoch
    reader = RangeReader(
        cluster,
        at,
        0,
        2,
        is_read_committed=True,
        expected_topic_id=topic.topic_id,
        leader_epoch=found.leader_epoch,
    )
    (fetched,) = reader
    assert (fetched.log_start_offset, fetched.end_offset, fetched.next_offset) == (0, 2, 2)
    assert len(cluster.cluster_id()) == 22


def test_many_partitions_are_looked_up_at_once(cluster: Cluster) -> None:
    cluster.create_topic(NewTopic("range.wide", 200))
    cluster.topic("range.wide", auto_create=True)
    places = cluster.partitions_of("range.wide")
    for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, 5):
        found = cluster.look_up_offsets(dict.fromkeys(places, timestamp), is_read_committed=True)
        assert {one.offset for one in found.values()} == {-1 if timestamp == 5 else 0}


def delete_before(cluster: Cluster, at: TopicPartition, offset: int) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=(delete_records.DeleteRecordsTopic(name=at.topic, partitions=(partition,)),),
        timeout_ms=10_000,
    )
    call = Call(
        request,
        delete_records.DeleteRecordsResponse,
        lambda answer: answer.topics[0].partitions[0].error_code,
    )
    assert cluster.at(cluster.leaders([at])[at].address, call) == 0


def test_offsets_that_were_removed(cluster: Cluster, at: TopicPartition) -> None:
    write(cluster, at, [b"%d" % number for number in range(10)])
    delete_before(cluster, at, 6)
    assert read(cluster, at, 6, 10) == [b"6", b"7", b"8", b"9"]
    with pytest.raises(RangeGoneError) as told:
        read(cluster, at, 3, 10)
    error = told.value
    assert (error.wanted_offset, error.log_start_offset, error.end_offset) == (3, 6, 10)


def test_offsets_that_were_never_there(broker: RunningBroker, at: TopicPartition) -> None:
    options = ClientOptions(parse_addresses(broker.bootstrap), retry_timeout_ms=1_000)
    with open_cluster(options) as cluster:
        write(cluster, at, [b"a", b"b"])
        for start in (2, 50):  # the end of the log, and behind it
            with pytest.raises(RangeGoneError) as told:
                read(cluster, at, start, 100)
            assert (told.value.wanted_offset, told.value.end_offset) == (start, 2)


def test_a_topic_that_was_made_again(cluster: Cluster, at: TopicPartition) -> None:
    write(cluster, at, [b"a", b"b"])
    before = cluster.describe([at.topic])[at.topic].topic_id
    assert read(cluster, at, 0, 2) == [b"a", b"b"]
    cluster.delete_topic(at.topic)
    while cluster.describe([at.topic]):
        pass
    with pytest.raises(UnknownTopicOrPartitionError):
        read(cluster, at, 0, 2)
    cluster.create_topic(NewTopic(at.topic, 1))
    cluster.topic(at.topic, auto_create=True)
    write(cluster, at, [b"c", b"d"])
    reader = RangeReader(cluster, at, 0, 2, is_read_committed=False, expected_topic_id=before)
    with pytest.raises(TopicRecreatedError):
        list(reader)


def test_a_topic_that_is_made_again_while_it_is_read(cluster: Cluster, at: TopicPartition) -> None:
    """The cluster still believes in the old id; the broker does not know it any more."""
    write(cluster, at, [b"x" * 900 for _ in range(50)])
    small = FetchBounds(bytes_max=5_000, partition_bytes_max=5_000)
    batches = iter(RangeReader(cluster, at, 0, 50, is_read_committed=False, bounds=small))
    next(batches)

    def recreate(other: Cluster) -> None:
        other.delete_topic(at.topic)
        while other.describe([at.topic]):
            pass
        other.create_topic(NewTopic(at.topic, 1))
        other.topic(at.topic, auto_create=True)

    with open_cluster(ClientOptions(tuple(cluster.brokers().values()))) as other:
        recreate(other)
    with pytest.raises(TopicRecreatedError):
        list(batches)


class Transaction:
    """A producer of transactions, just large enough for these tests."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        self._sequence = 0
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000
        )

        def read_identity(
            answer: init_producer_id.InitProducerIdResponse,
        ) -> calls.ProducerIdentity:
            raise_error(answer.error_code, None, name)
            return calls.ProducerIdentity(answer.producer_id, answer.producer_epoch)

        call = Call(request, init_producer_id.InitProducerIdResponse, read_identity, 5)
        self.identity = self._coordinators.ask(name, call, repeatable=True)

    def write(self, at: TopicPartition, *values: bytes) -> None:
        batch = build_batch(
            [Record(value=value) for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += len(values)
        call = calls.send_batches(
            {at: batch}, acks=-1, timeout_ms=5_000, transactional_id=self._name
        )

        def attempt() -> None:
            answer = self._cluster.at(self._cluster.leaders([at])[at].address, call)[at]
            raise_error(answer.error_code, answer.error_message, str(at))

        self._cluster.repeat(attempt, repeatable=True)

    def end(self, *, committed: bool) -> None:
        request = end_txn.EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )
        call = Call(
            request,
            end_txn.EndTxnResponse,
            lambda answer: raise_error(answer.error_code, None, self._name),
        )
        self._coordinators.ask(self._name, call, repeatable=True)


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        pass


def test_who_reads_committed_records_learns_what_was_aborted(
    cluster: Cluster, at: TopicPartition
) -> None:
    def stable_offset() -> int:
        found = cluster.look_up_offsets({at: LATEST_TIMESTAMP}, is_read_committed=True)
        return found[at].offset

    aborted = Transaction(cluster, f"{at.topic}.aborted")
    aborted.write(at, b"0", b"1")
    aborted.end(committed=False)
    wait_until(lambda: stable_offset() == 3)
    committed = Transaction(cluster, f"{at.topic}.committed")
    committed.write(at, b"3", b"4")
    committed.end(committed=True)
    wait_until(lambda: stable_offset() == 6)
    left_open = Transaction(cluster, f"{at.topic}.open")
    left_open.write(at, b"6")
    assert stable_offset() == 6
    assert cluster.find_offsets({at: LATEST_TIMESTAMP})[at] == 7

    batches = list(RangeReader(cluster, at, 0, 6, is_read_committed=True))
    assert batches[-1].end_offset == 6
    found = {one for fetched in batches for one in fetched.aborted}
    assert found == {AbortedTransaction(aborted.identity.producer_id, 0)}
    offsets = [h.base_offset for fetched in batches for _, h in iterate_headers(fetched.data)]
    assert offsets == [0, 2, 3, 5]

    uncommitted = list(RangeReader(cluster, at, 0, 7, is_read_committed=False))
    assert uncommitted[-1].end_offset == 7
    assert not any(fetched.aborted for fetched in uncommitted)
    left_open.end(committed=True)


def test_a_broker_that_is_killed_while_it_is_read(
    broker: RunningBroker, cluster: Cluster, at: TopicPartition
) -> None:
    values = [b"%d-" % number + b"x" * 900 for number in range(300)]
    write(cluster, at, values)
    small = FetchBounds(bytes_max=20_000, partition_bytes_max=20_000)
    reader = RangeReader(cluster, at, 0, 300, is_read_committed=False, bounds=small)
    batches = iter(reader)
    first = [next(batches), next(batches)]
    broker.kill()
    broker.start()
    rest = list(batches)
    assert list(records_of(iter([*first, *rest]), 0, 300).values()) == values
    assert len(rest) > 3


def test_the_asyncio_transport(broker: RunningBroker, cluster: Cluster, at: TopicPartition) -> None:
    write(cluster, at, [b"%d" % number for number in range(20)])

    async def main() -> None:
        addresses = parse_addresses(broker.bootstrap)

        def batches_of(number: int) -> dict[TopicPartition, bytearray]:
            return {at: build_batch([Record(value=b"%d" % number)])}

        async with AsyncCluster(
            addresses, lambda address: connect(address, timeout_seconds=10)
        ) as shared:
            assert await shared.cluster_id() == cluster.cluster_id()
            assert (await shared.describe(None))[at.topic] == cluster.describe(None)[at.topic]
            ends = await shared.look_up_offsets({at: LATEST_TIMESTAMP}, is_read_committed=True)
            assert ends == cluster.look_up_offsets({at: LATEST_TIMESTAMP}, is_read_committed=True)
            leader = (await shared.leaders([at]))[at].address
            answers = await asyncio.gather(
                *(
                    shared.at(
                        leader, calls.send_batches(batches_of(number), acks=-1, timeout_ms=9_000)
                    )
                    for number in range(20, 120)
                )
            )
            # Answers come in the order of the requests, and so do the offsets.
            assert [answer[at].base_offset for answer in answers] == list(range(20, 120))
            large = {at: build_batch([Record(value=b"y" * 900_000)])}
            await shared.at(leader, calls.send_batches(large, acks=-1, timeout_ms=9_000))
            fetched = await shared.at(leader, calls.fetch_batches({at: 120}, RANGE_BOUNDS))
            assert len(fetched[at].records or b"") > 900_000

    asyncio.run(main())
    assert read(cluster, at, 0, 120) == [b"%d" % number for number in range(120)]


def test_the_asyncio_cluster_outlives_a_restart(broker: RunningBroker, at: TopicPartition) -> None:
    async def main() -> None:
        async with AsyncCluster(
            parse_addresses(broker.bootstrap),
            lambda address: connect(address, timeout_seconds=10),
            timeout_seconds=20,
        ) as shared:
            wanted = {at: LATEST_TIMESTAMP}
            before = await shared.look_up_offsets(wanted, is_read_committed=False)
            broker.kill()
            broker.start()  # on this thread: a child lives as long as the thread that started it
            after = await shared.look_up_offsets(wanted, is_read_committed=False)
            assert after[at].offset == before[at].offset == 0

    asyncio.run(main())
