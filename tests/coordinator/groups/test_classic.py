"""Classic groups: the corners that the golden conversations do not show."""

from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.state.subscriptions import subscribed_topics
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from tests.coordinator.groups.talk import Talk
from tests.coordinator.groups.vocabulary import subscription

# --- JoinGroup ---


def test_a_session_timeout_outside_the_bounds_is_refused() -> None:
    talk = Talk()
    assert talk.ask("join", session=5_999).error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert talk.ask("join", session=1_800_001).error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert "g" not in talk.rig.shard.state.classic


def test_an_empty_group_id_is_refused() -> None:
    assert Talk().ask("join", group="").error_code is ErrorCode.INVALID_GROUP_ID


def test_a_member_that_nobody_knows_must_begin_anew() -> None:
    talk = Talk()
    assert talk.ask("join", member="old").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    talk.stable("a")
    assert talk.ask("join", member="old").error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_a_common_protocol_is_refused() -> None:
    talk = Talk()
    assert talk.ask("join", protocols="").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert talk.ask("join", type="").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    talk.stable("a")
    wrong_name = talk.ask("join", protocols="sticky")
    assert wrong_name.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = talk.ask("join", type="connect")
    assert wrong_type.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_prefer_and_all_support_is_taken() -> None:
    talk = Talk()
    first = talk.say("join", client="a", protocols="range,sticky,lonely", v=3)
    talk.say("join", client="b", protocols="sticky,range", v=3)
    talk.say("join", client="c", protocols="sticky,range", v=3)
    talk.rig.advance(9_000)
    assert talk.reply(first).protocol_name == "sticky"


def test_a_full_group_takes_nobody_else() -> None:
    talk = Talk(classic_group_members_max=2)
    ids = talk.stable("a", "b")
    assert talk.ask("join", client="c").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = talk.ask("join", member=ids[1], topics="t")
    assert again.error_code is ErrorCode.NONE
    assert again.generation_id == 1


def test_a_group_above_a_lowered_limit_shrinks_to_it() -> None:
    talk = Talk()
    ids = talk.stable("a", "b", "c")
    talk.words.settings = GroupSettings(classic_group_members_max=2)
    talk.rig.restart()
    assert talk.state == "PreparingRebalance"
    tickets = [talk.say("join", member=member, topics="t") for member in ids]
    assert talk.reply(tickets[2]).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    talk.rig.advance(60_000)
    assert talk.reply(tickets[0]).generation_id == 2
    assert set(talk.group.members) <= set(ids[:2])


def test_a_follower_that_rejoins_unchanged_gets_its_generation_again() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b")
    response = talk.ask("join", member=follower, topics="t")
    assert (response.generation_id, response.leader, response.members) == (1, leader, ())
    assert talk.state == "Stable"


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    talk = Talk()
    _, follower = talk.stable("a", "b")
    talk.say("join", member=follower, topics="t,u")
    assert talk.state == "PreparingRebalance"


def test_an_id_that_was_given_out_and_not_used_is_forgotten() -> None:
    talk = Talk()
    talk.ask("join", client="a")
    assert talk.group.pending_joins == {"a-1"}
    talk.rig.advance(10_000)
    assert talk.group.pending_joins == set()
    assert talk.ask("join", member="a-1").error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    talk.ask("join", client="b")
    ticket = talk.say("join", member=leader, topics="t")
    assert ticket not in talk.rig.replies
    talk.rig.advance(10_000)
    assert talk.reply(ticket).generation_id == 2


def test_a_join_that_is_sent_again_answers_the_first() -> None:
    talk = Talk()
    first, _ = talk.stable("a", "b")
    before = talk.say("join", member=first, topics="t")
    again = talk.say("join", member=first, topics="t")
    assert talk.reply(before).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert again not in talk.rig.replies


