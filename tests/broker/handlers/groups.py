"""Conversations with a group coordinator that tests of several handlers repeat.

Everything works the same against Penstock and Apache Kafka. `FAST` is a broker whose new groups do
not wait for more members, as the Kafka of these tests.
"""

import time
from collections.abc import Mapping

from penstock.core.settings.tree import Settings, settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from tests.broker.handlers.asker import SECONDS_MAX, Asker

SUBSCRIPTION = bytes.fromhex("0000 00000000 ffffffff")
"""Version 0, to no topic, without user data. Kafka never ends a rebalance that has others."""
RANGE = (join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),)


def fast_settings() -> Settings:
    """A broker in memory whose groups begin at once."""
    return settings_of(
        {
            "node.storage": "memory",
            "listener.port": 0,
            "groups.initial_rebalance_delay_ms": 0,
        }
    )


def find(asker: Asker, key: str, key_type: int = 0) -> find_coordinator.Coordinator:
    """The coordinator of a key; Kafka needs a while to make its topic."""
    request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        (found,) = asker.ask(request, 6, find_coordinator.FindCoordinatorResponse).coordinators
        if found.error_code == ErrorCode.NONE or not asker.is_kafka:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def ready(asker: Asker, group: str) -> None:
    """Wait until the group's coordinator answers."""
    find(asker, group)
    asker.until(lambda: fetch_offsets(asker, group, {}).error_code == ErrorCode.NONE)


def join_request(group: str, member_id: str = "", **fields: object) -> join_group.JoinGroupRequest:
    """A member with one protocol."""
    values: dict[str, object] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    return join_group.JoinGroupRequest(**(values | fields))  # type: ignore[arg-type]


def join(asker: Asker, group: str, version: int = 9) -> join_group.JoinGroupResponse:
    """Become a member, with a second request where the first gives the id."""
    fields: dict[str, object] = {} if version > 0 else {"rebalance_timeout_ms": -1}
    answer = asker.ask(join_request(group, "", **fields), version, join_group.JoinGroupResponse)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = join_request(group, answer.member_id, **fields)
        answer = asker.ask(request, version, join_group.JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


def sync(
    asker: Asker, group: str, joined: join_group.JoinGroupResponse, version: int = 5
) -> sync_group.SyncGroupResponse:
    """Give the assignment as the leader, or get it."""
    is_leader = joined.leader == joined.member_id
    request = sync_group.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=tuple(
            sync_group.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")
            for member in joined.members
        )
        if is_leader
        else (),
    )
    return asker.ask(request, version, sync_group.SyncGroupResponse)


def beat(
    asker: Asker, group: str, joined: join_group.JoinGroupResponse, version: int = 4
) -> ErrorCode:
    """One heartbeat."""
    request = heartbeat.HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )
    return asker.ask(request, version, heartbeat.HeartbeatResponse).error_code


def leave(
    asker: Asker, group: str, member_id: str, version: int = 5
) -> leave_group.LeaveGroupResponse:
    """Leave a group."""
    if version < 3:
        request = leave_group.LeaveGroupRequest(group_id=group, member_id=member_id)
    else:
        member = leave_group.MemberIdentity(member_id=member_id)
        request = leave_group.LeaveGroupRequest(group_id=group, members=(member,))
    return asker.ask(request, version, leave_group.LeaveGroupResponse)


def commit_request(
    group: str, offsets: Mapping[tuple[str, int], int], **fields: object
) -> offset_commit.OffsetCommitRequest:
    """Offsets of a consumer that is no member, unless the fields say otherwise."""
    topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata="note"
            )
        )
    values: dict[str, object] = {
        "group_id": group,
        "member_id": "",
        "topics": tuple(
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    }
    return offset_commit.OffsetCommitRequest(**(values | fields))  # type: ignore[arg-type]


def commit(
    asker: Asker, group: str, offsets: Mapping[tuple[str, int], int], **fields: object
) -> dict[tuple[str, int], ErrorCode]:
    """Commit by name; the code of each partition."""
    request = commit_request(group, offsets, **fields)
    answer = asker.ask(request, 9, offset_commit.OffsetCommitResponse)
    return {
        (topic.name, found.partition_index): found.error_code
        for topic in answer.topics
        for found in topic.partitions
    }


def fetch_offsets(
    asker: Asker, group: str, topics: Mapping[str, tuple[int, ...]] | None, version: int = 9
) -> offset_fetch.OffsetFetchResponseGroup:
    """What a group committed, by name; None asks for everything."""
    request = offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else tuple(
                    offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ),
            ),
        )
    )
    (found,) = asker.ask(request, version, offset_fetch.OffsetFetchResponse).groups
    return found
