"""Fetch: whole batches from any offset, within limits; sessions, ids, epochs."""

from uuid import UUID, uuid4

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker.handlers.asker import (
    BY_ID,
    NAMED,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    headers_in,
    values_in,
)


@pytest.fixture
def topic(asker: Asker) -> str:
    """Batches of records 0-2, 3, and 4-5."""
    name = fresh_name()
    asker.create(name)
    for values in ([b"0", b"1", b"2"], [b"3"], [b"4", b"5"]):
        assert asker.produce(name, batch_of(*values)).error_code == ErrorCode.NONE
    return name


def only(answer: FetchResponse) -> PartitionData:
    assert answer.error_code == ErrorCode.NONE
    ((partition,),) = (found.partitions for found in answer.responses)
    return partition


# --- Offsets ---


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (1, 0), (2, 0), (3, 3), (4, 4), (5, 4), (6, 6)]
)
def test_the_whole_batch_that_holds_the_offset(
    asker: Asker, topic: str, offset: int, first: int
) -> None:
    found = asker.fetch(topic, offset)
    assert (found.error_code, found.high_watermark, found.log_start_offset) == (0, 6, 0)
    assert found.last_stable_offset == 6
    assert values_in(found) == [str(number).encode() for number in range(first, 6)]


@pytest.mark.parametrize("offset", [-1, 7, 2**62])
def test_an_offset_out_of_range(asker: Asker, topic: str, offset: int) -> None:
    found = asker.fetch(topic, offset)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not found.records
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)


def test_batches_are_what_was_produced_with_offset_and_epoch(asker: Asker, topic: str) -> None:
    headers = headers_in(asker.fetch(topic, 0))
    assert [header.base_offset for header in headers] == [0, 3, 4]
    assert {header.leader_epoch for header in headers} == {0}


def test_topics_and_partitions_that_nobody_has(asker: Asker, topic: str) -> None:
    unknown = fresh_name()
    request = fetch_request({topic: {1: 0, -1: 0}, unknown: {0: 0}})
    answer = asker.ask(request, NAMED, FetchResponse)
    codes = [found.error_code for one in answer.responses for found in one.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


def test_read_committed_has_an_empty_list_of_aborted_transactions(asker: Asker, topic: str) -> None:
    request = fetch_request({topic: {0: 0}}, isolation_level=1)
    assert only(asker.ask(request, NAMED, FetchResponse)).aborted_transactions == ()
    request = fetch_request({topic: {0: 0}}, isolation_level=0)
    assert only(asker.ask(request, NAMED, FetchResponse)).aborted_transactions is None


# --- Limits ---


@pytest.fixture
def large(asker: Asker) -> str:
    """Two partitions with five batches of about 1,000 bytes each."""
    name = fresh_name()
    asker.create(name, partitions=2)
    for partition in (0, 1):
        for number in range(5):
            batch = batch_of(bytes([number]) * 930)
            assert asker.produce(name, batch, partition=partition).base_offset == number
    return name


@pytest.mark.parametrize(("limit", "offsets"), [(2_500, [0, 1]), (1_000, [0]), (10_000, range(5))])
def test_a_partition_gives_at_most_what_it_may(
    asker: Asker, large: str, limit: int, offsets: list[int]
) -> None:
    for bounds in ({"partition_max_bytes": limit}, {"max_bytes": limit}):
        found = asker.fetch(large, 0, **bounds)
        assert [header.base_offset for header in headers_in(found)] == list(offsets)


@pytest.mark.parametrize("limit", [0, 1, 900])
def test_at_least_one_batch_comes_however_small_the_limits(
    asker: Asker, large: str, limit: int
) -> None:
    found = asker.fetch(large, 0, max_bytes=limit, partition_max_bytes=limit)
    assert [header.base_offset for header in headers_in(found)] == [0]


def test_the_limit_of_a_request_is_for_all_its_partitions(asker: Asker, large: str) -> None:
    request = fetch_request({large: {0: 0, 1: 0}}, max_bytes=5_500)
    answer = asker.ask(request, NAMED, FetchResponse)
    found = {data.partition_index: headers_in(data) for data in answer.responses[0].partitions}
    assert len(found[0]) == 5
    assert len(found[1]) == 0


def test_the_exception_for_a_large_batch_is_for_the_first_only(asker: Asker, large: str) -> None:
    request = fetch_request({large: {0: 0, 1: 0}}, max_bytes=1)
    answer = asker.ask(request, NAMED, FetchResponse)
    found = {data.partition_index: headers_in(data) for data in answer.responses[0].partitions}
    assert [len(found[index]) for index in (0, 1)] == [1, 0]


# --- Ids ---


def test_by_id(asker: Asker, topic: str) -> None:
    topic_id, unknown = asker.describe(topic).topic_id, uuid4()
    assert topic_id is not None
    answer = asker.ask(fetch_request({topic_id: {0: 3}}), BY_ID, FetchResponse)
    assert answer.responses[0].topic_id == topic_id
    assert values_in(only(answer)) == [b"3", b"4", b"5"]
    answer = asker.ask(fetch_request({unknown: {0: 0}}), BY_ID, FetchResponse)
    assert answer.responses[0].topic_id == unknown
    assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# --- Epochs ---


def test_the_leader_epoch_is_compared(asker: Asker, topic: str) -> None:
    assert asker.fetch(topic, 0, leader_epoch=0).error_code == ErrorCode.NONE
    assert asker.fetch(topic, 0, leader_epoch=-7, last_fetched_epoch=-7).error_code == 0
    found = asker.fetch(topic, 0, leader_epoch=1)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert not found.records


def test_a_history_that_fits(asker: Asker, topic: str) -> None:
    found = asker.fetch(topic, 3, last_fetched_epoch=0)
    assert found.diverging_epoch.epoch == -1
    assert values_in(found) == [b"3", b"4", b"5"]


def test_a_history_that_is_longer_than_ours(asker: Asker, topic: str) -> None:
    found = asker.fetch(topic, 9, last_fetched_epoch=0)
    assert found.error_code == ErrorCode.NONE
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 6)
    assert not found.records