def test_a_new_member_that_waits_too_long_is_out() -> None:
    talk = Talk(new_member_join_timeout_ms=20_000)
    (leader,) = talk.stable("a", rebalance=400_000, session=60_000)
    ticket = talk.say("join", client="b", v=3, topics="t", rebalance=400_000, session=60_000)
    talk.rig.advance(15_000)
    talk.ask("heartbeat", member=leader, generation=1)
    talk.rig.advance(5_000)
    assert talk.reply(ticket).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.reply(ticket).member_id == ""
    assert set(talk.group.members) == {leader}


def test_the_first_rebalance_is_not_delayed_beyond_the_rebalance_timeout() -> None:
    talk = Talk()
    ticket = talk.say("join", client="a", v=3, rebalance=7_000)
    for name in ("b", "c"):
        talk.rig.advance(2_500)
        talk.say("join", client=name, v=3, rebalance=7_000)
    talk.rig.advance(1_999)
    assert ticket not in talk.rig.replies
    talk.rig.advance(1)
    assert len(talk.reply(ticket).members) == 3


# --- SyncGroup ---


def test_a_sync_of_the_wrong_generation_or_protocol_is_refused() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    wrong = talk.ask("sync", member=leader, generation=7)
    assert wrong.error_code is ErrorCode.ILLEGAL_GENERATION
    other = talk.ask("sync", member=leader, generation=1, protocol="sticky")
    assert other.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = talk.ask("sync", member="stranger", generation=1)
    assert unknown.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    missing = talk.ask("sync", group="missing", member=leader, generation=1)
    assert missing.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_during_a_rebalance_is_told_so() -> None:
    talk = Talk()
    _, follower = talk.stable("a", "b")
    talk.say("join", client="c", v=3, topics="t")
    response = talk.ask("sync", member=follower, generation=1)
    assert response.error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_syncs_that_wait_end_when_a_member_joins() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b")
    tickets = [talk.say("join", member=member, topics="t") for member in (leader, follower)]
    assert talk.reply(tickets[1]).generation_id == 2
    sync = talk.say("sync", member=follower, generation=2)
    talk.say("join", client="c", v=3, topics="t")
    assert talk.reply(sync).error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_that_is_sent_again_answers_the_first() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b")
    for member in (leader, follower):
        talk.say("join", member=member, topics="t")
    first = talk.say("sync", member=follower, generation=2)
    second = talk.say("sync", member=follower, generation=2)
    assert talk.reply(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    talk.say("sync", member=leader, generation=2, assign=f"{follower}:all")
    assert talk.reply(second).assignment == b"all"


def test_a_follower_that_never_syncs_is_out_at_the_rebalance_timeout() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b", rebalance=20_000, session=60_000)
    for member in (leader, follower):
        talk.say("join", member=member, topics="t", rebalance=20_000, session=60_000)
    talk.say("sync", member=leader, generation=2)
    assert talk.state == "Stable"
    talk.rig.advance(20_000)
    assert set(talk.group.members) == {leader}
    assert talk.state == "PreparingRebalance"


# --- Static members, heartbeats, leaving ---


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    talk = Talk()
    first = talk.say("join", client="a", instance="one", topics="t", rebalance=15_000)
    second = talk.say("join", client="b", instance="two", topics="t", rebalance=15_000)
    talk.rig.advance(6_000)
    one, two = talk.reply(first).member_id, talk.reply(second).member_id
    talk.say("sync", member=one, generation=1, instance="one", assign=f"{one}:x,{two}:y")
    talk.say("sync", member=two, generation=1, instance="two")
    rejoined = talk.say("join", member=one, instance="one", topics="t", rebalance=15_000)
    talk.rig.advance(9_000)
    talk.say("heartbeat", member=two, generation=1, instance="two")
    talk.rig.advance(6_000)
    members = [member.member_id for member in talk.reply(rejoined).members]
    assert members == [one, two]


def test_a_rebalance_that_no_static_member_joins_waits_on() -> None:
    talk = Talk()
    ticket = talk.say("join", client="a", instance="one", topics="t", session=60_000)
    talk.rig.advance(3_000)
    one = talk.reply(ticket).member_id
    talk.say("sync", member=one, generation=1, instance="one", assign=f"{one}:x")
    given_out = talk.ask("join", client="b", topics="t")
    waits = talk.say("join", member=given_out.member_id, client="b", topics="t", rebalance=10_000)
    left = talk.ask("leave", member=given_out.member_id)
    assert left.members[0].error_code is ErrorCode.NONE
    assert talk.reply(waits).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    talk.rig.advance(59_000)
    talk.say("heartbeat", member=one, generation=1, instance="one")
    talk.rig.advance(2_000)
    assert set(talk.group.members) == {one}
    assert talk.state == "PreparingRebalance"
    talk.rig.advance(60_000)
    assert talk.state == "Empty"


def test_a_restarted_static_member_with_another_protocol_starts_a_rebalance() -> None:
    talk = Talk()
    first = talk.say("join", client="a", instance="one", protocols="range,sticky")
    talk.rig.advance(3_000)
    one = talk.reply(first).member_id
    talk.say("sync", member=one, generation=1, instance="one", assign=f"{one}:x")
    # It is alone, so that the group completes at once; in the next generation.
    response = talk.ask("join", client="a", instance="one", protocols="sticky,range")
    assert (response.generation_id, response.protocol_name) == (2, "sticky")


def test_a_waiting_static_member_is_fenced_by_its_successor() -> None:
    talk = Talk()
    first = talk.say("join", client="a", instance="one")
    second = talk.say("join", client="a", instance="one")
    assert talk.reply(first).error_code is ErrorCode.FENCED_INSTANCE_ID
    talk.rig.advance(6_000)
    assert talk.reply(second).generation_id == 1


def test_a_heartbeat_of_another_generation_is_refused() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    response = talk.ask("heartbeat", member=leader, generation=2)
    assert response.error_code is ErrorCode.ILLEGAL_GENERATION
    missing = talk.ask("heartbeat", group="missing", member=leader, generation=1)
    assert missing.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_several_leave_at_once_and_each_is_answered() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b")
    response = talk.ask("leave", members=f"{leader},stranger,{follower}")
    codes = [member.error_code for member in response.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert talk.state == "Empty"
    assert talk.group.generation_id == 2


def test_leaving_a_group_that_does_not_exist_is_an_error_of_each_member() -> None:
    response = Talk().ask("leave", group="missing", members="a,b")
    assert response.error_code is ErrorCode.NONE
    assert [m.error_code for m in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_an_old_client_leaves_by_its_member_id() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    talk.rig.answer(LeaveGroupRequest(group_id="g", member_id=leader), 1)
    assert talk.state == "Empty"


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    talk = Talk()
    leader, follower = talk.stable("a", "b")
    for member in (leader, follower):
        talk.say("join", member=member, topics="t")
    waits = talk.say("sync", member=follower, generation=2)
    talk.ask("leave", member=follower)
    assert talk.reply(waits).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_prolongs_the_session() -> None:
    talk = Talk()
    (leader,) = talk.stable("a")
    for _ in range(4):
        talk.rig.advance(9_000)
        talk.ask("commit", member=leader, generation=1, offset=1)
    assert talk.state == "Stable"
    talk.rig.advance(10_000)
    assert talk.state == "Empty"


# --- Subscriptions ---


def test_topics_are_read_from_any_version_of_the_metadata() -> None:
    newer = subscription("t", "u", version=3, extra=b"whatever comes later")
    assert subscribed_topics([newer, subscription("v")]) == frozenset({"t", "u", "v"})


def test_metadata_that_cannot_be_read_tells_nothing() -> None:
    assert subscribed_topics([subscription("t"), b"\x00"]) is None
    assert subscribed_topics([b"\x00\x00\x00\x00\x00\x05\x00\x01"]) is None
    assert subscribed_topics([b"\xff\xff\x00\x00\x00\x00"]) is None
    assert subscribed_topics([b"\x00\x00\x00\x00\x00\x01\x00\x01\xff"]) is None
