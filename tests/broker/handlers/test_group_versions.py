"""Every version of every group API does its part in the life of a group, on both brokers.

Groups cannot be tested with single requests as in `test_versions`: a committing member must have
joined.
"""

from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    join_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from penstock.testing import Broker
from tests.broker.handlers import groups
from tests.broker.handlers.asker import Asker, fresh_name

NONE = ErrorCode.NONE


def versions_of(key: ApiKey) -> list[int]:
    versions = HANDLERS[key].versions
    return list(range(versions.lowest, versions.highest + 1))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(groups.fast_settings()) as running:
        yield running


@pytest.fixture
def group(asker: Asker) -> str:
    name = fresh_name("group")
    groups.ready(asker, name)
    return name


@pytest.mark.parametrize("version", versions_of(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(asker: Asker, group: str, version: int) -> None:
    if version < 4:
        request = find_coordinator.FindCoordinatorRequest(key=group)
        answer = asker.ask(request, version, find_coordinator.FindCoordinatorResponse)
        assert (answer.error_code, answer.port) == (NONE, asker.port)
        assert answer.error_message == ("NONE" if version else None)
    else:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=(group, "other"))
        answer = asker.ask(request, version, find_coordinator.FindCoordinatorResponse)
        assert [(one.key, one.error_code, one.port) for one in answer.coordinators] == [
            (group, NONE, asker.port),
            ("other", NONE, asker.port),
        ]


@pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
def test_join_group(asker: Asker, group: str, version: int) -> None:
    joined = groups.join(asker, group, version)
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [member.metadata for member in joined.members] == [groups.SUBSCRIPTION]


@pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
def test_join_group_refused(asker: Asker, group: str, version: int) -> None:
    fields: dict[str, object] = {} if version > 0 else {"rebalance_timeout_ms": -1}
    for name, member_id, code in (
        ("", "", ErrorCode.INVALID_GROUP_ID),
        (group, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        request = groups.join_request(name, member_id, **fields)
        answer = asker.ask(request, version, join_group.JoinGroupResponse)
        assert (answer.error_code, answer.member_id) == (code, member_id)
        assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions_of(ApiKey.SYNC_GROUP))
def test_sync_group(asker: Asker, group: str, version: int) -> None:
    joined = groups.join(asker, group)
    answer = groups.sync(asker, group, joined, version)
    assert (answer.error_code, answer.assignment) == (NONE, b"mine")
    assert answer.protocol_name == ("range" if version >= 5 else None)
    answer = groups.sync(asker, "", joined, version)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions_of(ApiKey.HEARTBEAT))
def test_heartbeat(asker: Asker, group: str, version: int) -> None:
    joined = groups.join(asker, group)
    groups.sync(asker, group, joined)
    assert groups.beat(asker, group, joined, version) == NONE
    assert groups.beat(asker, "", joined, version) == ErrorCode.INVALID_GROUP_ID
    assert groups.beat(asker, "nobody", joined, version) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions_of(ApiKey.LEAVE_GROUP))
def test_leave_group(asker: Asker, group: str, version: int) -> None:
    joined = groups.join(asker, group)
    answer = groups.leave(asker, group, "nobody", version)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version < 3:
        assert answer.error_code == unknown
    else:
        assert answer.error_code == NONE
        assert [member.error_code for member in answer.members] == [unknown]
    answer = groups.leave(asker, group, joined.member_id, version)
    assert answer.error_code == NONE
    assert [member.error_code for member in answer.members] == ([NONE] if version >= 3 else [])
    assert groups.leave(asker, "", "x", version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_COMMIT))
