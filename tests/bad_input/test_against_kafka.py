"""The same table against Apache Kafka: where a row claims Kafka's behaviour, Kafka must show it.

Rows that differ have Kafka's outcome and the reason for ours; rows that Kafka would carry out, wait
for or hang on are not compared, with the reason. So the table is also the list of differences, and
one that disappears with a new Kafka fails here.
"""

from collections.abc import Iterator

import pytest

from tests.bad_input import cases_records, cases_requests, cases_wire
from tests.bad_input.case import NOT_COMPARED, Case
from tests.bad_input.ward import create_topics, outcome_of
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

CASES = [
    case
    for case in (*cases_wire.CASES, *cases_records.CASES, *cases_requests.CASES)
    if case.kafka != NOT_COMPARED
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        create_topics(broker.port)
        yield broker


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_kafka_does_the_same(kafka: RunningBroker, case: Case) -> None:
    expected = case.expected if case.kafka is None else case.kafka
    assert outcome_of(kafka.port, case) == expected
