"""A regular expression matches the topics that the client may describe whose request resolves it.

As in Apache Kafka 4.3.1, the whole group then has these topics, until another request resolves the
expression again. The shard is real; its log, clock and topics are the test's.
"""

from collections.abc import Callable

import pytest

from penstock.coordinator.shard import Asked
from penstock.protocol.codec import Message
from penstock.security.acls.values import Operation, ResourceType
from tests.coordinator import rig
from tests.coordinator.groups.talk import Talk

REFRESH_MS = 11_000
"""Longer than Kafka's minimum between two resolutions."""


class Client:
    """Permissions to describe some topics."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        assert (operation, resource_type) == (Operation.DESCRIBE, ResourceType.TOPIC)
        assert not is_logged
        return name in self.names


class Group:
    """Group g of members that share one expression."""

    def __init__(self) -> None:
        self.client: Client | None = None
        """The client of the next request; None may do everything."""
        self.talk = Talk()
        self.talk.rig.set_topics({"t.a": 1, "t.b": 1})

    def join(self, member: str, client: Client | None) -> None:
        self.client = client
        self.talk.say("consumer-heartbeat", member=member, epoch=0, rebalance=60_000, regex="t.*")

    def join_classic(self, client: Client | None) -> None:
        self.client = client
        self.talk.say("join", client="c", topics="t.a", v=3)

    @property
    def matched(self) -> set[str]:
        group = self.talk.rig.shard.state.consumer["g"]
        (resolved,) = group.expressions.values()  # type: ignore[attr-defined]
        return set(resolved.topics)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()

    def asked(request: Message, version: int, client_id: str, host: str) -> Asked:
        return Asked(request, version, client_id, host, made.client)

    monkeypatch.setattr(rig, "Asked", asked)
    return made


def test_a_client_without_an_authorizer_gets_all_topics(group: Group) -> None:
    group.join("m1", None)
    assert group.matched == {"t.a", "t.b"}


def test_the_topics_are_those_of_the_client_that_resolves(group: Group) -> None:
    group.join("m1", Client("t.a", "u"))
    assert group.matched == {"t.a"}


def test_a_later_member_does_not_resolve_a_known_expression(group: Group) -> None:
    group.join("m1", Client("t.a"))
    group.join("m2", Client("t.b"))
    assert group.matched == {"t.a"}


@pytest.mark.parametrize(
    "again", [lambda group, client: group.join("m2", client), Group.join_classic]
)
def test_the_client_that_refreshes_decides(
    group: Group, again: Callable[[Group, Client], None]
) -> None:
    group.join("m1", Client("t.a"))
    group.talk.rig.advance(REFRESH_MS)
    group.talk.rig.set_topics({"t.a": 1, "t.b": 1, "t.c": 1})
    again(group, Client("t.b", "t.c"))
    assert group.matched == {"t.b", "t.c"}
