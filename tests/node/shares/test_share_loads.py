"""Share-partitions that load slowly or not at all, and sessions that end while a fetch waits."""

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.broker.share_sessions.share_ports import LiveSharePartition
from penstock.broker.share_sessions.share_session_table import (
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from penstock.broker.shares import share_reader
from penstock.broker.shares.share_fetching import ShareFetching
from penstock.coordinator.shares.ports import Refusal, ShareKey, ShareState
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.core.settings.config import BrokerConfig
from penstock.node.coordination.share_states import NodeShareStates
from penstock.node.shares.share_partitions import SharePartitions
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_fetch import ShareFetchResponse
from penstock.replication.read_result import PartitionRead
from penstock.testing import Broker
from tests.broker.handlers.asker import SECONDS_MAX, Asker, batch_of, fresh_name
from tests.broker.handlers.sharing import Got, Member, acquired


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = BrokerConfig(port=0, storage="memory")
    groups = settings.groups.model_copy(update={"offsets_partitions": 1})
    shares = settings.shares.model_copy(update={"state_partitions": 1})
    with Broker(settings.model_copy(update={"groups": groups, "shares": shares})) as running:
        yield running


@pytest.fixture
def asker(broker: Broker) -> Iterator[Asker]:
    with Asker(broker.port) as connection:
        yield connection


NAMES: dict[UUID, str] = {}
"""Topics by id."""


class FarCoordinator:
    """Answers later, as a share coordinator on another broker; refuses partition 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusal: Refusal | None) -> None:
        """Without a refusal it never answers for partition 0."""
        self.reads = 0
        near = NodeShareStates.read

        def read(
            states: NodeShareStates, key: ShareKey, leader_epoch: int
        ) -> Deferred[ShareState | Refusal]:
            answer: Deferred[ShareState | Refusal] = Deferred()
            loop = asyncio.get_running_loop()
            if key.partition != 0:
                loop.call_soon(lambda: near(states, key, leader_epoch).then(answer.set))
                return answer
            self.reads += 1
            if refusal is not None:
                loop.call_soon(answer.set, refusal)
            return answer

        monkeypatch.setattr(NodeShareStates, "read", read)


def joined(asker: Asker, partitions: int) -> tuple[Member, UUID]:
    """A member of a group that begins at the start of a new topic; the last partition has one."""
    name = fresh_name()
    topic_id = asker.create(name, partitions)
    NAMES[topic_id] = name
    asker.produce(name, batch_of(b"a"), partition=partitions - 1)
    member = Member(asker, fresh_name("group"))
    member.set(share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    member.join(name, partitions=partitions)
    return member, topic_id


def error_codes(answer: ShareFetchResponse) -> dict[int, ErrorCode]:
    return {
        one.partition_index: one.error_code
        for topic in answer.responses
        for one in topic.partitions
    }


class TestLoad:
    def test_a_refused_load_is_answered_once(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, topic_id = joined(asker, 1)
        far = FarCoordinator(monkeypatch, Refusal(ErrorCode.FENCED_LEADER_EPOCH, "a later leader"))
        answer = member.fetch(topic_id, 0, wait_ms=300)
        assert error_codes(answer) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert far.reads == 1

    def test_a_slow_load_does_not_delay_other_partitions(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, topic_id = joined(asker, 2)
        FarCoordinator(monkeypatch, None)
        assert acquired(member.fetch(topic_id, 0, 1, wait_ms=60_000)) == [Got(0, 0, 1)]

    def test_a_slow_load_does_not_delay_the_answer(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, topic_id = joined(asker, 1)
        FarCoordinator(monkeypatch, None)
        assert acquired(member.fetch(topic_id, 0, wait_ms=20)) == []


class TestFewBytes:
    def test_records_below_the_wanted_size_are_not_read_for_each_new_one(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, topic_id = joined(asker, 1)
        name = NAMES[topic_id]
        looks = 0
        look = ShareFetching._look

        def counting(fetching: ShareFetching) -> None:
            nonlocal looks
            looks += 1
            look(fetching)

        member.fetch(topic_id, 0, wait_ms=0, max_bytes=0)
        monkeypatch.setattr(ShareFetching, "_look", counting)
        size = len(batch_of(b"a"))
        member.send_fetch(wait_ms=60_000, min_bytes=20 * size)
        with asker.another() as producer:
            for _ in range(19):
                producer.produce(name, batch_of(b"a"))
        assert acquired(member.receive_fetch()) == [Got(0, 19, 1)]
        assert looks < 6, "a look may see fewer bytes than were announced; 19 would be one for each"

    def test_a_partition_is_not_read_in_vain(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member, topic_id = joined(asker, 3)
        for partition in range(2):
            asker.produce(NAMES[topic_id], batch_of(b"a"), partition=partition)
        member.fetch(topic_id, 0, 1, 2, wait_ms=1, max_bytes=0)
        reads: list[SharePartitionId] = []
        add = share_reader.ShareReader._add

        def noting(
            reader: share_reader.ShareReader,
            partition: SharePartitionId,
            live: LiveSharePartition,
            offset: int,
            found: PartitionRead,
        ) -> None:
            reads.append(partition)
            add(reader, partition, live, offset, found)

        monkeypatch.setattr(share_reader.ShareReader, "_add", noting)
        for number in range(3):
            assert acquired(member.fetch(topic_id, max_records=1)) == [Got(0, 0, 1)]
            assert [one.partition for one in reads] == [*range(number + 1)]

    def test_no_records_are_wanted(self, asker: Asker) -> None:
        member, topic_id = joined(asker, 1)
        assert acquired(member.fetch(topic_id, 0, wait_ms=60_000, max_records=0)) == []


class TestSessions:
    @pytest.mark.parametrize("epoch", [-1, 0])
    def test_a_fetch_of_a_session_that_ends_is_answered(self, asker: Asker, epoch: int) -> None:
        member, topic_id = joined(asker, 1)
        member.fetch_until(topic_id, 0)
        member.send_fetch(wait_ms=60_000)
        with asker.another() as connection:
            other = Member(connection, member.group, member.id)
            # The record that the end of the session releases, or a renewed one, is not for it.
            other.fetch(topic_id, 0, epoch=epoch, wait_ms=1)
            if epoch == 0:
                other.fetch(topic_id, epoch=-1)
            began = time.monotonic()
            assert acquired(member.receive_fetch()) == []
            assert time.monotonic() - began < SECONDS_MAX

    def test_a_parked_fetch_does_not_keep_its_request(
        self, asker: Asker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[ShareFetching] = []
        start = ShareFetching.fetch

        def fetch(fetching: ShareFetching) -> None:
            begun.append(fetching)
            start(fetching)

        monkeypatch.setattr(ShareFetching, "fetch", fetch)
        member, topic_id = joined(asker, 1)
        member.fetch(topic_id, 0, wait_ms=1)
        (fetching,) = begun
        assert fetching._request.topics == ()
        assert fetching._request.max_records == 500

    def test_the_client_of_a_new_session_is_gone_already(self) -> None:
        """A wide request is decoded on a thread; its client may disconnect meanwhile."""
        sessions = ShareSessions()
        groups = SharePartitions(None, None, _NoDeliveries(), sessions)  # type: ignore[arg-type]
        session = sessions.begin_fetch("g", "m", 0, ())
        assert isinstance(session, ShareSession)
        client = Cancellation()
        client.cancel()
        groups.follow(session, client)
        assert len(sessions) == 0
        assert groups._clients == {}


class _NoDeliveries:
    def forget(self, group: str) -> None:
        """No settings are known."""
