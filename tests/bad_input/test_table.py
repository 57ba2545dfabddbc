"""Every row of the table against one broker process: the outcome, without effect on other clients.

The rows are items 1 to 13, 19 to 23 and 25 to 27 of the list of bad inputs; slow cases, such as
slow peers and floods, have their own tests beside this file.
"""

import pytest

from tests.bad_input import cases_records, cases_requests, cases_wire
from tests.bad_input.case import Case
from tests.bad_input.ward import Ward, outcome_of

CASES = [*cases_wire.CASES, *cases_records.CASES, *cases_requests.CASES]
ITEMS = {*range(1, 4), *range(5, 14), *range(19, 24), *range(25, 28)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_bad_input(ward: Ward, case: Case) -> None:
    before = ward.vitals()
    assert outcome_of(ward.port, case) == case.expected
    ward.check(before, memory_bytes_max=case.memory_bytes_max, grows_log=case.grows_log)


@pytest.mark.chaos
@pytest.mark.parametrize("case", cases_records.BOMBS, ids=lambda case: case.id)
def test_decompression_bomb(ward: Ward, case: Case) -> None:
    before = ward.vitals()
    assert outcome_of(ward.port, case) == case.expected
    ward.check(before, memory_bytes_max=case.memory_bytes_max, grows_log=case.grows_log)


def test_every_item_has_a_row_and_every_row_a_name() -> None:
    assert {case.item for case in CASES} == ITEMS
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(case.why for case in CASES if case.kafka is not None)
