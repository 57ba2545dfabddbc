"""A broker is killed between the delivery and the acknowledgement of records: both brokers.

Accepted records stay accepted; acquired ones are available again, and their delivery counts are
those of the last stored state.
"""

from pathlib import Path
from uuid import UUID

import pytest

from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.sharing import Got, Member, acknowledge_codes, acquired
from tests.oracle.both_brokers import NAMES
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

GROUP, TOPIC = "packing", "orders"
ACCEPT, RELEASE, REJECT = 1, 2, 3


def new_broker(kind: str, folder: Path) -> RunningBroker:
    return kafka_broker(folder) if kind == "kafka" else penstock_broker(folder)


def joined(asker: Asker) -> Member:
    member = Member(asker, GROUP)
    member.set(share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
    member.join(TOPIC)
    return member


def settle(asker: Asker, topic_id: UUID) -> None:
    """Acquire ten records; accept, release and reject some of them. The others stay acquired."""
    member = joined(asker)
    assert [one[:2] for one in member.fetch_until(topic_id, 0)] == [(0, 9)]
    answer = member.acknowledge(
        topic_id, (0, 1, (ACCEPT,)), (2, 2, (RELEASE,)), (4, 4, (REJECT,)), (9, 9, (ACCEPT,))
    )
    assert acknowledge_codes(answer) == [0]
    assert acquired(member.fetch(topic_id, 0)) == [Got(2, 2, 2)]


@pytest.mark.parametrize("kind", NAMES)
def test_a_killed_broker_forgets_acquisitions_only(kind: str, tmp_path: Path) -> None:
    is_kafka = kind == "kafka"
    with new_broker(kind, tmp_path / kind) as broker:
        with Asker(broker.port, is_kafka=is_kafka) as asker:
            topic_id = asker.create(TOPIC)
            asker.produce(TOPIC, batch_of(*(b"%d" % number for number in range(10))))
            settle(asker, topic_id)
            broker.kill()  # Before the connection ends: that would release the records.
        broker.start()
        with Asker(broker.port, is_kafka=is_kafka) as asker:
            member = joined(asker)
            got: list[Got] = []
            while sum(one.last - one.first + 1 for one in got) < 6:
                got += member.fetch_until(topic_id, 0)
            offsets = {
                offset: one.delivery_count
                for one in got
                for offset in range(one.first, one.last + 1)
            }
            assert sorted(offsets) == [2, 3, 5, 6, 7, 8]
            assert offsets[2] == 2, "its first delivery was stored with the release"
            assert offsets[3] == offsets[5] == 1, "acquisitions are not stored"
            answer = member.acknowledge(topic_id, (2, 3, (ACCEPT,)), (5, 8, (ACCEPT,)))
            assert acknowledge_codes(answer) == [0]
            assert acquired(member.fetch(topic_id, 0, wait_ms=100)) == []
