"""Share groups with transactions, a start by time, and the record-limit mode; on both brokers."""

import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import produce
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.sharing import Got, Member, acknowledge_codes, acquired
from tests.broker.handlers.transactional import Transactional, until_written

HOUR_MS = 3_600_000
GAP, ACCEPT, RELEASE = 0, 1, 2
RECORD_LIMIT = 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One partition for each internal topic: the first test does not create a hundred."""
    settings = BrokerConfig(port=0, storage="memory")
    groups = settings.groups.model_copy(update={"offsets_partitions": 1})
    shares = settings.shares.model_copy(update={"state_partitions": 1})
    with Broker(settings.model_copy(update={"groups": groups, "shares": shares})) as running:
        yield running


def joined(asker: Asker, topic: str, **settings: str) -> Member:
    member = Member(asker, fresh_name("group"))
    wanted = {"share_auto_offset_reset": "earliest", "share_assignment_interval_ms": "0"}
    member.set(**{**wanted, **settings})
    member.join(topic)
    return member


def transactions(asker: Asker) -> tuple[str, UUID]:
    """A committed record 0 with its marker 1, an aborted record 2 with its marker 3."""
    name = fresh_name()
    topic_id = asker.create(name)
    for number, commits in enumerate((True, False)):
        producer = Transactional(asker, fresh_name("transaction")).init()
        producer.add(name, 0)
        batch = batch_of(
            b"%d" % number,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=0,
            transactional=True,
        )
        request = produce_request(name, {0: batch}, transactional_id=producer.name)
        answer = asker.ask(request, NAMED, produce.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        producer.end(commits=commits)
        until_written(asker, name, 2 * number + 2)
    return name, topic_id


def offsets_of(got: list[Got]) -> list[int]:
    return [offset for one in got for offset in range(one.first, one.last + 1)]


def all_offsets(member: Member, topic_id: UUID, count: int) -> list[int]:
    """Fetch until this number of offsets is acquired."""
    found: list[int] = []
    while len(found) < count:
        found += offsets_of(member.fetch_until(topic_id, 0))
    return sorted(found)


class TestTransactions:
    def test_members_get_markers_but_no_aborted_records(self, asker: Asker) -> None:
        """Clients acknowledge the markers as gaps."""
        name, topic_id = transactions(asker)
        member = joined(asker, name, share_isolation_level="read_committed")
        assert all_offsets(member, topic_id, 3) == [0, 1, 3]
        answer = member.acknowledge(topic_id, (0, 0, (ACCEPT,)), (1, 1, (GAP,)), (3, 3, (GAP,)))
        assert acknowledge_codes(answer) == [ErrorCode.NONE]
        assert acquired(member.fetch(topic_id, 0, wait_ms=100)) == []

    def test_uncommitted_reads_get_all(self, asker: Asker) -> None:
        name, topic_id = transactions(asker)
        member = joined(asker, name)
        assert all_offsets(member, topic_id, 4) == [0, 1, 2, 3]

    def test_a_group_may_change_its_isolation_level(self, penstock: Asker) -> None:
        """Apache Kafka does the same, a while after it has answered the change."""
        name, topic_id = transactions(penstock)
        member = joined(penstock, name)
        assert all_offsets(member, topic_id, 4) == [0, 1, 2, 3]
        member.acknowledge(topic_id, (0, 3, (RELEASE,)))
        member.set(share_isolation_level="read_committed")
        assert all_offsets(member, topic_id, 3) == [0, 1, 3]


def test_a_group_begins_at_a_time(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    now_ms = time.time_ns() // 1_000_000
    for age_hours in (5, 3, 1):
        batch = batch_of(b"a", timestamps_ms=[now_ms - age_hours * HOUR_MS])
        assert asker.produce(name, batch).error_code == ErrorCode.NONE
    member = joined(asker, name, share_auto_offset_reset="by_duration:PT4H")
    assert all_offsets(member, topic_id, 2) == [1, 2]


def test_a_group_begins_at_a_time_before_all_records(asker: Asker) -> None:
    """Timestamps older than the epoch of the duration are no error."""
    name = fresh_name()
    topic_id = asker.create(name)
    assert asker.produce(name, batch_of(b"a", timestamps_ms=[1])).error_code == ErrorCode.NONE
    member = joined(asker, name, share_auto_offset_reset="by_duration:P36500D")
    assert acquired(member.fetch(topic_id, 0, wait_ms=200)) in ([], [Got(0, 0, 1)])


def test_the_record_limit_splits_a_batch_for_each_member(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    values = [b"%d" % number for number in range(10)]
    assert asker.produce(name, batch_of(*values)).error_code == ErrorCode.NONE
    first = joined(asker, name)
    wishes = {"max_records": 4, "batch_size": 4, "mode": RECORD_LIMIT}
    assert first.fetch_until(topic_id, 0, **wishes) == [Got(0, 3, 1)]
    with asker.another() as other:
        second = Member(other, first.group)
        second.join(name)
        assert second.fetch_until(topic_id, 0, **wishes) == [Got(4, 7, 1)]
        first.acknowledge(topic_id, (0, 3, (ACCEPT, RELEASE, RELEASE, ACCEPT)))
        got = offsets_of(second.fetch_until(topic_id, 0, **wishes))
        assert got[:2] == [1, 2], "released records come first"
        assert len(got) <= 4
