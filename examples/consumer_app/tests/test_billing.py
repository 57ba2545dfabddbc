"""Tests of the service: most of them without a broker, one with a broker in this process."""

import sqlite3
from pathlib import Path

import billing
import pytest

from penstock.testing import Broker, deliver, running_consumer


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bills.sqlite"
    monkeypatch.setattr(billing, "DATABASE", path)
    return path


def bills(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    found = [row[0] for row in database.execute("SELECT id FROM bills ORDER BY id")]
    database.close()
    return found


ANN = '{"id": "1", "customer": "ann"}'
BOB = '{"id": "2", "customer": "bob"}'
NOBODY = '{"id": "3", "customer": "unknown"}'


def test_an_order_that_comes_twice_is_billed_once(database: Path) -> None:
    deliver(billing.bill, ANN, ANN, BOB)
    assert bills(database) == ["1", "2"]


def test_a_payment_service_that_is_down_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def charge(order: dict[str, str]) -> None:
        calls.append(order["id"])
        if len(calls) < 4:
            raise billing.PaymentDownError

    monkeypatch.setattr(billing, "charge", charge)
    result = deliver(billing.bill, ANN)  # the pauses cost no time
    assert calls == ["1"] * 4
    assert result.pauses_seconds == [0.1, 0.2, 0.4]
    assert not result.dead_letters


def test_an_order_that_cannot_be_billed_is_put_aside_at_once() -> None:
    result = deliver(billing.bill, "not json", NOBODY, BOB)
    assert [one.record.text() for one in result.dead_letters] == ["not json", NOBODY]
    assert [one.text() for one in result.handled] == [BOB]
    assert [failure.attempt for failure in result.failures] == [1, 1]


def test_the_whole_service_with_a_broker(penstock_broker: Broker, database: Path) -> None:
    penstock_broker.create_topic("orders", partitions=3)
    for order in (ANN, BOB, NOBODY):
        penstock_broker.produce("orders", order, key=order)
    with running_consumer(billing.bill, penstock_broker) as run:
        run.until_done()
    assert bills(database) == ["1", "2"]
    (letter,) = penstock_broker.records("dlq.orders")
    assert letter.headers["penstock.error.type"] == "billing.UnknownCustomerError"
    assert letter.headers["penstock.topic"] == "orders"
