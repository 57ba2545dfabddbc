"""`Ledger`: totals of customers and the confirmations still owed, in one SQLite file.

An order is booked once, however often it is delivered: its id, the new total and the confirmation
that is owed are written in one transaction. Nothing of Kafka is in here.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS booked (order_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, customer TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Order:
    """What a customer pays for."""

    order_id: str
    customer: str
    amount: int


class Ledger:
    """The state of the service; used by one thread."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(SCHEMA)

    def book(self, orders: Sequence[Order]) -> None:
        """Count the orders that are new, and owe each of them a confirmation."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            for order in orders:
                self._book(order)

    def _book(self, order: Order) -> None:
        added = self._database.execute(
            "INSERT OR IGNORE INTO booked VALUES (?)", (order.order_id,)
        ).rowcount
        if added:
            self._database.execute(
                "INSERT INTO totals VALUES (?, ?) "
                "ON CONFLICT (customer) DO UPDATE SET amount = amount + excluded.amount",
                (order.customer, order.amount),
            )
            self._database.execute(
                "INSERT INTO owed VALUES (?, ?)", (order.order_id, order.customer)
            )

    def owed(self) -> list[tuple[str, str]]:
        """Order and customer of every confirmation that was not sent, in the order of booking."""
        return self._database.execute(
            "SELECT order_id, customer FROM owed ORDER BY rowid"
        ).fetchall()

    def confirmed(self, order_ids: Sequence[str]) -> None:
        """These confirmations are on the broker's disk."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            self._database.executemany(
                "DELETE FROM owed WHERE order_id = ?", [(one,) for one in order_ids]
            )

    def totals(self) -> dict[str, int]:
        """What each customer has ordered for so far."""
        return dict(self._database.execute("SELECT customer, amount FROM totals"))

    def close(self) -> None:
        """Give the file back."""
        self._database.close()
