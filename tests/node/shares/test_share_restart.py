"""Accepted records stay accepted after a restart of the broker; the others are delivered again."""

from pathlib import Path

from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.sharing import Member, acknowledge_codes


def test_accepted_records_are_not_delivered_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, Asker(broker.port) as asker:
        topic_id = asker.create("orders")
        asker.produce("orders", batch_of(*(b"%d" % number for number in range(5))))
        member = Member(asker, "packing")
        member.set(share_auto_offset_reset="earliest", share_assignment_interval_ms="0")
        member.join("orders")
        (got,) = member.fetch_until(topic_id, 0)
        assert got[:2] == (0, 4)
        answer = member.acknowledge(topic_id, (0, 1, (1,)), (3, 3, (3,)))
        assert acknowledge_codes(answer) == [0]
    with Broker(data_dir=tmp_path) as broker, Asker(broker.port) as asker:
        member = Member(asker, "packing")
        member.join("orders")
        again = member.fetch_until(topic_id, 0)
        assert [one[:2] for one in again] == [(2, 2), (4, 4)]
        assert all(one.delivery_count in (1, 2) for one in again)
