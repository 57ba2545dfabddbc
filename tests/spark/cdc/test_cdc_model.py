"""A table that follows a database through shuffled, repeated and rejected events equals it.

The database is a dictionary; its log has an event for each change, with keys that change, positions
that both events of a changed key share, and rows that come back. Events reach the topic out of
order within bounds, some of them twice, and some are rejects that are replayed later. Every batch
has a new driver.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.spark.cdc.events import FIELDS, Record, event, tombstone
from tests.spark.tables.value_world import ValueWorld

DDL = "id bigint, name string, big bigint"
STRICT = "id bigint, name string NOT NULL, big bigint"
SHORT = [FIELDS[0], FIELDS[1], FIELDS[3]]
KEYS = 12
BOUND = 15


@dataclass
class Database:
    """Rows by key, and the events of their changes in order."""

    chance: random.Random
    rows: dict[int, tuple[str | None, int]] = field(default_factory=dict)
    lsn: int = 2**53

    def events(self, count: int) -> Iterator[list[Record]]:
        """The records of `count` transactions."""
        for _ in range(count):
            self.lsn += self.chance.choice([1, 7, 48])
            yield list(self._transaction())

    def _transaction(self) -> Iterator[Record]:
        for order in range(1, self.chance.randint(2, 4)):
            self.lsn += 1  # each statement has a place of its own in PostgreSQL's log
            key = self.chance.randrange(KEYS)
            if key not in self.rows:
                yield self._put("c", key, order)
            elif self.chance.random() < 0.3:
                yield from self._delete(key, order)
            elif self.chance.random() < 0.2:
                free = sorted(set(range(KEYS)) - set(self.rows))
                yield from self._delete(key, order)
                if free:  # a changed key: both events have one position
                    yield self._put("c", self.chance.choice(free), order)
            else:
                yield self._put("u", key, order)

    def _put(self, op: str, key: int, order: int) -> Record:
        name = None if self.chance.random() < 0.1 else f"{self.lsn}.{order}"
        self.rows[key] = name, self.lsn
        row = {"id": key, "name": name, "big": self.lsn}
        return event(op, row, self.lsn, order=order, fields=SHORT)

    def _delete(self, key: int, order: int) -> Iterator[Record]:
        self.rows.pop(key)
        has_before = self.chance.random() < 0.5
        gone = event("d", {"id": key}, self.lsn, order=order, fields=SHORT)
        if not has_before:
            assert gone.value is not None
            gone = gone._replace(value=gone.value.replace(b'"before":{', b'"other":{'))
        yield gone
        yield tombstone(gone)


def shuffled(records: list[Record], chance: random.Random) -> list[Record]:
    """The records out of order by up to `BOUND` places, and some of them twice."""
    placed = [(number + chance.uniform(0, BOUND), one) for number, one in enumerate(records)]
    placed += [(at + chance.uniform(0, BOUND), one) for at, one in placed if chance.random() < 0.1]
    return [one for _, one in sorted(placed, key=lambda found: found[0])]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_table_equals_the_database(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    database = Database(chance)
    records = shuffled([one for part in database.events(110) for one in part], chance)
    world = ValueWorld(
        tmp_path,
        kind,
        DDL,
        {"mode": "upsert", "key": ["id"]},
        value={
            "envelope": "debezium",
            "sequence_by": ["source.lsn", "transaction.total_order"],
            "reject_share_max": 1.0,
        },
    )
    world.ddl = STRICT
    while records:
        size = chance.choice([1, 5, 40, 90])
        some, records = records[:size], records[size:]
        world.commit([one.value for one in some], keys=[one.key for one in some])
    assert world.reasons(), "no event is replayed"
    world.ddl = DDL
    world.replay()
    assert world.reasons() == {}
    expected = [(key, *row) for key, row in database.rows.items()]
    assert world.held("id", "name", "big") == sorted(expected, key=repr)
