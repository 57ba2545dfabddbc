"""Permissions that the APIs of records need; a denied request changes nothing.

The outcomes are those of Apache Kafka 4.3.1 with the same rules as ACLs (`tests/access_matrix`).
"""

from uuid import UUID

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    write_txn_markers,
)
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers.asker import (
    BY_ID,
    NAMED,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    list_offsets_request,
    values_in,
)

TOPIC = ResourceType.TOPIC
CLUSTER_ACTION: Rule = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
ALTER: Rule = (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOBODY = UUID("00000000-0000-4000-8000-000000000001")
MANY = 300
"""Partitions of a request that is handled in slices."""


@pytest.fixture
def topic(asker: Asker, rules: RuleSet) -> str:
    name = fresh_name()
    asker.create(name)
    return name


def end_of(asker: Asker, rules: RuleSet, topic: str) -> int:
    """Where the log ends now, whatever the rules are."""
    rules.all_but()
    return asker.list_offsets(topic, {0: -1})[0].offset


# --- Fetch ---


def fetch_codes(asker: Asker, request: fetch.FetchRequest, version: int) -> list[ErrorCode]:
    answer = asker.ask(request, version, fetch.FetchResponse)
    assert answer.error_code == ErrorCode.NONE
    return [data.error_code for found in answer.responses for data in found.partitions]


def test_a_consumer_needs_read(asker: Asker, rules: RuleSet, topic: str) -> None:
    asker.produce(topic, batch_of(b"a"))
    rules.only((Operation.READ, TOPIC, topic))
    assert values_in(asker.fetch(topic, 0)) == [b"a"]
    assert rules.denials == []
    rules.all_but((Operation.READ, TOPIC, topic))
    denied = asker.fetch(topic, 0)
    assert denied.error_code == NO_TOPIC
    assert (denied.high_watermark, denied.last_stable_offset, denied.log_start_offset) == (-1,) * 3
    assert not denied.records
    assert rules.denials == [(Operation.READ, TOPIC, topic)]


def test_a_denied_consumer_does_not_wait_nor_learn_which_topics_exist(
    asker: Asker, rules: RuleSet
) -> None:
    missing = fresh_name()
    rules.only()
    assert asker.fetch(missing, 0, wait_ms=10_000).error_code == NO_TOPIC
    rules.only((Operation.READ, TOPIC, missing))
    assert asker.fetch(missing, 0).error_code == UNKNOWN


def test_a_fetch_by_id(asker: Asker, rules: RuleSet) -> None:
    topic_id = asker.create(fresh_name())
    rules.only()
    request = fetch_request({NOBODY: {0: 0}, topic_id: {0: 0}})
    assert fetch_codes(asker, request, BY_ID) == [ErrorCode.UNKNOWN_TOPIC_ID, NO_TOPIC]


def test_each_topic_is_asked_for_once(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    asker.create(name, MANY)
    rules.only()
    request = fetch_request({name: dict.fromkeys(range(MANY), 0)})
    assert fetch_codes(asker, request, NAMED) == [NO_TOPIC] * MANY
    assert rules.denials == [(Operation.READ, TOPIC, name)]


def test_a_session_is_authorized_at_each_fetch(asker: Asker, rules: RuleSet, topic: str) -> None:
    asker.produce(topic, batch_of(b"a"))
    rules.only((Operation.READ, TOPIC, topic))
    begun = fetch_request({topic: {0: 0}}, session_epoch=0)
    session_id = asker.ask(begun, NAMED, fetch.FetchResponse).session_id
    assert session_id > 0
    rules.only()
    no_topics: dict[str, dict[int, int]] = {}
    for epoch in (1, 2):
        again = fetch_request(no_topics, session_id=session_id, session_epoch=epoch)
        assert fetch_codes(asker, again, NAMED) == [NO_TOPIC]
    rules.only((Operation.READ, TOPIC, topic))
    again = fetch_request(no_topics, session_id=session_id, session_epoch=3)
    answer = asker.ask(again, NAMED, fetch.FetchResponse)
    assert values_in(answer.responses[0].partitions[0]) == [b"a"]


def as_replica(topic: str, topic_id: UUID, version: int) -> fetch.FetchRequest:
    """A fetch of an existing partition, one that does not exist, and an unknown topic."""
    asked = tuple(
        fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000)
        for index in (0, 7)
    )
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=0,
        replica_id=2 if version < 15 else -1,
        replica_state=fetch.ReplicaState(replica_id=2 if version >= 15 else -1),
        topics=(
            fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=asked),
            fetch.FetchTopic(topic="nothing", topic_id=NOBODY, partitions=asked[:1]),
        ),
    )


@pytest.mark.parametrize("version", [NAMED, 13, BY_ID])
def test_a_replica_needs_cluster_action(asker: Asker, rules: RuleSet, version: int) -> None:
    """CVE-2018-1288. READ on the topics is not enough, and is not needed."""
    name = fresh_name()
    request = as_replica(name, asker.create(name), version)
    rules.only((Operation.READ, TOPIC, name), (Operation.READ, TOPIC, "nothing"))
    assert fetch_codes(asker, request, version) == [NO_TOPIC] * 3
    assert rules.denials == [CLUSTER_ACTION]
    rules.only(CLUSTER_ACTION)
    missing = UNKNOWN if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, UNKNOWN, missing]
    assert fetch_codes(asker, request, version) == codes


# --- ListOffsets, OffsetForLeaderEpoch ---


