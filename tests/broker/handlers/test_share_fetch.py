"""ShareFetch and ShareAcknowledge: what a member of a share group gets, on both brokers."""

import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import read_records
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of, fresh_name
from tests.broker.handlers.sharing import Got, Member, acknowledge_codes, acquired


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One partition for each internal topic: the first test does not create a hundred."""
    settings = BrokerConfig(port=0, storage="memory")
    groups = settings.groups.model_copy(update={"offsets_partitions": 1})
    shares = settings.shares.model_copy(update={"state_partitions": 1})
    with Broker(settings.model_copy(update={"groups": groups, "shares": shares})) as running:
        yield running


def member_of(asker: Asker, *topics: str, group: str = "", partitions: int = 1) -> Member:
    """A member of a group that begins at the start of its topics."""
    member = Member(asker, group or fresh_name("group"))
    member.set(share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    member.join(*topics, partitions=partitions)
    return member


def filled(asker: Asker, *sizes: int) -> tuple[str, UUID]:
    """Create a topic with a batch of each of these numbers of records."""
    name = fresh_name()
    topic_id = asker.create(name)
    number = 0
    for size in sizes:
        values = [b"%d" % (number + one) for one in range(size)]
        assert asker.produce(name, batch_of(*values)).error_code == ErrorCode.NONE
        number += size
    return name, topic_id


class TestRecords:
    def test_a_member_gets_stored_batches(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3, 2)
        member = member_of(asker, name)
        assert member.fetch_until(topic_id, 0) == [Got(0, 4, 1)]

    def test_the_bytes_are_those_of_the_log(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3)
        member = member_of(asker, name)
        answer = member.fetch(topic_id, 0)
        while not acquired(answer):
            answer = member.fetch(topic_id)
        (partition,) = answer.responses[0].partitions
        assert partition.records is not None
        values = [one.value for one in read_records(partition.records)]
        assert values == [b"0", b"1", b"2"]
        assert answer.acquisition_lock_timeout_ms == 30_000

    def test_acquired_records_are_not_delivered_again(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        assert acquired(member.fetch(topic_id, wait_ms=1)) == []

    def test_released_records_are_delivered_again(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        assert acknowledge_codes(member.acknowledge(topic_id, (1, 1, (2,)))) == [ErrorCode.NONE]
        assert member.fetch_until(topic_id) == [Got(1, 1, 2)]

    def test_a_whole_batch_is_acquired(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3, 2, 4)
        member = member_of(asker, name)
        assert member.fetch_until(topic_id, 0, max_records=1) == [Got(0, 2, 1)]
        assert member.fetch_until(topic_id, max_records=4) == [Got(3, 8, 1)]

    def test_the_record_limit_is_exact(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3, 2)
        member = member_of(asker, name)
        assert member.fetch_until(topic_id, 0, max_records=2, mode=1) == [Got(0, 1, 1)]
        assert member.fetch_until(topic_id, max_records=2, mode=1)[0].first == 2

    def test_acquired_ranges_have_a_size(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2, 2, 2)
        member = member_of(asker, name)
        got = member.fetch_until(topic_id, 0, batch_size=2)
        assert got == [Got(0, 1, 1), Got(2, 3, 1), Got(4, 5, 1)]

    def test_two_members_share_the_records(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2, 2)
        one = member_of(asker, name)
        with asker.another() as second:
            two = Member(second, one.group)
            two.join(name)
            assert one.fetch_until(topic_id, 0, max_records=2) == [Got(0, 1, 1)]
            assert two.fetch_until(topic_id, 0, max_records=2) == [Got(2, 3, 1)]

    def test_a_fetch_waits_for_records(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        member.send_fetch(wait_ms=10_000)
        with asker.another() as producer:
            producer.produce(name, batch_of(b"new"))
        got = acquired(member.receive_fetch())
        if asker.is_kafka and not got:  # which may answer before it has seen the record
            got = member.fetch_until(topic_id)
        assert got == [Got(1, 1, 1)]

    def test_a_fetch_waits_for_a_release(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        with asker.another() as connection:
            other = Member(connection, member.group)
            other.join(name)
            other.fetch(topic_id, 0, wait_ms=1)
            other.send_fetch(wait_ms=10_000)
            member.acknowledge(topic_id, (0, 0, (2,)))
            assert acquired(other.receive_fetch()) == [Got(0, 0, 2)]

    def test_an_unacknowledged_record_is_archived_at_the_limit(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1, 1)
        member = member_of(asker, name)
        member.set(share_delivery_count_limit="2")
        assert member.fetch_until(topic_id, 0, max_records=1) == [Got(0, 0, 1)]
        member.acknowledge(topic_id, (0, 0, (2,)))
        assert member.fetch_until(topic_id, max_records=1) == [Got(0, 0, 2)]
        member.acknowledge(topic_id, (0, 0, (2,)))
        assert member.fetch_until(topic_id, max_records=1) == [Got(1, 1, 1)]

    def test_a_member_that_keeps_the_window_full_is_answered_early(self, asker: Asker) -> None:
        """It can acknowledge then. Apache Kafka lets all members of the group wait."""
        name, topic_id = filled(asker, 100, 5)
        member = member_of(asker, name)
        member.set(share_partition_max_record_locks="100")
        assert member.fetch_until(topic_id, 0, max_records=100) == [Got(0, 99, 1)]
        begun = time.monotonic()
        wait_ms = 100 if asker.is_kafka else 20_000
        assert acquired(member.fetch(topic_id, wait_ms=wait_ms)) == []
        assert time.monotonic() - begun < 10
        got = member.fetch(topic_id, acknowledges=[(0, 99, (1,))])
        assert acquired(got) or member.fetch_until(topic_id) == [Got(100, 104, 1)]


class TestAcknowledgements:
    def test_they_may_come_with_a_fetch(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 3)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        answer = member.fetch(topic_id, 0, wait_ms=1, acknowledges=[(0, 2, (1, 2, 3))])
        (partition,) = answer.responses[0].partitions
        assert partition.acknowledge_error_code == ErrorCode.NONE
        got = acquired(answer) or member.fetch_until(topic_id)
        assert got == [Got(1, 1, 2)]

    def test_a_record_is_accepted_once(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        assert acknowledge_codes(member.acknowledge(topic_id, (1, 1, (1,)))) == [ErrorCode.NONE]
        again = member.acknowledge(topic_id, (1, 1, (1,)))
        assert acknowledge_codes(again) == [ErrorCode.INVALID_RECORD_STATE]

    def test_another_member_may_not(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        with asker.another() as connection:
            other = Member(connection, member.group)
            other.join(name)
            other.fetch(topic_id, 0, wait_ms=1)
            answer = other.acknowledge(topic_id, (0, 1, (1,)))
            assert acknowledge_codes(answer) == [ErrorCode.INVALID_RECORD_STATE]

    def test_a_refused_range_changes_nothing(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        for batches in (
            ((1, 0, (1,)),),
            ((0, 1, (1, 1, 1)),),
            ((0, 1, ()),),
            ((0, 0, (9,)),),
            ((1, 1, (1,)), (0, 0, (1,))),
        ):
            answer = member.acknowledge(topic_id, *batches)
            assert acknowledge_codes(answer) == [ErrorCode.INVALID_REQUEST], batches
        assert acknowledge_codes(member.acknowledge(topic_id, (0, 1, (1,)))) == [ErrorCode.NONE]

    def test_an_unknown_offset(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        answer = member.acknowledge(topic_id, (5, 9, (1,)))
        assert acknowledge_codes(answer) in (
            [ErrorCode.INVALID_REQUEST],
            [ErrorCode.INVALID_RECORD_STATE],
        )

    def test_a_renewal_needs_its_announcement(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        answer = member.acknowledge(topic_id, (0, 0, (4,)))
        assert acknowledge_codes(answer) == [ErrorCode.INVALID_REQUEST]
        answer = member.acknowledge(topic_id, (0, 0, (4,)), renews=True)
        assert acknowledge_codes(answer) == [ErrorCode.NONE]
        assert answer.acquisition_lock_timeout_ms == 30_000

    def test_a_group_may_forbid_renewals(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        member.set(share_renew_acknowledge_enable="false")
        member.fetch_until(topic_id, 0)
        answer = member.acknowledge(topic_id, (0, 0, (4,)), renews=True)
        assert acknowledge_codes(answer) == [ErrorCode.INVALID_RECORD_STATE]

    def test_a_fetch_with_renewals_fetches_nothing(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        wrong = member.fetch(topic_id, 0, renews=True, acknowledges=[(0, 0, (4,))])
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        right = member.fetch(
            topic_id,
            0,
            renews=True,
            wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            max_records=0,
            acknowledges=[(0, 0, (4,))],
        )
        assert right.error_code == ErrorCode.NONE
        (partition,) = right.responses[0].partitions
        assert partition.acknowledge_error_code == ErrorCode.NONE


class TestSessions:
    def test_epochs_follow_each_other(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        assert member.fetch(topic_id, 0, epoch=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.fetch(topic_id, 0, wait_ms=1).error_code == ErrorCode.NONE
        wrong = member.fetch(topic_id, epoch=3)
        assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert member.acknowledge(topic_id, (0, 0, (1,)), epoch=7).error_code == (
            ErrorCode.INVALID_SHARE_SESSION_EPOCH
        )
        assert member.acknowledge(topic_id, (0, 0, (1,)), epoch=0).error_code == (
            ErrorCode.INVALID_SHARE_SESSION_EPOCH
        )
        assert member.fetch(topic_id, wait_ms=1).error_code == ErrorCode.NONE

    def test_the_first_answer_names_partitions_without_records(self, asker: Asker) -> None:
        name, topic_id = filled(asker)
        member = member_of(asker, name)
        for _ in range(10):  # The share-partition is loaded by the first fetch.
            answer = member.fetch(topic_id, 0, epoch=0, wait_ms=300)
            assert answer.error_code == ErrorCode.NONE
            named = [one.partition_index for topic in answer.responses for one in topic.partitions]
            if named:
                break
        assert named == [0]
        member.epoch = 1
        assert member.fetch(topic_id, wait_ms=100).responses == ()

    def test_a_fetch_of_no_bytes_does_not_wait(self, asker: Asker) -> None:
        name, topic_id = filled(asker)
        member = member_of(asker, name)
        begun = time.monotonic()
        for _ in range(5):
            member.fetch(topic_id, 0, wait_ms=30_000, min_bytes=0)
        assert time.monotonic() - begun < 25, "answered at once, as soon as the state is loaded"

    def test_a_new_session_acknowledges_nothing(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        answer = member.fetch(topic_id, 0, epoch=0, acknowledges=[(0, 0, (1,))])
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    def test_a_closed_session_releases_records(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        assert member.close() == ErrorCode.NONE
        assert member.close() == ErrorCode.SHARE_SESSION_NOT_FOUND
        member.epoch = 0
        assert member.fetch_until(topic_id, 0) == [Got(0, 1, 2)]

    def test_a_lost_connection_releases_records(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 2)
        member = member_of(asker, name)
        with asker.another() as second:
            lost = Member(second, member.group)
            lost.join(name)
            lost.fetch_until(topic_id, 0)
        assert member.fetch_until(topic_id, 0) == [Got(0, 1, 2)]

    def test_a_forgotten_partition_is_not_fetched(self, asker: Asker) -> None:
        name, topic_id = filled(asker, 1)
        member = member_of(asker, name)
        member.fetch_until(topic_id, 0)
        member.acknowledge(topic_id, (0, 0, (2,)))
        assert acquired(member.fetch(topic_id, wait_ms=1, forgets=[0])) == []
        assert member.fetch_until(topic_id, 0) == [Got(0, 0, 2)]

    def test_a_member_needs_an_id(self, asker: Asker) -> None:
        for member_id in ("", "m" * 37):
            member = Member(asker, "g", "x")
            member.id = member_id
            assert member.fetch(uuid4(), 0).error_code == ErrorCode.INVALID_REQUEST
            assert member.close() == ErrorCode.INVALID_REQUEST

    def test_an_unknown_topic(self, penstock: Asker) -> None:
        """Kafka leaves the partition out of the first answer."""
        name, _ = filled(penstock, 1)
        member = member_of(penstock, name)
        answer = member.fetch(uuid4(), 0, wait_ms=1)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
