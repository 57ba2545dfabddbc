"""A log that takes nothing (the disk is full) costs requests, and never the shard.

The rig fails when an outcome with records cannot be reverted, and compares with a reload after
every step. Here: the answers, the remaining state, and that all work continues when there is room
again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.coordinator.groups.state.classic_group import ClassicState
from penstock.coordinator.shard import REFUSED_RETRY_MS
from penstock.protocol.error_codes import ErrorCode
from tests.coordinator.groups.consumer.test_consumer_groups import Client
from tests.coordinator.groups.talk import Talk

SESSION_MS = 45_000


@contextmanager
def full(talk: Talk | Client) -> Iterator[None]:
    """While there is no room."""
    talk.rig.refuses = True
    yield
    talk.rig.refuses = False


def is_refused(talk: Client, line: str) -> bool:
    return talk.ask(line) in talk.rig.refused


JOIN_B = "consumer-heartbeat member=b epoch=0 rebalance=60000 topics=t"


# --- KIP-848 ---


def test_a_member_that_cannot_be_written_is_told_and_comes_again() -> None:
    client = Client()
    client.join("a")
    with full(client):
        assert is_refused(client, JOIN_B)
        assert set(client.group.members) == {"a"}
        assert client.beat("member=a epoch=2").error_code is ErrorCode.NONE, "nothing to write"
    assert client.join("b").error_code is ErrorCode.NONE
    assert set(client.group.members) == {"a", "b"}


def test_a_group_that_cannot_be_written_is_not_there() -> None:
    client = Client()
    with full(client):
        assert is_refused(client, JOIN_B)
        assert client.rig.shard.state.consumer == {}
    assert client.join("b").member_epoch == 2


def test_a_change_of_topics_that_could_not_be_written_is_not_forgotten() -> None:
    client = Client(t=1)
    client.join("a")
    client.beat("member=a epoch=2")
    client.rig.set_topics({"t": 2})
    with full(client):
        assert is_refused(client, "consumer-heartbeat member=a epoch=2")
    response = client.beat("member=a epoch=2")
    assert response.member_epoch == 3
    assert response.assignment is not None
    assert response.assignment.topic_partitions[0].partitions == (0, 1)


def test_a_member_that_was_refused_is_not_taken_for_dead() -> None:
    client = Client(t=1)
    client.join("a")
    client.rig.set_topics({"t": 2})
    with full(client):
        for _ in range(10):
            client.rig.advance(SESSION_MS // 5)
            assert is_refused(client, "consumer-heartbeat member=a epoch=2")
    client.rig.advance(SESSION_MS - 1)
    assert set(client.group.members) == {"a"}
    client.rig.advance(1)
    assert client.group.members == {}


def test_a_member_that_died_meanwhile_goes_when_there_is_room() -> None:
    client = Client()
    client.join("a")
    with full(client):
        client.rig.advance(2 * SESSION_MS)
        assert set(client.group.members) == {"a"}
    client.rig.advance(REFUSED_RETRY_MS)
    assert client.group.members == {}


def test_a_member_that_cannot_leave_is_a_member() -> None:
    client = Client()
    client.join("a")
    with full(client):
        assert is_refused(client, "consumer-heartbeat member=a epoch=-1")
        assert client.beat("member=a epoch=2").error_code is ErrorCode.NONE
    assert client.beat("member=a epoch=-1").error_code is ErrorCode.NONE
    assert client.group.members == {}
    assert not [key for key in client.rig.timers if "consumer-session" in str(key)]


def test_a_static_member_that_cannot_go_for_a_while_has_not_gone() -> None:
    client = Client()
    client.join("a", "topics=t instance=i")
    with full(client):
        assert is_refused(client, "consumer-heartbeat member=a epoch=-2 instance=i")
    taken = client.join("b", "topics=t instance=i")
    assert taken.error_code is ErrorCode.UNRELEASED_INSTANCE_ID


# --- From one protocol to the other ---


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group_alive() -> None:
    client = Client()
    member = client.form_classic()
    with full(client):
        assert is_refused(client, JOIN_B)
        assert client.error(f"heartbeat member={member} generation=1") is ErrorCode.NONE
    assert client.rig.shard.state.classic["g"].state is ClassicState.STABLE
    assert client.join("b").error_code is ErrorCode.NONE
    assert set(client.group.members) == {member, "b"}
    assert client.rig.shard.state.classic == {}


def test_who_waits_in_a_group_that_cannot_be_upgraded_waits_on() -> None:
    client = Client()
    member = client.form_classic()
    waiting = client.ask("join topics=t v=3 client=late")
    with full(client):
        assert is_refused(client, JOIN_B)
    assert waiting not in client.rig.replies
    client.ask(f"join member={member} topics=t")
    assert waiting in client.rig.replies


def upgraded() -> tuple[Client, str]:
    """A consumer group of a classic member and of b."""
    client = Client()
    member = client.form_classic()
    client.join("b")
    assert client.error(f"heartbeat member={member} generation=1") is (
        ErrorCode.REBALANCE_IN_PROGRESS
    )
    return client, member


def test_a_downgrade_that_cannot_be_written_leaves_the_consumer_group_alive() -> None:
    client, member = upgraded()
    with full(client):
        assert is_refused(client, "consumer-heartbeat member=b epoch=-1")
        assert set(client.group.members) == {member, "b"}
        assert client.rig.shard.state.classic == {}
    assert client.beat("member=b epoch=-1").error_code is ErrorCode.NONE
    assert set(client.rig.shard.state.classic["g"].members) == {member}
    assert client.rig.shard.state.consumer == {}


def test_a_classic_member_that_could_not_rejoin_in_time_has_its_time_again() -> None:
    client, member = upgraded()
    join = f"join member={member} topics=t owned=t-0+t-1+t-2+t-3"
    with full(client):
        for _ in range(20):
            client.rig.advance(9_000)
            client.ask("consumer-heartbeat member=b epoch=2")
            assert is_refused(client, join)
    client.rig.advance(9_000)
    assert member in client.group.members
    assert client.error(join) is ErrorCode.NONE


def test_a_classic_member_whose_time_is_up_goes_when_there_is_room() -> None:
    client, member = upgraded()
    with full(client):
        for _ in range(8):
            client.rig.advance(9_000)
            client.ask("consumer-heartbeat member=b epoch=2")
        assert member in client.group.members
    client.rig.advance(REFUSED_RETRY_MS)
    assert set(client.group.members) == {"b"}


def test_an_empty_consumer_group_that_cannot_become_classic_stays_what_it_is() -> None:
    client = Client()
    client.join("a")
    client.beat("member=a epoch=-1")
    with full(client):
        assert is_refused(client, "join topics=t v=3")
        assert client.rig.shard.state.classic == {}
    ticket = client.ask("join topics=t v=3")
    client.rig.advance(0)
    assert ticket in client.rig.replies
    assert client.rig.shard.state.consumer == {}


# --- The classic protocol ---


def say_refused(talk: Talk, command: str, **arguments: Any) -> None:  # noqa: ANN401
    ticket = talk.say(command, **arguments)
    assert ticket in talk.rig.refused


@pytest.mark.parametrize("version", [3, 9])
def test_a_classic_group_that_cannot_be_written_is_not_there(version: int) -> None:
    talk = Talk()
    with full(talk):
        say_refused(talk, "join", client="a", topics="t", v=version)
        assert talk.rig.shard.state.classic == {}
        assert list(talk.rig.timers) == [("offset-expiry",)]
    talk.stable("a")


def test_who_joins_a_group_that_is_there_needs_no_room() -> None:
    talk = Talk(initial_rebalance_delay_ms=0)
    first = talk.say("join", client="a", topics="t", v=3)
    with full(talk):
        second = talk.say("join", client="b", topics="t", v=3)
        talk.rig.advance(0)
        assert {first, second} <= talk.rig.replies.keys()


def test_an_assignment_that_cannot_be_written_makes_the_members_rejoin() -> None:
    talk = Talk(initial_rebalance_delay_ms=0)
    tickets = [talk.say("join", client=name, topics="t", v=3) for name in "ab"]
    talk.rig.advance(0)
    leader, follower = (talk.reply(ticket).member_id for ticket in tickets)
    waiting = talk.say("sync", member=follower, generation=1)
    with full(talk):
        asked = talk.say("sync", member=leader, generation=1, assign=f"{leader}:x")
        told = [talk.reply(ticket).error_code for ticket in (waiting, asked)]
        assert told == [ErrorCode.NOT_COORDINATOR] * 2
        assert talk.state == "PreparingRebalance"
    for member in (leader, follower):
        talk.say("join", member=member, topics="t")
    for member in (leader, follower):
        talk.say("sync", member=member, generation=2, assign=f"{leader}:x")
    assert talk.state == "Stable"


@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_that_could_not_be_replaced_is_still_the_old_one(leads: bool) -> None:
    talk = Talk()
    names = ["a", "b"] if leads else ["b", "a"]
    tickets = [
        talk.say("join", client=name, topics="t", v=5, instance=name, protocols="range")
        for name in names
    ]
    talk.rig.advance(9_000)
    ids = dict(zip(names, (talk.reply(ticket).member_id for ticket in tickets), strict=True))
    for name in names:
        talk.say("sync", member=ids[name], generation=1, assign=f"{ids['a']}:x", instance=name)
    with full(talk):
        say_refused(talk, "join", client="a", topics="t,u", instance="a", protocols="range,sticky")
    beat = talk.ask("heartbeat", member=ids["a"], generation=1, instance="a")
    assert beat.error_code is ErrorCode.NONE
    assert talk.group.leader_id == ids[names[0]]
    assert talk.ask("sync", member=ids["a"], generation=1, instance="a").assignment == b"x"
    talk.rig.advance(10_001)
    assert talk.group.members == {}, "the timers of the old ones ran on"


def test_a_group_that_nobody_is_in_is_empty_also_when_that_cannot_be_written() -> None:
    talk = Talk()
    (member,) = talk.stable("a")
    with full(talk):
        say_refused(talk, "leave", member=member)
        assert talk.state == "Empty"
    talk.stable("b")


def test_a_group_whose_members_died_is_empty_also_when_that_cannot_be_written() -> None:
    talk = Talk()
    talk.stable("a")
    with full(talk):
        talk.rig.advance(20_000)
        assert talk.state == "Empty"
    assert not [key for key in talk.rig.timers if "classic" in str(key)]
    talk.stable("b")


# --- Expired state ---


def test_a_group_that_cannot_be_deleted_is_there() -> None:
    talk = Talk()
    talk.say("commit", offset=1)
    with full(talk):
        (result,) = talk.ask("delete").results
        assert result.error_code is ErrorCode.NOT_COORDINATOR
    assert [group.group_id for group in talk.ask("list").groups] == ["g"]
    assert talk.ask("delete").results[0].error_code is ErrorCode.NONE
    assert talk.rig.shard.state.classic == {}


def test_what_could_not_expire_expires_at_the_next_check() -> None:
    talk = Talk(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=5_000)
    talk.say("commit", offset=1)
    with full(talk):
        talk.rig.advance(7_000)
        assert set(talk.rig.shard.state.classic) == {"g"}
    talk.rig.advance(3_000)
    assert talk.rig.shard.state.classic == {}


def test_offsets_of_deleted_topics_go_when_there_is_room() -> None:
    talk = Talk()
    talk.rig.set_topics({"t": 1, "u": 1})
    talk.say("commit", offset=1)
    talk.say("commit", offset=1, topic="u")
    with full(talk):
        talk.rig.set_topics({"u": 1})
        talk.rig.set_topics({})
        talk.rig.advance(10 * REFUSED_RETRY_MS)
        assert set(talk.rig.shard.state.offsets.of_group("g")) == {"t", "u"}
    talk.rig.advance(REFUSED_RETRY_MS)
    assert talk.rig.shard.state.offsets.group_ids() == set()
