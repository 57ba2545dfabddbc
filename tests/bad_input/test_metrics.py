"""Every bad input is counted where it should be, and leaves nothing behind in the broker's books.

The same rows as in `test_table`, on a broker in this process: a peer that broke the protocol is
counted in `protocol_errors_total`; a request that was answered with a code is not; no row is ever a
`handler_failures_total`, which counts defects of ours; and connections and reserved bytes return to
their earlier values.
"""

from collections.abc import Iterator, Mapping

import pytest

from tests.bad_input import cases_records, cases_requests, cases_wire
from tests.bad_input.case import CLOSED, Case
from tests.bad_input.inside import InsideBroker
from tests.bad_input.ward import create_topics, outcome_of

CASES = [*cases_wire.CASES, *cases_records.CASES, *cases_requests.CASES]


@pytest.fixture(scope="module")
def broker() -> Iterator[InsideBroker]:
    with InsideBroker() as running:
        create_topics(running.port)
        yield running


def total(metrics: Mapping[str, float], name: str) -> float:
    """A counter over all its reasons."""
    return sum(value for key, value in metrics.items() if key.startswith(f"{name}{{"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bad_input_is_counted(broker: InsideBroker, case: Case) -> None:
    assert broker.settles("connections", 0)
    before = broker.metrics()
    assert outcome_of(broker.port, case) == case.expected
    assert broker.settles("connections", 0)
    after = broker.metrics()
    is_wrong = case.expected == CLOSED and not case.finishes
    if not case.finishes:
        grown = total(after, "protocol_errors_total") - total(before, "protocol_errors_total")
        assert grown == (1 if is_wrong else 0)
    assert after["handler_failures_total"] == before["handler_failures_total"] == 0
    assert total(after, "connections_timed_out_total") == 0
    assert after["request_bytes_in_flight"] == 0
    assert after["parked_requests"] == 0