def test_offsets_need_describe(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only((Operation.DESCRIBE, TOPIC, topic))
    assert asker.list_offsets(topic, {0: -1})[0].error_code == ErrorCode.NONE
    rules.only()
    found = asker.list_offsets(topic, {0: -1, 9: -1})
    assert {one.error_code for one in found.values()} == {NO_TOPIC}
    assert found[0].offset == -1
    assert rules.denials == [(Operation.DESCRIBE, TOPIC, topic)]


@pytest.mark.parametrize("topic_name", ["", "missing"])
def test_a_denial_comes_before_other_errors_of_list_offsets(
    asker: Asker, rules: RuleSet, topic: str, topic_name: str
) -> None:
    """Duplicates and times that the version does not know."""
    request = list_offsets_request(topic_name or topic, {0: -99})
    twice = list_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=request.topics + request.topics
    )
    rules.only()
    for asked in (request, twice):
        answer = asker.ask(asked, 7, list_offsets.ListOffsetsResponse)
        codes = [part.error_code for found in answer.topics for part in found.partitions]
        assert set(codes) == {NO_TOPIC}


@pytest.mark.parametrize("is_broker", [False, True])
def test_epochs_need_describe_or_cluster_action(
    asker: Asker, rules: RuleSet, topic: str, is_broker: bool
) -> None:
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=tuple(
            offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=(asked,))
            for name in (topic, "nothing")
        ),
    )

    def codes() -> list[ErrorCode]:
        answer = asker.ask(request, 4, offset_for_leader_epoch.OffsetForLeaderEpochResponse)
        return [found.partitions[0].error_code for found in answer.topics]

    rules.only(*([CLUSTER_ACTION] if is_broker else [(Operation.DESCRIBE, TOPIC, topic)]))
    assert codes() == [ErrorCode.NONE, UNKNOWN if is_broker else NO_TOPIC]
    rules.only()
    assert codes() == [NO_TOPIC, NO_TOPIC]
    assert CLUSTER_ACTION not in rules.denials


# --- DeleteRecords, DescribeProducers ---


def test_deleting_records_needs_delete(asker: Asker, rules: RuleSet, topic: str) -> None:
    asker.produce(topic, batch_of(b"a"))
    names = (topic, "nothing")
    request = delete_records.DeleteRecordsRequest(
        topics=tuple(
            delete_records.DeleteRecordsTopic(
                name=name,
                partitions=(delete_records.DeleteRecordsPartition(partition_index=0, offset=-1),),
            )
            for name in names
        ),
        timeout_ms=1_000,
    )

    def found() -> dict[str, tuple[ErrorCode, int]]:
        answer = asker.ask(request, 2, delete_records.DeleteRecordsResponse)
        return {
            one.name: (one.partitions[0].error_code, one.partitions[0].low_watermark)
            for one in answer.topics
        }

    rules.all_but(*((Operation.DELETE, TOPIC, name) for name in names))
    assert found() == dict.fromkeys(names, (NO_TOPIC, -1))
    rules.all_but()
    assert asker.list_offsets(topic, {0: -2})[0].offset == 0
    rules.only((Operation.DELETE, TOPIC, topic))
    assert found() == {topic: (ErrorCode.NONE, 1), "nothing": (NO_TOPIC, -1)}


def test_producers_need_read(asker: Asker, rules: RuleSet, topic: str) -> None:
    names = (topic, "nothing", "b@d")
    request = describe_producers.DescribeProducersRequest(
        topics=tuple(
            describe_producers.TopicRequest(name=name, partition_indexes=(0,)) for name in names
        )
    )

    def found() -> list[describe_producers.PartitionResponse]:
        answer = asker.ask(request, 0, describe_producers.DescribeProducersResponse)
        return [one.partitions[0] for one in answer.topics]

    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    rules.only()
    denied = found()
    assert [one.error_code for one in denied] == [NO_TOPIC, NO_TOPIC, invalid]
    assert denied[0].error_message == "Topic authorization failed."
    rules.only((Operation.READ, TOPIC, topic), (Operation.READ, TOPIC, "nothing"))
    assert [one.error_code for one in found()] == [ErrorCode.NONE, UNKNOWN, invalid]


# --- WriteTxnMarkers ---


@pytest.mark.parametrize("rule", [ALTER, CLUSTER_ACTION])
@pytest.mark.parametrize("count", [1, MANY])
def test_markers_need_alter_or_cluster_action(
    asker: Asker, rules: RuleSet, rule: Rule, count: int
) -> None:
    name = fresh_name()
    asker.create(name, count)
    request = write_txn_markers.WriteTxnMarkersRequest(
        markers=(
            write_txn_markers.WritableTxnMarker(
                producer_id=7,
                producer_epoch=0,
                transaction_result=False,
                coordinator_epoch=0,
                topics=(
                    write_txn_markers.WritableTxnMarkerTopic(
                        name=name, partition_indexes=tuple(range(count))
                    ),
                ),
            ),
        )
    )

    def codes() -> list[ErrorCode]:
        answer = asker.ask(request, 1, write_txn_markers.WriteTxnMarkersResponse)
        return [part.error_code for part in answer.markers[0].topics[0].partitions]

    rules.all_but(ALTER, CLUSTER_ACTION)
    assert codes() == [NO_CLUSTER] * count
    assert rules.denials == [CLUSTER_ACTION]
    assert end_of(asker, rules, name) == 0
    rules.only(rule)
    assert codes() == [ErrorCode.NONE] * count
    assert rules.denials == []
    assert end_of(asker, rules, name) == 1
