"""Reading committed records: aborted and open transactions are left out, their neighbours are not.

Also across a crash: the fate of a transaction is a record like others.
"""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.transactional import Transactional, until_written
from tests.node.test_transactions import TOPIC, produce, settings


def values_of(broker: Broker, *, committed: bool = True) -> list[str | None]:
    return [record.value for record in broker.records(TOPIC, committed=committed)]


@pytest.mark.parametrize("crashes", [False, True])
def test_aborted_and_open_transactions_are_left_out(crashes: bool) -> None:
    """The same producer commits, aborts and commits again, beside one without transactions."""
    with Broker(settings()) as broker:
        broker.create_topic(TOPIC)
        with Asker(broker.port) as asker:
            one = Transactional(asker, "one").init()
            fates = ((b"kept", True), (b"aborted", False), (b"again", True))
            for number, (value, is_committed) in enumerate(fates, start=1):
                assert produce(one, value) == ErrorCode.NONE
                one.end(commits=is_committed)
                until_written(asker, TOPIC, 2 * number)
            broker.produce(TOPIC, "plain")
            assert produce(one, b"open") == ErrorCode.NONE
            broker.produce(TOPIC, "behind")
        if crashes:
            with broker.crashed():
                pass
        assert values_of(broker) == ["kept", "again", "plain"]
        everything = ["kept", "aborted", "again", "plain", "open", "behind"]
        assert values_of(broker, committed=False) == everything