def test_a_history_where_ours_is_empty(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert asker.fetch(name, 0, last_fetched_epoch=0).diverging_epoch.epoch == -1
    found = asker.fetch(name, 9, last_fetched_epoch=0)
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 0)


def test_a_history_of_an_epoch_that_was_not_yet(asker: Asker, topic: str) -> None:
    found = asker.fetch(topic, 3, last_fetched_epoch=5)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- Replicas ---


@pytest.mark.parametrize("version", [NAMED, BY_ID])
def test_nobody_fetches_as_a_replica(penstock: Asker, version: int) -> None:
    """Kafka without an authorizer believes anybody; this broker has no followers yet."""
    name = fresh_name()
    topic_id = penstock.create(name)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        replica_id=2 if version < 15 else -1,
        replica_state=ReplicaState(replica_id=2 if version >= 15 else -1),
        topics=(FetchTopic(topic=name, topic_id=topic_id, partitions=(partition,)),),
    )
    answer = penstock.ask(request, version, FetchResponse)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.responses == ()


# --- Sessions ---


class Following:
    """A client that keeps a session on the two partitions of a topic."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.name = fresh_name()
        self.topic_id: UUID = asker.create(self.name, partitions=2)
        self.session_id = 0
        self.epoch = 0

    def ask(
        self, offsets: dict[int, int] | None = None, forgotten: tuple[int, ...] = ()
    ) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=fetch_request({self.topic_id: offsets}).topics if offsets else (),
            forgotten_topics_data=(ForgottenTopic(topic_id=self.topic_id, partitions=forgotten),)
            if forgotten
            else (),
        )
        answer = self.asker.ask(request, BY_ID, FetchResponse)
        if answer.error_code == ErrorCode.NONE:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer

    def partitions(self, answer: FetchResponse) -> list[int]:
        return sorted(
            data.partition_index for found in answer.responses for data in found.partitions
        )


@pytest.fixture
def following(asker: Asker) -> Following:
    client = Following(asker)
    answer = client.ask({0: 0, 1: 0})
    assert answer.session_id > 0
    assert client.partitions(answer) == [0, 1]
    return client


def test_a_session_tells_what_changed(following: Following) -> None:
    assert following.ask().responses == ()
    following.asker.produce(following.name, batch_of(b"new"), partition=1)
    answer = following.ask()
    assert following.partitions(answer) == [1]
    assert values_in(only(answer)) == [b"new"]
    # The client did not move: it is sent the records again.
    assert values_in(only(following.ask())) == [b"new"]
    assert following.ask({1: 1}).responses == ()


def test_a_forgotten_partition_is_left_out(following: Following) -> None:
    for partition in (0, 1):
        following.asker.produce(following.name, batch_of(b"new"), partition=partition)
    answer = following.ask(forgotten=(1,))
    assert following.partitions(answer) == [0]


def test_a_session_grows(following: Following) -> None:
    following.ask(forgotten=(1,))
    following.asker.produce(following.name, batch_of(b"new"), partition=1)
    assert following.ask().responses == ()
    assert following.partitions(following.ask({1: 0})) == [1]


def test_the_wrong_epoch(following: Following) -> None:
    following.epoch = 5
    answer = following.ask()
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert answer.responses == ()
    following.epoch = 1
    assert following.ask().error_code == ErrorCode.NONE


def test_a_session_that_nobody_has(following: Following) -> None:
    following.session_id += 1 if following.session_id < 2**31 - 1 else -1
    answer = following.ask()
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert answer.responses == ()


def test_the_end_of_a_session(following: Following) -> None:
    mine = following.session_id
    following.epoch = -1
    answer = following.ask({0: 0})
    assert (answer.session_id, following.partitions(answer)) == (0, [0])
    following.session_id, following.epoch = mine, 1
    assert following.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_topic_deleted_under_a_session(following: Following) -> None:
    """Kafka remembers the name of a session's topic; clients act on either code alike."""
    following.asker.delete(following.name)
    answer = following.ask()
    codes = {found.error_code for one in answer.responses for found in one.partitions}
    assert codes == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if following.asker.is_kafka
        else ErrorCode.UNKNOWN_TOPIC_ID
    }
