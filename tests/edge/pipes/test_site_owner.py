"""Senders of a site: the text of committed offsets, and a sender that may not replace another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.client.async_cluster import AsyncCluster
from penstock.client.coordinators import Coordinator
from penstock.client.groups.group_calls import Committed
from penstock.client.transport.addresses import Address
from penstock.core.clock import SystemClock
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.kafka_upstream import KafkaUpstream
from penstock.edge.pipes.ports import CommittedOffset
from penstock.edge.pipes.site_owner import SiteOwner, read_signed
from penstock.edge.pipes.up_pipe import SentMark
from penstock.edge.pipes.up_ports import SiteFencedError

AT = TopicPartition("t", 0)
MARK = SentMark.without_batch(UUID(int=1)).text()
OWN, OTHER = SiteOwner("one", "up"), SiteOwner("two", "sales")


def test_a_signed_text_is_read_back() -> None:
    longest = SiteOwner("A-_." * 5, "p" * 63)
    for owner in (OWN, longest):
        assert read_signed(owner.sign(MARK)) == (MARK, owner)
        assert len(owner.sign(MARK)) < 4_096, "Kafka's offset.metadata.max.bytes"
    # Of an earlier version.
    assert read_signed(MARK) == (MARK, None)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1:a:-1", "of an operator @ home", "@", "@/", f"{MARK}@b/", f"{MARK}@/c"),
        "moved by ops@example.com/ticket",
        *(f"{MARK}@b/{'x' * 64}", f"{MARK}@b/../c", f"{MARK}@b\nERROR/c", f"{MARK}@b/c\n"),
    ],
)
def test_other_texts_name_no_sender(text: str) -> None:
    assert read_signed(text) == (text, None)


def test_other_brokers_are_others_and_other_pipes_are_not() -> None:
    second = SiteOwner("one", "second")
    assert OWN.others([None, OWN, second, OTHER, OTHER]) == [OTHER]


class Parent:
    """The calls of `AsyncCluster` that positions need; new transactional ids are refused."""

    def __init__(self, code: str, metadata: str) -> None:
        self.code = code
        self.metadata = metadata

    async def anywhere(self, _call: object) -> Coordinator:
        return Coordinator(0, Address("parent", 9092))

    async def at(self, _address: Address, call: Any) -> object:  # noqa: ANN401
        if "InitProducerId" in type(call.request).__name__:
            raise BrokerAnswerError(1, self.code, "")
        return {AT: Committed(7, -1, self.metadata)}

    async def repeat(self, attempt: Callable[[], Awaitable[object]], *, repeatable: bool) -> object:
        assert repeatable
        return await attempt()


def positions(code: str, owner: SiteOwner) -> dict[TopicPartition, CommittedOffset]:
    cluster = cast("AsyncCluster", Parent(code, owner.sign(MARK)))
    upstream = KafkaUpstream(cluster, "store-1", OWN, SystemClock())
    return dict(asyncio.run(upstream.positions()))


def test_a_sender_that_may_not_replace_the_first_names_it() -> None:
    with pytest.raises(SiteFencedError) as refused:
        positions("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", OTHER)
    assert "sends as site 'store-1': the broker with cluster id two, pipe 'sales'" in str(refused)
    assert "no WRITE on the transactional id pipe.store-1.sales" in str(refused)
    with pytest.raises(BrokerAnswerError, match="NOT_COORDINATOR"):
        positions("NOT_COORDINATOR", OTHER)


@pytest.mark.parametrize("owner", [OWN, SiteOwner("one", "second"), SiteOwner("two", "up")])
def test_other_pipes_of_this_broker_and_its_predecessor_are_not_fenced(owner: SiteOwner) -> None:
    """The transactional id of a predecessor with the same pipe is the own one."""
    assert positions("CLUSTER_AUTHORIZATION_FAILED", owner) == {AT: CommittedOffset(7, -1, MARK)}
