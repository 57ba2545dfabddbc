"""Apache Kafka's own share consumers read a queue, from Penstock and from Apache Kafka.

Two console consumers of one group read the same topic at the same time: together they get each
record once, and the group has no lag afterwards.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.sharing import Member
from tests.oracle.both_brokers import NAMES, running_bootstrap
from tests.oracle.kafka_jars import run_kafka_tool

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

RECORDS = 400
GROUP, TOPIC = "packing", "orders"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


@pytest.fixture(params=NAMES)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        yield address


def consume(bootstrap: str) -> list[str]:
    """Read until no record has come for a while."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", GROUP]
    return run_kafka_tool(CONSUMER, [*arguments, "--timeout-ms", "8000"]).splitlines()


def test_two_consumers_get_each_record_once(bootstrap: str) -> None:
    with Asker(int(bootstrap.rsplit(":", 1)[1]), is_kafka=True) as asker:
        asker.create(TOPIC)
        Member(asker, GROUP).set(share_auto_offset_reset="earliest")
        for first in range(0, RECORDS, 10):
            asker.produce(TOPIC, batch_of(*(b"%d" % (first + one) for one in range(10))))
    with ThreadPoolExecutor(2) as threads:
        halves = list(threads.map(consume, [bootstrap, bootstrap]))
    values = sorted(int(value) for half in halves for value in half if value.isdigit())
    assert values == list(range(RECORDS))
    shown = run_kafka_tool(
        GROUPS, ["--bootstrap-server", bootstrap, "--describe", "--group", GROUP]
    )
    (row,) = (line.split() for line in shown.splitlines() if TOPIC in line)
    assert row[-1] == "0", "all records are acknowledged"
