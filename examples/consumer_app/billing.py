"""A service that bills orders: a handler with retry, dead letters and an error handler.

Start it with `penstock consumers run billing`, or with `python billing.py`. Stop it with Ctrl-C or
SIGTERM: running handlers finish, positions are committed.
"""

import sqlite3
from pathlib import Path

import penstock

DATABASE = Path("bills.sqlite")


class PaymentDownError(Exception):
    """The payment service does not answer; a later attempt may succeed."""


class UnknownCustomerError(Exception):
    """No attempt can succeed before a person has corrected the order."""


def charge(order: dict[str, str]) -> None:
    """Charge an order once, however often it is delivered."""
    if order["customer"] == "unknown":
        raise UnknownCustomerError(order["customer"])
    with sqlite3.connect(DATABASE) as database:
        database.execute("CREATE TABLE IF NOT EXISTS bills (id TEXT PRIMARY KEY, customer TEXT)")
        database.execute("INSERT OR IGNORE INTO bills VALUES (:id, :customer)", order)
    database.close()


def choose(failure: penstock.Failure) -> penstock.ErrorAction | None:
    """Put orders aside at once when no attempt can help; retry the others."""
    if isinstance(failure.error, UnknownCustomerError | ValueError | KeyError):
        return penstock.ErrorAction.DEAD_LETTER
    return None


@penstock.consumer(
    topic="orders",
    group="billing",
    retry=penstock.RetryPolicy(attempts=5, backoff="100ms..30s", jitter=True),
    dead_letter="dlq.orders",
    on_error=choose,
    concurrency=8,
)
def bill(record: penstock.ConsumerRecord) -> None:
    """Bill one order. Orders with the same key are billed one after another."""
    charge(record.json())


if __name__ == "__main__":
    penstock.run(bill)
