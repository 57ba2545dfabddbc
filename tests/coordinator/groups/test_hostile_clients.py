"""Hostile requests to a group coordinator that must not affect other groups.

A request that the shard cannot handle fails the shard, and all its clients must retry; so each of
these is answered, and its records can be written.
"""

import pytest

from penstock.coordinator.groups.classic import join as classic_join
from penstock.coordinator.groups.classic import rebalance as classic_rebalance
from penstock.coordinator.groups.state.classic_group import ClassicState
from penstock.coordinator.shard import Asked
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.coordinator.groups.talk import Talk

STRING_BYTES_MAX = 32_767
INT64_MAX = 2**63 - 1
NAME_BYTES = 1
"""Of the protocol that the members here have."""


def join(
    metadata: bytes = b"", *, instance: str | None = None, group: str = "g", member_id: str = ""
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="custom",
        protocols=(JoinGroupRequestProtocol(name="p", metadata=metadata),),
    )


def joined(talk: Talk, ticket: int) -> JoinGroupResponse:
    talk.rig.advance(9_000)
    response = talk.rig.replies[ticket]
    assert isinstance(response, JoinGroupResponse)
    return response


def assign(talk: Talk, member_id: str, assignment: bytes = b"") -> SyncGroupResponse:
    given = SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=talk.group.generation_id,
        member_id=member_id,
        assignments=(given,),
    )
    response = talk.rig.answer(request, 5)
    assert isinstance(response, SyncGroupResponse)
    return response


@pytest.mark.parametrize("name", ["x" * STRING_BYTES_MAX, "\N{OHM SIGN}" * (STRING_BYTES_MAX // 3)])
@pytest.mark.parametrize("is_static", [True, False])
def test_a_client_with_the_longest_name_is_a_member(name: str, is_static: bool) -> None:
    talk = Talk()
    request = join(instance=name if is_static else None)
    response = joined(talk, talk.rig.ask(request, 3, client_id=name))
    assert response.error_code is ErrorCode.NONE
    assert assign(talk, response.member_id).error_code is ErrorCode.NONE
    assert len(response.member_id.encode()) <= STRING_BYTES_MAX


def test_an_instance_may_have_an_empty_name() -> None:
    talk = Talk()
    response = joined(talk, talk.rig.ask(join(instance=""), 5))
    assert assign(talk, response.member_id).error_code is ErrorCode.NONE


def test_an_offset_may_be_kept_for_ever() -> None:
    talk = Talk()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,))
    request = OffsetCommitRequest(
        group_id="g", member_id="", retention_time_ms=INT64_MAX, topics=(topic,)
    )
    response = talk.rig.answer(request, 2)
    assert isinstance(response, OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code is ErrorCode.NONE
    stored = talk.rig.shard.state.offsets.get("g", "t", 0)
    assert stored is not None
    assert stored.value.expire_timestamp == INT64_MAX


def test_members_bring_no_more_than_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_join, "GROUP_METADATA_BYTES_MAX", 1_000 + 2 * NAME_BYTES)
    talk = Talk()
    first = talk.rig.ask(join(bytes(600)), 3)
    second = talk.rig.answer(join(bytes(401)), 3)
    third = talk.rig.ask(join(bytes(400)), 3)
    assert isinstance(second, JoinGroupResponse)
    assert second.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(talk, first).error_code is ErrorCode.NONE
    assert talk.reply(third).error_code is ErrorCode.NONE
    assert len(talk.group.members) == 2


def test_all_groups_together_keep_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the sum over groups. Small members get in: others must not keep them out."""
    monkeypatch.setattr(classic_join, "GROUPS_METADATA_BYTES_MAX", 20_000)
    talk = Talk()
    large = [talk.rig.ask(join(bytes(6_000), group=f"g{number}"), 3) for number in range(3)]
    refused = talk.rig.answer(join(bytes(6_000), group="g3"), 3)
    assert isinstance(refused, JoinGroupResponse)
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    small = talk.rig.ask(join(bytes(4_000), group="g3"), 3)
    assert joined(talk, small).error_code is ErrorCode.NONE
    assert [talk.reply(ticket).error_code for ticket in large] == [ErrorCode.NONE] * 3
    talk.rig.shard.validate()


def test_the_groups_of_other_shards_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_join, "GROUPS_METADATA_BYTES_MAX", 20_000)
    talk = Talk()
    talk.rig.shard.state.all_classic_bytes = lambda: 15_000
    refused = talk.rig.answer(join(bytes(6_000)), 3)
    assert isinstance(refused, JoinGroupResponse)
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_assignments_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one small member of each of many groups could fill the memory with its assignment."""
    monkeypatch.setattr(classic_rebalance, "GROUPS_METADATA_BYTES_MAX", 20_000)
    talk = Talk()
    response = joined(talk, talk.rig.ask(join(), 3))
    refused = assign(talk, response.member_id, bytes(20_000))
    assert refused.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.group.state is ClassicState.PREPARING_REBALANCE


def test_an_assignment_counts_without_the_one_that_it_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards `_has_bytes`: near the bound, a group that rebalanced was refused its own size."""
    monkeypatch.setattr(classic_rebalance, "GROUPS_METADATA_BYTES_MAX", 20_000)
    talk = Talk()
    member_id = joined(talk, talk.rig.ask(join(), 3)).member_id
    assert assign(talk, member_id, bytes(15_000)).error_code is ErrorCode.NONE
    for assigned_bytes, expected in [
        (15_000, ErrorCode.NONE),
        (19_000, ErrorCode.NONE),
        (21_000, ErrorCode.UNKNOWN_SERVER_ERROR),
        (19_000, ErrorCode.NONE),
    ]:
        rejoined = joined(talk, talk.rig.ask(join(member_id=member_id), 3))
        assert rejoined.error_code is ErrorCode.NONE
        assert assign(talk, member_id, bytes(assigned_bytes)).error_code is expected
    talk.rig.shard.validate()


def test_what_is_deleted_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk()
    first = joined(talk, talk.rig.ask(join(bytes(5_000)), 3))
    assert assign(talk, first.member_id, bytes(3_000)).error_code is ErrorCode.NONE
    assert talk.rig.shard.state.classic_bytes >= 2 * 5_000 + 3_000
    talk.rig.advance(60_000)
    talk.rig.shard.validate()
    assert talk.rig.shard.state.classic_bytes == 0


def test_a_generation_that_is_too_large_to_be_written_is_refused_and_the_group_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classic_rebalance, "GROUP_RECORD_BYTES_MAX", 1_000)
    talk = Talk()
    response = joined(talk, talk.rig.ask(join(), 3))
    refused = assign(talk, response.member_id, bytes(1_000))
    assert refused.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.group.state is ClassicState.PREPARING_REBALANCE
    again = join(member_id=response.member_id)
    assert joined(talk, talk.rig.ask(again, 3)).generation_id == 2
    assert assign(talk, response.member_id, b"little").assignment == b"little"


def test_a_commit_that_the_log_refuses_can_be_taken_back() -> None:
    talk = Talk()
    topic = OffsetCommitRequestTopic(
        name="t", partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=5),)
    )
    request = OffsetCommitRequest(group_id="g", member_id="", topics=(topic,))
    outcome = talk.rig.shard.handle(Asked(request, 9, "c", "/h"), 1, talk.rig.now_ms)
    assert outcome.is_revocable
    talk.rig.shard.validate()
    assert talk.rig.shard.state.offsets.get("g", "t", 0) is None
