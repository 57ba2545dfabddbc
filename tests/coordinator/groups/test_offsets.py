"""Offsets and the administration of groups: the corners that the conversations do not show."""

from uuid import UUID

import pytest

from penstock.coordinator.groups.offsets import cleanup as offset_cleanup
from penstock.core.limits import COORDINATOR_PORTION_RECORDS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.coordinator.groups.talk import Talk


def commit_all(talk: Talk, group: str, count: int) -> None:
    """One offset in each partition of t."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(count)
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    talk.rig.answer(OffsetCommitRequest(group_id=group, member_id="", topics=(topic,)), 9)


def test_metadata_that_is_too_long_fails_for_its_partition_alone() -> None:
    talk = Talk(offset_metadata_characters_max=3)
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=i, committed_offset=1, committed_metadata=metadata
        )
        for i, metadata in enumerate(("abc", "abcd", None))
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    response = talk.rig.answer(OffsetCommitRequest(group_id="g", member_id="", topics=(topic,)), 9)
    assert isinstance(response, OffsetCommitResponse)
    codes = [partition.error_code for partition in response.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert talk.rig.shard.state.offsets.get("g", "t", 1) is None


def test_an_offset_of_a_deleted_topic_of_the_same_name_is_not_shown() -> None:
    talk = Talk()
    old, new = UUID(int=1), UUID(int=2)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(topic_id=old, name="t", partitions=(partition,))
    request = OffsetCommitRequest(group_id="g", member_id="", topics=(topic,))
    committed = talk.rig.answer(request, 10)
    assert isinstance(committed, OffsetCommitResponse)
    assert committed.topics[0].topic_id == old
    offsets = []
    for topic_id in (old, new, None):
        asked = OffsetFetchRequestTopics(topic_id=topic_id, name="t", partition_indexes=(0,))
        group = OffsetFetchRequestGroup(group_id="g", topics=(asked,))
        response = talk.rig.answer(OffsetFetchRequest(groups=(group,)), 10)
        assert isinstance(response, OffsetFetchResponse)
        offsets.append(response.groups[0].topics[0].partitions[0].committed_offset)
    assert offsets == [5, -1, 5]


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    talk = Talk()
    assert talk.ask("fetch", group="missing").groups[0].topics == ()
    some = talk.ask("fetch", group="missing", topic="t", partitions="3")
    assert some.groups[0].topics[0].partitions[0].committed_offset == -1
    assert some.groups[0].error_code is ErrorCode.NONE


def test_a_transaction_of_an_unknown_member_cannot_commit_offsets() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    for member, generation, expected in (
        (leader, 1, ErrorCode.NONE),
        (leader, 2, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        # An old producer without a member id is accepted, as in Kafka.
        ("", -1, ErrorCode.NONE),
    ):
        response = talk.ask(
            "commit-in-transaction", producer=7, member=member, generation=generation, offset=1
        )
        assert response.topics[0].partitions[0].error_code is expected
    missing = talk.ask(
        "commit-in-transaction", group="missing", producer=7, member="m", generation=1, offset=1
    )
    assert missing.topics[0].partitions[0].error_code is ErrorCode.ILLEGAL_GENERATION
    nameless = talk.ask("commit-in-transaction", group="", producer=7, offset=1)
    assert nameless.topics[0].partitions[0].error_code is ErrorCode.INVALID_GROUP_ID


def test_offsets_of_another_kind_of_group_stay_while_it_has_members() -> None:
    talk = Talk()
    talk.stable("a", type="connect")
    assert talk.ask("delete-offsets").error_code is ErrorCode.NON_EMPTY_GROUP
    assert talk.ask("delete-offsets", group="missing").error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.ask("delete-offsets", group="").error_code is ErrorCode.INVALID_GROUP_ID


def test_a_group_with_members_cannot_be_deleted() -> None:
    talk = Talk()
    talk.stable("a")
    results = talk.ask("delete", group="g,missing,").results
    codes = [result.error_code for result in results]
    assert codes == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]


def test_a_deleted_group_leaves_nothing_behind() -> None:
    talk = Talk()
    talk.ask("commit", offset=1)
    talk.ask("commit-in-transaction", producer=7, partition=1, offset=1)
    talk.ask("join", client="a")
    talk.ask("delete")
    state = talk.rig.shard.state
    assert (state.classic, state.stored_classic, state.offsets.group_ids()) == ({}, {}, set())
    assert [key for key in talk.rig.timers if "g" in str(key)] == []


def test_groups_are_listed_by_state_and_type() -> None:
    talk = Talk()
    talk.stable("a")
    talk.ask("commit", group="simple", offset=1)
    assert [g.group_id for g in talk.ask("list").groups] == ["g", "simple"]
    assert [g.group_id for g in talk.ask("list", states="stable").groups] == ["g"]
    assert [g.group_id for g in talk.ask("list", states="Empty,Dead").groups] == ["simple"]
    assert len(talk.ask("list", types="CLASSIC").groups) == 2
    assert talk.ask("list", types="consumer").groups == ()


def test_a_group_that_rebalances_is_described_without_metadata() -> None:
    talk = Talk()
    talk.stable("a")
    talk.say("join", client="b", v=3, topics="t")
    (group,) = talk.ask("describe").groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


def test_offsets_of_a_deleted_topic_go_in_portions() -> None:
    talk = Talk()
    count = COORDINATOR_PORTION_RECORDS_MAX + 10
    talk.rig = type(talk.rig)(talk.words, compares=False)
    talk.rig.set_topics({"t": count})
    commit_all(talk, "g", count)
    written = len(talk.rig.log)
    talk.rig.set_topics({})
    assert len(talk.rig.log) - written == COORDINATOR_PORTION_RECORDS_MAX
    # The topic is recreated, and a new offset is committed before the second portion.
    talk.rig.set_topics({"t": count})
    talk.ask("commit", partition=count - 1, offset=77)
    talk.rig.advance(0)
    assert set(talk.rig.shard.state.offsets.of_group("g")["t"]) == {count - 1}


def test_many_groups_are_checked_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_cleanup, "GROUPS_PER_PASS_MAX", 3)
    talk = Talk(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=5_000)
    count = 10
    for number in range(count):
        commit_all(talk, f"g{number}", 1)
    talk.rig.advance(4_999)
    assert len(talk.rig.shard.state.classic) == count
    talk.rig.advance(1)
    assert talk.rig.shard.state.classic == {}
    assert talk.rig.shard.state.offsets.group_ids() == set()


def test_offsets_of_a_group_with_members_of_unknown_topics_do_not_expire() -> None:
    talk = Talk(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=2_000)
    ticket = talk.say("join", client="a", v=3, type="connect", session=60_000)
    talk.rig.advance(3_000)
    member = talk.reply(ticket).member_id
    talk.say("sync", member=member, generation=1)
    talk.ask("commit", member=member, generation=1, offset=1)
    talk.rig.advance(20_000)
    assert talk.rig.shard.state.offsets.get("g", "t", 0) is not None


def test_a_transaction_keeps_its_group_from_being_deleted_by_age() -> None:
    talk = Talk(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=2_000)
    talk.ask("commit-in-transaction", producer=7, offset=1)
    talk.rig.advance(10_000)
    assert "g" in talk.rig.shard.state.classic