def test_offset_commit(asker: Asker, group: str, version: int) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    joined = groups.join(asker, group)
    groups.sync(asker, group, joined)
    partitions = tuple(
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=42, committed_metadata="note"
        )
        for index in (0, 7)
    )
    known, unknown = (
        offset_commit.OffsetCommitRequestTopic(
            name="" if version >= 10 else topic_name,
            topic_id=an_id if version >= 10 else None,
            partitions=partitions,
        )
        for topic_name, an_id in ((name, topic_id), ("nobody", UUID(int=99)))
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=(known, unknown),
    )
    answer = asker.ask(request, version, offset_commit.OffsetCommitResponse)
    codes = {
        (topic.topic_id or topic.name, found.partition_index): found.error_code
        for topic in answer.topics
        for found in topic.partitions
    }
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    no_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else missing
    assert codes == {
        (known.topic_id or name, 0): NONE,
        (known.topic_id or name, 7): missing,
        (unknown.topic_id or "nobody", 0): no_topic,
        (unknown.topic_id or "nobody", 7): no_topic,
    }
    (topic,) = groups.fetch_offsets(asker, group, {name: (0,)}).topics
    assert (topic.partitions[0].committed_offset, topic.partitions[0].metadata) == (42, "note")


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FETCH))
def test_offset_fetch(asker: Asker, group: str, version: int) -> None:
    name, nobody = fresh_name(), UUID(int=99)
    topic_id = asker.create(name)
    groups.commit(asker, group, {(name, 0): 42})
    if version < 8:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group,
            topics=(offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=(0, 1)),),
        )
        answer = asker.ask(request, version, offset_fetch.OffsetFetchResponse)
        assert answer.error_code == NONE
        (old_topic,) = answer.topics
        found = [(one.committed_offset, one.error_code) for one in old_topic.partitions]
        assert found == [(42, NONE), (-1, NONE)]
        return
    topics = [
        offset_fetch.OffsetFetchRequestTopics(
            name="" if version >= 10 else name,
            topic_id=topic_id if version >= 10 else None,
            partition_indexes=(0, 1),
        )
    ]
    if version >= 10:
        topics.append(
            offset_fetch.OffsetFetchRequestTopics(topic_id=nobody, partition_indexes=(0,))
        )
    request = offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=tuple(topics)),
            offset_fetch.OffsetFetchRequestGroup(group_id="nobody", topics=None),
        )
    )
    answer = asker.ask(request, version, offset_fetch.OffsetFetchResponse)
    first, second = sorted(answer.groups, key=lambda one: one.group_id)
    assert (second.group_id, second.error_code, second.topics) == ("nobody", NONE, ())
    offsets = {
        (topic.topic_id or topic.name, one.partition_index): (one.committed_offset, one.error_code)
        for topic in first.topics
        for one in topic.partitions
    }
    where = topic_id if version >= 10 else name
    expected = {(where, 0): (42, NONE), (where, 1): (-1, NONE)}
    if version >= 10:
        expected[nobody, 0] = (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    assert offsets == expected


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_offset_fetch_of_everything(asker: Asker, group: str, version: int) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    groups.commit(asker, group, {(name, 0): 42})
    if version < 8:
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None)
        answer = asker.ask(request, version, offset_fetch.OffsetFetchResponse)
        assert [topic.name for topic in answer.topics] == [name]
        return
    request = offset_fetch.OffsetFetchRequest(
        groups=(offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None),)
    )
    (found,) = asker.ask(request, version, offset_fetch.OffsetFetchResponse).groups
    where = topic_id if version >= 10 else name
    assert [topic.topic_id or topic.name for topic in found.topics] == [where]


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(asker: Asker, group: str, version: int) -> None:
    joined = groups.join(asker, group)
    groups.sync(asker, group, joined)
    request = describe_groups.DescribeGroupsRequest(
        groups=(group, "nobody"), include_authorized_operations=version >= 3
    )
    answer = asker.ask(request, version, describe_groups.DescribeGroupsResponse)
    one, nobody = sorted(answer.groups, key=lambda described: described.group_id)
    assert (one.error_code, one.group_state) == (NONE, "Stable")
    assert (one.protocol_type, one.protocol_data) == ("consumer", "range")
    (member,) = one.members
    assert (member.member_id, member.client_host) == (joined.member_id, "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (groups.SUBSCRIPTION, b"mine")
    assert one.authorized_operations == (3400 if version >= 3 else -2147483648)
    assert nobody.group_state == "Dead"
    assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_GROUPS))
def test_list_groups(asker: Asker, group: str, version: int) -> None:
    groups.join(asker, group)
    request = list_groups.ListGroupsRequest(
        states_filter=("CompletingRebalance",) if version >= 4 else (),
        types_filter=("classic",) if version >= 5 else (),
    )
    answer = asker.ask(request, version, list_groups.ListGroupsResponse)
    assert answer.error_code == NONE
    found = {one.group_id: one for one in answer.groups}
    assert found[group].protocol_type == "consumer"
    assert found[group].group_state == ("CompletingRebalance" if version >= 4 else "")
    assert found[group].group_type == ("classic" if version >= 5 else "")


