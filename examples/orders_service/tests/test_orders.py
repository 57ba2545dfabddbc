"""The guarantees of the service, also while its broker crashes, pauses or has a full disk.

`Broker`, `penstock_broker` and `penstock_records` are Penstock's; the rest is this project.
"""

import json
from collections.abc import Iterable

import pytest

from orders_service.ledger import Ledger, Order
from orders_service.service import CONFIRMATIONS, ORDERS
from penstock.testing import Broker, Records, RecordsMissingError

ARRIVAL_SECONDS_MAX = 60.0
"""Long enough for the growing retry pauses of a client after a fault."""


def place_orders(broker: Broker, numbers: Iterable[int]) -> None:
    """Orders of two customers, one euro each, spread over the partitions."""
    for customer in ("ada", "grace"):
        orders = [
            json.dumps({"id": f"{customer}-{number}", "customer": customer, "amount": 1})
            for number in numbers
        ]
        broker.produce(ORDERS, *orders, key=customer)


def confirmed(records: Records, count: int) -> list[str]:
    """Wait for `count` confirmations; return the confirmed order ids."""
    found = records(CONFIRMATIONS, count=count, timeout_seconds=ARRIVAL_SECONDS_MAX)
    return sorted(record.value or "" for record in found)


def ids(numbers: Iterable[int]) -> list[str]:
    """Return the ids that `place_orders` assigns."""
    return sorted(f"{customer}-{number}" for number in numbers for customer in ("ada", "grace"))


def test_each_order_is_counted_and_confirmed(
    penstock_broker: Broker, penstock_records: Records, ledger: Ledger
) -> None:
    place_orders(penstock_broker, range(5))
    assert confirmed(penstock_records, 10) == ids(range(5))
    assert ledger.totals() == {"ada": 5, "grace": 5}


def test_an_order_that_is_delivered_twice_is_confirmed_once(
    penstock_broker: Broker, penstock_records: Records, ledger: Ledger
) -> None:
    place_orders(penstock_broker, range(3))
    place_orders(penstock_broker, range(4))
    assert confirmed(penstock_records, 8) == ids(range(4))
    assert ledger.totals() == {"ada": 4, "grace": 4}


def test_what_is_no_order_is_passed_over(
    penstock_broker: Broker, penstock_records: Records, service: None
) -> None:
    penstock_broker.produce(ORDERS, "{", '{"id": 1}', "null")
    place_orders(penstock_broker, range(1))
    assert confirmed(penstock_records, 2) == ids(range(1))


def test_a_crash_in_the_middle_loses_no_order_and_confirms_none_twice(
    penstock_broker: Broker, penstock_records: Records, ledger: Ledger
) -> None:
    place_orders(penstock_broker, range(200))
    penstock_records(CONFIRMATIONS, count=1)  # The service is in the middle of its work.
    with penstock_broker.crashed():
        pass  # Connections are reset, what was not on disk is gone, clients are refused.
    place_orders(penstock_broker, range(200, 210))
    assert confirmed(penstock_records, 420) == ids(range(210))
    assert ledger.totals() == {"ada": 210, "grace": 210}


def test_a_broker_that_does_not_answer_for_a_while_is_waited_for(
    penstock_broker: Broker, penstock_records: Records, ledger: Ledger
) -> None:
    place_orders(penstock_broker, range(50))
    with penstock_broker.paused(), pytest.raises(RecordsMissingError):
        penstock_records(CONFIRMATIONS, count=100, timeout_seconds=0.2)
    assert confirmed(penstock_records, 100) == ids(range(50))
    assert ledger.totals() == {"ada": 50, "grace": 50}


def test_a_full_disk_delays_confirmations_and_loses_none(
    penstock_broker: Broker, penstock_records: Records, ledger: Ledger
) -> None:
    place_orders(penstock_broker, range(1))
    confirmed(penstock_records, 2)
    with penstock_broker.full_disk():
        ledger.book([Order("ada-1", "ada", 1), Order("grace-1", "grace", 1)])
        with pytest.raises(RecordsMissingError):
            penstock_records(CONFIRMATIONS, count=3, timeout_seconds=0.5)
    assert confirmed(penstock_records, 4) == ids(range(2))
    assert ledger.totals() == {"ada": 2, "grace": 2}