def test_a_commit_of_nothing_makes_no_group(asker: Asker, group: str) -> None:
    assert groups.commit(asker, group, {}) == {}
    answer = asker.ask(list_groups.ListGroupsRequest(), 5, list_groups.ListGroupsResponse)
    assert group not in {one.group_id for one in answer.groups}


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_GROUPS))
def test_delete_groups(asker: Asker, group: str, version: int) -> None:
    name, busy = fresh_name(), fresh_name("group")
    asker.create(name)
    groups.commit(asker, group, {(name, 0): 42})
    groups.join(asker, busy)
    request = delete_groups.DeleteGroupsRequest(groups_names=(group, busy, "nobody"))
    answer = asker.ask(request, version, delete_groups.DeleteGroupsResponse)
    assert {one.group_id: one.error_code for one in answer.results} == {
        group: NONE,
        busy: ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert groups.fetch_offsets(asker, group, None).topics == ()


@pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_DELETE))
def test_offset_delete(asker: Asker, group: str, version: int) -> None:
    name = fresh_name()
    asker.create(name, partitions=2)
    groups.commit(asker, group, {(name, 0): 42, (name, 1): 43})
    topics = tuple(
        offset_delete.OffsetDeleteRequestTopic(
            name=topic,
            partitions=tuple(
                offset_delete.OffsetDeleteRequestPartition(partition_index=index)
                for index in indexes
            ),
        )
        for topic, indexes in ((name, (0, 7)), ("nobody", (0,)))
    )
    request = offset_delete.OffsetDeleteRequest(group_id=group, topics=topics)
    answer = asker.ask(request, version, offset_delete.OffsetDeleteResponse)
    assert answer.error_code == NONE
    found = {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {(name, 0): NONE, (name, 7): missing, ("nobody", 0): missing}
    (topic,) = groups.fetch_offsets(asker, group, {name: (0, 1)}).topics
    assert [one.committed_offset for one in topic.partitions] == [-1, 43]
    for missing_group, code in (
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
    ):
        request = offset_delete.OffsetDeleteRequest(group_id=missing_group, topics=topics)
        answer = asker.ask(request, version, offset_delete.OffsetDeleteResponse)
        assert answer.error_code == code


def test_an_offset_delete_of_very_many_partitions(asker: Asker, group: str) -> None:
    """Guards pieces: 60,000 partitions were looked up in one turn of the event loop."""
    name = fresh_name()
    asker.create(name, partitions=2)
    groups.commit(asker, group, {(name, 0): 42, (name, 1): 43})
    partitions = tuple(
        offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in range(1_201)
    )
    topic = offset_delete.OffsetDeleteRequestTopic(name=name, partitions=partitions)
    request = offset_delete.OffsetDeleteRequest(group_id=group, topics=(topic,))
    (found,) = asker.ask(request, 0, offset_delete.OffsetDeleteResponse).topics
    assert len(found.partitions) == len(partitions)
    codes = {one.partition_index: one.error_code for one in found.partitions}
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {0: NONE, 1: NONE} | dict.fromkeys(range(2, 1_201), missing)
    request = offset_delete.OffsetDeleteRequest(group_id="nobody", topics=(topic,))
    answer = asker.ask(request, 0, offset_delete.OffsetDeleteResponse)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


@pytest.mark.parametrize("version", versions_of(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_consumer_group_heartbeat_and_describe(asker: Asker, group: str, version: int) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    member_id = "0123456789abcdef012345"
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=(name,),
        topic_partitions=(),
    )
    joined = asker.ask(request, version, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
    assert (joined.error_code, joined.member_id) == (NONE, member_id)
    assert joined.member_epoch > 0
    assert joined.assignment is not None
    assert [topic.topic_id for topic in joined.assignment.topic_partitions] == [topic_id]
    describe = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group, "nobody", ""), include_authorized_operations=True
    )
    answer = asker.ask(describe, version, consumer_group_describe.ConsumerGroupDescribeResponse)
    found = {one.group_id: one for one in answer.groups}
    one = found[group]
    assert one.error_code == NONE
    assert one.authorized_operations == 3400
    assert [member.member_id for member in one.members] == [member_id]
    assert one.members[0].client_host == "/127.0.0.1"
    assert found["nobody"].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found[""].error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions_of(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_consumer_group_heartbeat_refused(asker: Asker, group: str, version: int) -> None:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="", member_id="m", member_epoch=1
    )
    answer = asker.ask(request, version, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
